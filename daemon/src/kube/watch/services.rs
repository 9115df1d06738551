//! Services, and the EndpointSlices of those that need them.
//!
//! Where a Service's pods are matters only with `externalTrafficPolicy: Local` or
//! node affinity; slices change with every pod, so the others' are not even asked for.
//! One watch serves all that need them, selected by Service name; it is opened anew
//! when a name is missing from it.
//!
//! ```text
//!   Services ──needs──▶ slices: list + watch of those names ──▶ Endpoints inputs
//!       ▲                          │
//!       └────── covered ◀──────────┘   then the Service itself is told
//! ```
//! A Service that newly depends on endpoints is told after them: seen without, it would
//! have no eligible node, and its address would be withdrawn for a moment.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use purelb_api::service::{self, Classes};
use purelb_core::ObjectKey;
use purelb_core::facts::ServiceFacts;
use purelb_core::messages::{FactsUpdate, Input, Source};
use tokio::sync::watch;

use super::object_key;
use super::watched_kind::{ObjectReading, WatchedKind};
use crate::kube::seen_objects::SeenObjects;

/// Names of Services; `None` until the Services are known.
pub(crate) type ServiceNames = Option<Arc<BTreeSet<String>>>;

pub(crate) struct ServiceKind {
    pub(crate) classes: Classes,
    pub(crate) seen_objects: Arc<SeenObjects>,
    pub(crate) needing: BTreeSet<ObjectKey>,
    pub(crate) needs: watch::Sender<ServiceNames>,
    pub(crate) covered: watch::Receiver<ServiceNames>,
    pub(crate) wait: Duration,
}

fn needs_endpoints(facts: &ServiceFacts) -> bool {
    (facts.only_local_endpoints || facts.prefer_endpoints) && !facts.vips.is_empty()
}

impl ServiceKind {
    async fn publish_needs(&mut self) {
        let names: BTreeSet<String> = self.needing.iter().map(|k| k.name().to_owned()).collect();
        let names = Arc::new(names);
        self.needs.send_if_modified(|now| {
            let changed = now.as_ref() != Some(&names);
            *now = Some(names.clone());
            changed
        });
        let covers = |c: &ServiceNames| c.as_ref().is_some_and(|c| names.is_subset(c));
        let waited = tokio::time::timeout(self.wait, self.covered.wait_for(covers)).await;
        if waited.is_err() {
            tracing::warn!("EndpointSlices do not come; Services that depend on them go on without");
        }
    }
}

impl WatchedKind for ServiceKind {
    type Object = Service;
    type Key = ObjectKey;
    type Facts = ServiceFacts;
    const SOURCE: Source = Source::Services;

    fn namespace(&self) -> Option<&str> {
        None
    }

    fn fields(&self) -> Option<&'static str> {
        Some("spec.type=LoadBalancer")
    }

    fn key(&self, meta: &ObjectMeta) -> Option<ObjectKey> {
        object_key(meta)
    }

    fn read(&mut self, key: &ObjectKey, object: &Service) -> ObjectReading<ServiceFacts> {
        match service::facts(object, &self.classes) {
            Some(facts) => {
                self.seen_objects.record_service(key, object);
                ObjectReading::Facts(facts)
            }
            None => ObjectReading::NotOurs,
        }
    }

    async fn before_update(&mut self, update: &FactsUpdate<ServiceFacts, ObjectKey>) {
        match update {
            FactsUpdate::All(all) => {
                self.seen_objects.retain_services(&all.iter().map(|s| &s.key).collect::<HashSet<_>>());
                self.needing = all.iter().filter(|s| needs_endpoints(s)).map(|s| s.key.clone()).collect();
                self.publish_needs().await;
            }
            FactsUpdate::Set(facts) => {
                let changed = if needs_endpoints(facts) {
                    self.needing.insert(facts.key.clone())
                } else {
                    self.needing.remove(&facts.key)
                };
                if changed {
                    self.publish_needs().await;
                }
            }
            FactsUpdate::Gone(key) => {
                self.seen_objects.forget_service(key);
                if self.needing.remove(key) {
                    self.publish_needs().await;
                }
            }
        }
    }

    fn input(update: FactsUpdate<ServiceFacts, ObjectKey>) -> Input {
        Input::Services(update)
    }
}
