//! What the tests of faults work with: a client that follows Leases, a server, a proxy.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use purelb_kit::embedded::{EmbeddedApi, RequestKey, Verb};
use purelb_kit::faults::Proxy;
use purelb_kit::wait::eventually;
use serde_json::json;

pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Long enough that a request on loopback would have been answered many times.
pub(crate) const A_WHILE: Duration = Duration::from_millis(150);
pub(crate) const NAMESPACE: &str = "default";

pub(crate) fn leases(client: kube::Client) -> Api<Lease> {
    Api::namespaced(client, NAMESPACE)
}

pub(crate) fn mk_lease(name: &str) -> Lease {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"holderIdentity": "one"}}))
        .expect("a Lease by its schema")
}

pub(crate) async fn create(api: &Api<Lease>, name: &str) -> Result<()> {
    api.create(&PostParams::default(), &mk_lease(name)).await.with_context(|| format!("create {name}"))?;
    Ok(())
}

pub(crate) async fn remove(api: &Api<Lease>, name: &str) -> Result<()> {
    api.delete(name, &DeleteParams::default()).await.with_context(|| format!("delete {name}"))?;
    Ok(())
}

pub(crate) async fn hold(api: &Api<Lease>, name: &str, holder: &str) -> kube::Result<Lease> {
    let change = json!({"spec": {"holderIdentity": holder}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await
}

pub(crate) fn code(result: kube::Result<Lease>) -> Option<u16> {
    match result {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// Tries again at once, so that a test waits for the fault and not for the client.
#[derive(Debug, Default)]
pub(crate) struct Eager;

impl Iterator for Eager {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(10))
    }
}

impl Backoff for Eager {
    fn reset(&mut self) {}
}

/// A client's view of the Leases, kept by its watcher.
pub(crate) struct Mirror {
    seen: Arc<Mutex<BTreeSet<String>>>,
    lists: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mirror {
    pub(crate) fn of(client: kube::Client) -> Mirror {
        Self::with(client, watcher::Config::default())
    }

    pub(crate) fn with(client: kube::Client, config: watcher::Config) -> Mirror {
        let (seen, lists, errors) = (
            Arc::<Mutex<BTreeSet<String>>>::default(),
            Arc::<AtomicU64>::default(),
            Arc::<AtomicU64>::default(),
        );
        let (into, listed, failed) = (seen.clone(), lists.clone(), errors.clone());
        let task = tokio::spawn(async move {
            let mut events = watcher(leases(client), config).backoff(Eager).boxed();
            let mut fresh = BTreeSet::new();
            while let Some(event) = events.next().await {
                let mut seen = into.lock().expect("no holder panics");
                match event {
                    Ok(Event::Init) => fresh.clear(),
                    Ok(Event::InitApply(lease)) => {
                        fresh.insert(lease.name_any());
                    }
                    Ok(Event::InitDone) => {
                        *seen = std::mem::take(&mut fresh);
                        listed.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(Event::Apply(lease)) => {
                        seen.insert(lease.name_any());
                    }
                    Ok(Event::Delete(lease)) => {
                        seen.remove(&lease.name_any());
                    }
                    Err(_) => {
                        failed.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
        Mirror { seen, lists, errors, task }
    }

    pub(crate) async fn shows(&self, expected: &[&str]) -> Result<()> {
        let expected = expected.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        eventually(&format!("the mirror shows {expected:?}"), SOON, || async {
            let seen = self.seen.lock().expect("no holder panics").clone();
            if seen == expected && self.lists() > 0 {
                Ok(())
            } else {
                Err((seen, self.lists(), self.errors()))
            }
        })
        .await
    }

    pub(crate) fn lists(&self) -> u64 {
        self.lists.load(Ordering::SeqCst)
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::SeqCst)
    }
}

/// An embedded API, a client that goes straight to it, and one behind a proxy.
pub(crate) struct Bench {
    pub(crate) api: EmbeddedApi,
    pub(crate) proxy: Proxy,
    pub(crate) direct: Api<Lease>,
    pub(crate) through: Api<Lease>,
}

impl Bench {
    pub(crate) async fn start() -> Result<Bench> {
        let api = EmbeddedApi::start().await?;
        let proxy = Proxy::before(&api).start().await?;
        let (direct, through) = (leases(api.client("direct")?), leases(proxy.client("through")?));
        create(&direct, "a").await?;
        Ok(Bench { api, proxy, direct, through })
    }

    pub(crate) async fn mirror(&self) -> Result<Mirror> {
        let mirror = Mirror::of(self.proxy.client("mirror")?);
        mirror.shows(&["a"]).await?;
        self.watches_open(1).await?;
        Ok(mirror)
    }

    pub(crate) async fn watches_open(&self, count: usize) -> Result<()> {
        eventually(&format!("{count} watches are open"), SOON, || async {
            let open = self.proxy.open_watches();
            if open == count { Ok(()) } else { Err(open) }
        })
        .await
    }

    /// How many requests of the proxied client the server heard of.
    pub(crate) fn heard(&self, verb: Verb) -> u64 {
        let key = RequestKey { client: "through".into(), verb, resource: "leases".into() };
        self.api.requests().get(&key).copied().unwrap_or(0)
    }
}

/// What does not happen in a while.
pub(crate) async fn not_yet<T>(what: impl Future<Output = T>) -> bool {
    tokio::time::timeout(A_WHILE, what).await.is_err()
}
