//! Watches: what the cluster says, as engine inputs. One task for each kind of object.

mod body_lines;
mod endpoint_slices;
mod leases;
mod node_agents;
mod nodes;
pub(crate) mod object_watcher;
mod response;
pub(crate) mod service_groups;
mod services;
mod watched_kind;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use purelb_core::ObjectKey;
use purelb_core::messages::Source;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::KubeConfig;
use super::client::api_client::ApiClient;
use super::seen_objects::SeenObjects;
use super::write::condition_writer::{ConditionSender, ConditionWriter, SIGHTING_QUEUE};
use endpoint_slices::watch_endpoint_slices;
use leases::LeaseKind;
use node_agents::NodeAgentKind;
use nodes::NodeKind;
use object_watcher::{ObjectWatcher, WatchContext};
use service_groups::{GroupProblems, ServiceGroupKind};
use services::ServiceKind;
use watched_kind::WatchedKind;

/// After a panic, before the task starts anew.
const AFTER_PANIC: Duration = Duration::from_secs(1);

pub(crate) fn object_key(meta: &ObjectMeta) -> Option<ObjectKey> {
    ObjectKey::of(meta.namespace.as_deref()?, meta.name.as_deref()?).ok()
}

pub(crate) fn start_watches(
    config: &KubeConfig,
    context: &WatchContext,
    seen_objects: &Arc<SeenObjects>,
    writes: Arc<ApiClient>,
    problems: &GroupProblems,
) -> (JoinSet<()>, BTreeMap<Source, Arc<Notify>>) {
    let sources = Source::ALL.into_iter().filter(|s| *s != Source::Kernel);
    let relists: BTreeMap<Source, Arc<Notify>> = sources.map(|s| (s, Arc::default())).collect();
    let mut tasks = JoinSet::new();
    let namespace = config.namespace.clone();

    let (sightings, seen) = mpsc::channel(SIGHTING_QUEUE);
    tasks.spawn(ConditionWriter { client: writes, delay: config.tuning.condition_delay }.run(seen));
    spawn_watcher(&mut tasks, context, &relists, || NodeKind);
    let at = namespace.clone();
    spawn_watcher(&mut tasks, context, &relists, move || LeaseKind { namespace: at.clone() });
    tasks.spawn(config.last_good.clone().write_changes());
    let (at, said, last_good) = (namespace.clone(), problems.clone(), config.last_good.clone());
    spawn_watcher(&mut tasks, context, &relists, move || ServiceGroupKind {
        namespace: at.clone(),
        last_good: last_good.clone(),
        problems: said.clone(),
    });
    let (seen_agents, last_good) = (seen_objects.clone(), config.last_good.clone());
    spawn_watcher(&mut tasks, context, &relists, move || NodeAgentKind {
        namespace: namespace.clone(),
        seen_objects: seen_agents.clone(),
        conditions: ConditionSender(sightings.clone()),
        selectors: BTreeMap::new(),
        last_good: last_good.clone(),
        wrong: BTreeMap::new(),
        replayed: false,
    });

    let (needs, needed) = watch::channel(None);
    let (cover, covered) = watch::channel(None);
    let (seen_objects, classes, wait) =
        (seen_objects.clone(), config.classes.clone(), config.tuning.endpoints_wait);
    spawn_watcher(&mut tasks, context, &relists, move || ServiceKind {
        classes: classes.clone(),
        seen_objects: seen_objects.clone(),
        needing: BTreeSet::new(),
        needs: needs.clone(),
        covered: covered.clone(),
        wait,
    });
    let (slices_context, relist) = (context.clone(), relists[&Source::EndpointSlices].clone());
    let counters = context.client.clone();
    tasks.spawn(restart_after_panic(Source::EndpointSlices, counters, move || {
        watch_endpoint_slices(slices_context.clone(), relist.clone(), needed.clone(), cover.clone())
    }));
    (tasks, relists)
}

fn spawn_watcher<K: WatchedKind>(
    tasks: &mut JoinSet<()>,
    context: &WatchContext,
    relists: &BTreeMap<Source, Arc<Notify>>,
    kind: impl Fn() -> K + Send + 'static,
) {
    let (context, relist) = (context.clone(), relists[&K::SOURCE].clone());
    let client = context.client.clone();
    let task = move || ObjectWatcher::new(kind(), context.clone(), relist.clone()).run();
    tasks.spawn(restart_after_panic(K::SOURCE, client, task));
}

/// Whatever an object does to the code that reads it, the others are still followed:
/// a task that panics starts anew with a complete listing.
async fn restart_after_panic<F>(source: Source, client: Arc<ApiClient>, task: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut one = JoinSet::new();
        one.spawn(task());
        match one.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                client.counters().task_panics.add();
                tracing::error!(%source, "the task that follows this panicked, starting it anew");
                tokio::time::sleep(AFTER_PANIC).await;
            }
            _ => return,
        }
    }
}
