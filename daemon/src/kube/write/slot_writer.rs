//! Announcing slots: our entries in the Services' annotations, beside those of others.
//!
//! Changes are gathered per Service and written together: one PATCH, made for the
//! version of the Service the merge was based on, usually the one the watch has shown.
//! On a conflict the Service is read again. What fails is not kept: the engine sees
//! that its slot is missing and asks again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Service;
use kube::Resource;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Request;
use purelb_api::service::{Classes, facts};
use purelb_api::{names, slots};
use purelb_core::facts::AnnouncingSlot;
use purelb_core::{Family, IfName, NodeName, ObjectKey, Vip};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::kube::client::api_client::ApiClient;
use crate::kube::client::backoff::Backoff;
use crate::kube::client::request_error::RequestError;
use crate::kube::seen_objects::{SeenObjects, SeenService};

/// Writes under way at once: enough for the server's pace, few enough to leave it room.
const WRITES_AT_ONCE: usize = 8;
/// For one try.
const SLOT_TIMEOUT: Duration = Duration::from_secs(3);
const SLOT_TRIES: usize = 5;

#[derive(Debug)]
pub(crate) struct SlotChange {
    pub(crate) service: ObjectKey,
    pub(crate) vip: Vip,
    pub(crate) action: SlotAction,
}

/// What is to be said of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotAction {
    /// We announce it there.
    Claim(IfName),
    /// That node does not announce it any more.
    Clear(NodeName),
}

pub(crate) struct SlotWriter {
    pub(crate) node: NodeName,
    pub(crate) classes: Classes,
    pub(crate) seen_objects: Arc<SeenObjects>,
    pub(crate) client: Arc<ApiClient>,
}

type WantedSlots = BTreeMap<Vip, SlotAction>;

impl SlotWriter {
    /// Until the queue is closed and everything in it was tried.
    pub(crate) async fn run(self, mut changes: mpsc::Receiver<SlotChange>) {
        let mut waiting: BTreeMap<ObjectKey, WantedSlots> = BTreeMap::new();
        let mut busy: std::collections::BTreeSet<ObjectKey> = Default::default();
        let mut writes = FuturesUnordered::new();
        let mut open = true;
        loop {
            while writes.len() < WRITES_AT_ONCE {
                // One write per Service at a time: two would only conflict.
                let Some(key) = waiting.keys().find(|k| !busy.contains(*k)).cloned() else { break };
                let wanted = waiting.remove(&key).unwrap_or_default();
                busy.insert(key.clone());
                let this = &self;
                writes.push(async move {
                    this.write_slots(&key, &wanted).await;
                    key
                });
            }
            if !open && writes.is_empty() && waiting.is_empty() {
                return;
            }
            tokio::select! {
                Some(key) = writes.next() => drop(busy.remove(&key)),
                change = changes.recv(), if open => {
                    let mut next = change;
                    open = next.is_some();
                    while let Some(SlotChange { service, vip, action }) = next.take() {
                        waiting.entry(service).or_default().insert(vip, action);
                        next = changes.try_recv().ok();
                    }
                }
            }
        }
    }

    async fn write_slots(&self, key: &ObjectKey, wanted: &WantedSlots) {
        let counters = self.client.counters();
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let mut base = self.seen_objects.service(key);
        let mut last = None;
        for tried in 0..SLOT_TRIES {
            if tried > 0 {
                tokio::time::sleep(backoff.step()).await;
            }
            let entry = match base.take() {
                Some(entry) => entry,
                None => match self.fetch(key).await {
                    Ok(Some(entry)) => entry,
                    // Deleted, or no longer ours: nothing to say there.
                    Ok(None) => return,
                    Err(failure) => {
                        last = Some(failure);
                        continue;
                    }
                },
            };
            let Some(patch) = patch(&entry, &self.node, wanted) else { return };
            match self.send(key, patch).await {
                Ok(()) => {
                    counters.slots_written.add();
                    return;
                }
                Err(failure) if failure.code() == 404 => return,
                Err(failure) => last = Some(failure),
            }
        }
        counters.slot_failures.add();
        if let Some(error) = last {
            tracing::warn!(service = %key, %error, "announcing slot not written");
        }
    }

    async fn send(&self, key: &ObjectKey, patch: Value) -> Result<(), RequestError> {
        let path = Request::new(Service::url_path(&(), Some(key.namespace())));
        let request = path.patch(key.name(), &PatchParams::default(), &Patch::Merge(patch));
        let request = request.map_err(|e| RequestError::Unreadable(e.to_string()))?;
        self.client.request_text(request, Instant::now() + SLOT_TIMEOUT).await.map(drop)
    }

    /// A daemon may list Services, not get them: a list of one.
    async fn fetch(&self, key: &ObjectKey) -> Result<Option<SeenService>, RequestError> {
        let path = Request::new(Service::url_path(&(), Some(key.namespace())));
        let params = ListParams::default().fields(&format!("metadata.name={}", key.name()));
        let request = path.list(&params).map_err(|e| RequestError::Unreadable(e.to_string()))?;
        let list: ServiceList = self.client.request(request, Instant::now() + SLOT_TIMEOUT).await?;
        let found = list.items.first().filter(|s| facts(s, &self.classes).is_some());
        Ok(found.map(SeenService::of))
    }
}

#[derive(Deserialize)]
struct ServiceList {
    items: Vec<Service>,
}

/// What to change, if anything.
fn patch(entry: &SeenService, node: &NodeName, wanted: &WantedSlots) -> Option<Value> {
    let mut annotations = Map::new();
    for family in [Family::V4, Family::V6] {
        let of_family = || wanted.iter().filter(|(vip, _)| vip.family() == family);
        if of_family().next().is_none() {
            continue;
        }
        let now = entry.announcing(family);
        let claims = of_family().filter_map(|(vip, change)| match change {
            SlotAction::Claim(interface) => {
                Some((*vip, AnnouncingSlot { node: node.clone(), interface: interface.clone() }))
            }
            SlotAction::Clear(_) => None,
        });
        let mut text = now.to_owned();
        let claims: BTreeMap<Vip, AnnouncingSlot> = claims.collect();
        if !claims.is_empty() {
            text = slots::merge(&text, family, &claims);
        }
        for (vip, change) in of_family() {
            if let SlotAction::Clear(node) = change {
                text = slots::without(&text, *vip, node).unwrap_or(text);
            }
        }
        if text != now {
            let value = if text.is_empty() { Value::Null } else { text.into() };
            annotations.insert(names::announcing(family).to_owned(), value);
        }
    }
    let version = &*entry.version;
    (!annotations.is_empty())
        .then(|| json!({"metadata": {"resourceVersion": version, "annotations": annotations}}))
}

#[cfg(test)]
mod tests;
