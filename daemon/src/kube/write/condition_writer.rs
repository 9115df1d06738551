//! The `Accepted` condition of LBNodeAgents (R11): what is wrong with one stands on it.
//!
//! Every node reads the same object and comes to the same words. Each waits a random
//! moment before it writes, and writes only if nobody has by then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::{Resource, ResourceExt};
use purelb_api::LBNodeAgent;
use purelb_api::conditions::{ACCEPTED, Finding, set};
use purelb_core::ObjectKey;
use purelb_core::facts::ConfigProblem;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::kube::client::api_client::ApiClient;
use crate::kube::client::backoff::random_below;
use crate::kube::client::request_error::{RequestError, clip};
use crate::kube::watch::object_key;

/// Sightings waiting; when full the newest is dropped, and the next one of the same
/// object says it again.
pub(crate) const SIGHTING_QUEUE: usize = 64;
/// Objects whose condition waits to be written.
const MOST_WAITING: usize = 1024;
const CONDITION_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) enum AgentSighting {
    Seen { key: ObjectKey, version: String, conditions: Option<Vec<Condition>> },
    Gone(ObjectKey),
}

/// The watch's end.
#[derive(Clone, Debug)]
pub(crate) struct ConditionSender(pub(crate) mpsc::Sender<AgentSighting>);

impl ConditionSender {
    /// Tells what the object's conditions should be, or that they are right.
    pub(crate) fn report(&self, object: &LBNodeAgent, problem: Option<&ConfigProblem>) {
        let Some(key) = object_key(object.meta()) else { return };
        let mut conditions = object.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
        let message = problem.map(|p| clip(&format!("{}: {}", p.field, p.message))).unwrap_or_default();
        let finding = Finding {
            kind: ACCEPTED,
            holds: problem.is_none(),
            reason: if problem.is_none() { "Parsed" } else { "ConfigError" },
            message: &message,
            generation: object.metadata.generation,
        };
        let changed = set(&mut conditions, &finding, Timestamp::now());
        let version = object.resource_version().unwrap_or_default();
        let conditions = changed.then_some(conditions);
        // Full: see `SIGHTING_QUEUE`.
        let _ = self.0.try_send(AgentSighting::Seen { key, version, conditions });
    }

    pub(crate) fn report_gone(&self, key: &ObjectKey) {
        let _ = self.0.try_send(AgentSighting::Gone(key.clone()));
    }
}

pub(crate) struct ConditionWriter {
    pub(crate) client: Arc<ApiClient>,
    pub(crate) delay: Duration,
}

struct PendingCondition {
    at: Instant,
    version: String,
    conditions: Vec<Condition>,
}

impl ConditionWriter {
    pub(crate) async fn run(self, mut sightings: mpsc::Receiver<AgentSighting>) {
        let mut waiting: HashMap<ObjectKey, PendingCondition> = HashMap::new();
        loop {
            let due = waiting.iter().min_by_key(|(_, w)| w.at).map(|(key, w)| (key.clone(), w.at));
            let timer = async {
                match &due {
                    Some((_, at)) => tokio::time::sleep_until(*at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                sighting = sightings.recv() => match sighting {
                    None => return,
                    Some(AgentSighting::Gone(key)) => drop(waiting.remove(&key)),
                    Some(AgentSighting::Seen { key, conditions: None, .. }) => drop(waiting.remove(&key)),
                    Some(AgentSighting::Seen { key, version, conditions: Some(conditions) }) => {
                        let at = Instant::now() + random_below(self.delay);
                        if waiting.len() < MOST_WAITING || waiting.contains_key(&key) {
                            waiting.insert(key, PendingCondition { at, version, conditions });
                        }
                    }
                },
                () = timer => {
                    let Some((key, _)) = due else { continue };
                    let Some(write) = waiting.remove(&key) else { continue };
                    match self.write(&key, &write).await {
                        Ok(()) => self.client.counters().conditions_written.add(),
                        // Somebody wrote: what it looks like now comes through the watch.
                        Err(failure) if [404, 409].contains(&failure.code()) => {}
                        Err(error) => tracing::warn!(object = %key, %error, "condition not written"),
                    }
                }
            }
        }
    }

    async fn write(&self, key: &ObjectKey, write: &PendingCondition) -> Result<(), RequestError> {
        let path = Request::new(LBNodeAgent::url_path(&(), Some(key.namespace())));
        let body = json!({
            "metadata": {"resourceVersion": write.version},
            "status": {"conditions": write.conditions},
        });
        let params = PatchParams::default();
        let request = path.patch_subresource("status", key.name(), &params, &Patch::Merge(body));
        let request = request.map_err(|e| RequestError::Unreadable(e.to_string()))?;
        self.client.request_text(request, Instant::now() + CONDITION_TIMEOUT).await.map(drop)
    }
}
