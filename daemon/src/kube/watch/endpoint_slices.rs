//! The EndpointSlices of the Services that need them; see `services`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use purelb_api::endpoints;
use purelb_core::ObjectKey;
use purelb_core::facts::EndpointFacts;
use purelb_core::messages::{FactsUpdate, Input, Source};
use tokio::sync::{Notify, watch};

use super::object_key;
use super::object_watcher::{ObjectWatcher, WatchContext};
use super::services::ServiceNames;
use super::watched_kind::{ObjectReading, WatchedKind};

/// A selector is part of the URL: with more names than this we take all slices and
/// pick ours.
const MOST_SELECTED_NAMES: usize = 64;
/// A watch over so many names nobody needs any more is opened anew.
const UNNEEDED_NAMES: usize = 32;

struct EndpointSliceKind {
    names: Arc<BTreeSet<String>>,
    covered: watch::Sender<ServiceNames>,
}

impl WatchedKind for EndpointSliceKind {
    type Object = EndpointSlice;
    type Key = ObjectKey;
    type Facts = EndpointFacts;
    const SOURCE: Source = Source::EndpointSlices;

    fn namespace(&self) -> Option<&str> {
        None
    }

    fn labels(&self) -> Option<String> {
        if self.names.len() > MOST_SELECTED_NAMES {
            return None;
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        Some(format!("kubernetes.io/service-name in ({})", names.join(",")))
    }

    fn key(&self, meta: &ObjectMeta) -> Option<ObjectKey> {
        object_key(meta)
    }

    fn read(&mut self, _key: &ObjectKey, object: &EndpointSlice) -> ObjectReading<EndpointFacts> {
        match endpoints::facts(object) {
            Some(facts) if self.names.contains(facts.service.name()) => ObjectReading::Facts(facts),
            _ => ObjectReading::NotOurs,
        }
    }

    fn input(update: FactsUpdate<EndpointFacts, ObjectKey>) -> Input {
        Input::Endpoints(update)
    }

    fn listing_done(&mut self, _seen: &HashSet<ObjectKey>) {
        self.covered.send_replace(Some(self.names.clone()));
    }
}

/// Whether a watch over `names` still does for `needed`.
fn still_covers(names: &BTreeSet<String>, needed: &BTreeSet<String>) -> bool {
    !needed.is_empty() && needed.is_subset(names) && names.len() <= 2 * needed.len() + UNNEEDED_NAMES
}

/// Follows the slices that are needed, whatever is needed at the time.
pub(crate) async fn watch_endpoint_slices(
    context: WatchContext,
    relist: Arc<Notify>,
    mut needs: watch::Receiver<ServiceNames>,
    covered: watch::Sender<ServiceNames>,
) {
    loop {
        let Some(names) = needs.borrow_and_update().clone() else {
            if needs.changed().await.is_err() {
                return;
            }
            continue;
        };
        if names.is_empty() {
            if context.inputs.send(Input::Endpoints(FactsUpdate::All(Vec::new()))).await.is_err() {
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
        let kind = EndpointSliceKind { names: names.clone(), covered: covered.clone() };
        let follower = ObjectWatcher::new(kind, context.clone(), relist.clone());
        tokio::select! {
            // Dropped in the middle of anything, it is replaced by a complete listing.
            changed = needs.wait_for(|n| n.as_ref().is_some_and(|n| !still_covers(&names, n))) => {
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
