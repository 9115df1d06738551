//! Announcing slots: our entries in the Services' annotations, beside those of others.
//!
//! Wishes are gathered per Service and written together: one PATCH, made for the
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
use purelb_core::facts::Slot;
use purelb_core::{Family, IfName, NodeName, ObjectKey, Vip};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::book::{Book, Entry};
use super::failure::Failure;
use super::lane::Lane;

/// Writes under way at once: enough for the server's pace, few enough to leave it room.
const AT_ONCE: usize = 8;
/// For one try.
const TIMEOUT: Duration = Duration::from_secs(3);
const TRIES: usize = 5;

#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) service: ObjectKey,
    pub(crate) vip: Vip,
    pub(crate) change: Change,
}

/// What is to be said of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// We announce it there.
    Claim(IfName),
    /// That node does not announce it any more.
    Clear(NodeName),
}

pub(crate) struct Slots {
    pub(crate) node: NodeName,
    pub(crate) classes: Classes,
    pub(crate) book: Arc<Book>,
    pub(crate) lane: Arc<Lane>,
}

type Wanted = BTreeMap<Vip, Change>;

impl Slots {
    /// Until the queue is closed and everything in it was tried.
    pub(crate) async fn run(self, mut wishes: mpsc::Receiver<Wish>) {
        let mut waiting: BTreeMap<ObjectKey, Wanted> = BTreeMap::new();
        let mut busy: std::collections::BTreeSet<ObjectKey> = Default::default();
        let mut writes = FuturesUnordered::new();
        let mut open = true;
        loop {
            while writes.len() < AT_ONCE {
                // One write per Service at a time: two would only conflict.
                let Some(key) = waiting.keys().find(|k| !busy.contains(*k)).cloned() else { break };
                let wanted = waiting.remove(&key).unwrap_or_default();
                busy.insert(key.clone());
                let this = &self;
                writes.push(async move {
                    this.put(&key, &wanted).await;
                    key
                });
            }
            if !open && writes.is_empty() && waiting.is_empty() {
                return;
            }
            tokio::select! {
                Some(key) = writes.next() => drop(busy.remove(&key)),
                wish = wishes.recv(), if open => {
                    let mut next = wish;
                    open = next.is_some();
                    while let Some(Wish { service, vip, change }) = next.take() {
                        waiting.entry(service).or_default().insert(vip, change);
                        next = wishes.try_recv().ok();
                    }
                }
            }
        }
    }

    async fn put(&self, key: &ObjectKey, wanted: &Wanted) {
        let counters = self.lane.counters();
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let mut base = self.book.service(key);
        let mut last = None;
        for tried in 0..TRIES {
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

    async fn send(&self, key: &ObjectKey, patch: Value) -> Result<(), Failure> {
        let path = Request::new(Service::url_path(&(), Some(key.namespace())));
        let request = path.patch(key.name(), &PatchParams::default(), &Patch::Merge(patch));
        let request = request.map_err(|e| Failure::Unreadable(e.to_string()))?;
        self.lane.text(request, Instant::now() + TIMEOUT).await.map(drop)
    }

    /// A daemon may list Services, not get them: a list of one.
    async fn fetch(&self, key: &ObjectKey) -> Result<Option<Entry>, Failure> {
        let path = Request::new(Service::url_path(&(), Some(key.namespace())));
        let params = ListParams::default().fields(&format!("metadata.name={}", key.name()));
        let request = path.list(&params).map_err(|e| Failure::Unreadable(e.to_string()))?;
        let list: Listed = self.lane.call(request, Instant::now() + TIMEOUT).await?;
        let found = list.items.first().filter(|s| facts(s, &self.classes).is_some());
        Ok(found.map(Entry::of))
    }
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Service>,
}

/// What to change, if anything.
fn patch(entry: &Entry, node: &NodeName, wanted: &Wanted) -> Option<Value> {
    let mut annotations = Map::new();
    for family in [Family::V4, Family::V6] {
        let of_family = || wanted.iter().filter(|(vip, _)| vip.family() == family);
        if of_family().next().is_none() {
            continue;
        }
        let now = entry.announcing(family);
        let claims = of_family().filter_map(|(vip, change)| match change {
            Change::Claim(interface) => {
                Some((*vip, Slot { node: node.clone(), interface: interface.clone() }))
            }
            Change::Clear(_) => None,
        });
        let mut text = now.to_owned();
        let claims: BTreeMap<Vip, Slot> = claims.collect();
        if !claims.is_empty() {
            text = slots::merge(&text, family, &claims);
        }
        for (vip, change) in of_family() {
            if let Change::Clear(node) = change {
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
