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
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use purelb_api::service::Classes;
use purelb_api::{endpoints, service};
use purelb_core::ObjectKey;
use purelb_core::facts::{EndpointFacts, ServiceFacts};
use purelb_core::io::{Input, Source, Update};
use tokio::sync::{Notify, watch};

use super::book::Book;
use super::follow::{Follower, Ground};
use super::kind::{Kind, Read};
use super::kinds::object_key;

/// Names of Services; `None` until the Services are known.
pub(crate) type Names = Option<Arc<BTreeSet<String>>>;

/// A selector is part of the URL: with more names than this we take all slices and
/// pick ours.
const MOST_SELECTED: usize = 64;
/// A watch over so many names nobody needs any more is opened anew.
const SLACK: usize = 32;

pub(crate) struct Services {
    pub(crate) classes: Classes,
    pub(crate) book: Arc<Book>,
    pub(crate) needing: BTreeSet<ObjectKey>,
    pub(crate) needs: watch::Sender<Names>,
    pub(crate) covered: watch::Receiver<Names>,
    pub(crate) wait: Duration,
}

fn needs_endpoints(facts: &ServiceFacts) -> bool {
    (facts.only_local_endpoints || facts.prefer_endpoints) && !facts.vips.is_empty()
}

impl Services {
    async fn announce_needs(&mut self) {
        let names: BTreeSet<String> = self.needing.iter().map(|k| k.name().to_owned()).collect();
        let names = Arc::new(names);
        self.needs.send_if_modified(|now| {
            let changed = now.as_ref() != Some(&names);
            *now = Some(names.clone());
            changed
        });
        let covers = |c: &Names| c.as_ref().is_some_and(|c| names.is_subset(c));
        let waited = tokio::time::timeout(self.wait, self.covered.wait_for(covers)).await;
        if waited.is_err() {
            tracing::warn!("EndpointSlices do not come; Services that depend on them go on without");
        }
    }
}

impl Kind for Services {
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

    fn read(&mut self, key: &ObjectKey, object: &Service) -> Read<ServiceFacts> {
        match service::facts(object, &self.classes) {
            Some(facts) => {
                self.book.saw(key, object);
                Read::Facts(facts)
            }
            None => Read::Not,
        }
    }

    async fn before(&mut self, update: &Update<ServiceFacts, ObjectKey>) {
        match update {
            Update::All(all) => {
                self.book.keep_only(&all.iter().map(|s| &s.key).collect::<HashSet<_>>());
                self.needing = all.iter().filter(|s| needs_endpoints(s)).map(|s| s.key.clone()).collect();
                self.announce_needs().await;
            }
            Update::Set(facts) => {
                let changed = if needs_endpoints(facts) {
                    self.needing.insert(facts.key.clone())
                } else {
                    self.needing.remove(&facts.key)
                };
                if changed {
                    self.announce_needs().await;
                }
            }
            Update::Gone(key) => {
                self.book.forget(key);
                if self.needing.remove(key) {
                    self.announce_needs().await;
                }
            }
        }
    }

    fn input(update: Update<ServiceFacts, ObjectKey>) -> Input {
        Input::Services(update)
    }
}

struct Slices {
    names: Arc<BTreeSet<String>>,
    covered: watch::Sender<Names>,
}

impl Kind for Slices {
    type Object = EndpointSlice;
    type Key = ObjectKey;
    type Facts = EndpointFacts;
    const SOURCE: Source = Source::EndpointSlices;

    fn namespace(&self) -> Option<&str> {
        None
    }

    fn labels(&self) -> Option<String> {
        if self.names.len() > MOST_SELECTED {
            return None;
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        Some(format!("kubernetes.io/service-name in ({})", names.join(",")))
    }

    fn key(&self, meta: &ObjectMeta) -> Option<ObjectKey> {
        object_key(meta)
    }

    fn read(&mut self, _key: &ObjectKey, object: &EndpointSlice) -> Read<EndpointFacts> {
        match endpoints::facts(object) {
            Some(facts) if self.names.contains(facts.service.name()) => Read::Facts(facts),
            _ => Read::Not,
        }
    }

    fn input(update: Update<EndpointFacts, ObjectKey>) -> Input {
        Input::Endpoints(update)
    }

    fn listed(&mut self, _seen: &HashSet<ObjectKey>) {
        self.covered.send_replace(Some(self.names.clone()));
    }
}

/// Whether a watch over `names` still does for `needed`.
fn suits(names: &BTreeSet<String>, needed: &BTreeSet<String>) -> bool {
    !needed.is_empty() && needed.is_subset(names) && names.len() <= 2 * needed.len() + SLACK
}

/// Follows the slices that are needed, whatever is needed at the time.
pub(crate) async fn follow_slices(
    ground: Ground,
    relist: Arc<Notify>,
    mut needs: watch::Receiver<Names>,
    covered: watch::Sender<Names>,
) {
    loop {
        let Some(names) = needs.borrow_and_update().clone() else {
            if needs.changed().await.is_err() {
                return;
            }
            continue;
        };
        if names.is_empty() {
            if ground.inputs.send(Input::Endpoints(Update::All(Vec::new()))).await.is_err() {
                return;
            }
            covered.send_replace(Some(names));
            tokio::select! {
                changed = needs.changed() => if changed.is_err() { return },
                // Asked to list: that there are none is the whole list.
                () = relist.notified() => {}
            }
            continue;
        }
        // What is no longer watched is no longer covered.
        covered.send_modify(|now| {
            *now = now.as_ref().map(|now| Arc::new(now.intersection(&names).cloned().collect()));
        });
        let kind = Slices { names: names.clone(), covered: covered.clone() };
        let follower = Follower::new(kind, ground.clone(), relist.clone());
        tokio::select! {
            // Dropped in the middle of anything, it is replaced by a complete listing.
            changed = needs.wait_for(|n| n.as_ref().is_some_and(|n| !suits(&names, n))) => {
                if changed.is_err() {
                    return;
                }
            }
            () = follower.run() => return,
        }
    }
}

#[cfg(test)]
mod tests;
