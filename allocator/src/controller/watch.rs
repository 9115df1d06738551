//! Watches: every change becomes what `Allocations` knows.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use futures::stream::{Stream, StreamExt, select_all};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client, Resource, ResourceExt};
use purelb_api::{ServiceGroup, lease, names};
use purelb_core::{NodeName, ObjectKey};
use tracing::warn;

use super::AllocationController;
use crate::clock;
use crate::kube::service_request;
use crate::kube::watch_backoff::Pause;
use crate::service_groups::News;

/// The namespace whose uid tells one cluster from another: it is made with the cluster,
/// and nobody can delete it.
const CLUSTER: &str = "kube-system";

/// A change of something watched.
pub(super) enum Seen {
    Service(Box<Event<Service>>),
    Group(Box<Event<ServiceGroup>>),
    Lease(Event<Lease>),
    Namespace(Event<PartialObjectMeta<Namespace>>),
    Failed(&'static str, watcher::Error),
}

/// Which kinds were listed completely, and what a list under way has shown so far.
#[derive(Debug, Default)]
pub(super) struct Listing {
    services: List<ObjectKey>,
    groups: List<ObjectKey>,
    leases: List<NodeName>,
    namespaces: List<String>,
}

#[derive(Debug)]
struct List<K> {
    done: bool,
    present: BTreeSet<K>,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self { done: false, present: BTreeSet::new() }
    }
}

impl Listing {
    pub(super) fn complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// Kinds of which nothing is known yet.
    pub(super) fn missing(&self) -> impl Iterator<Item = &'static str> {
        let kinds = [
            ("Services", self.services.done),
            ("ServiceGroups", self.groups.done),
            ("Leases", self.leases.done),
            ("Namespaces", self.namespaces.done),
        ];
        kinds.into_iter().filter(|(_, done)| !done).map(|(kind, _)| kind)
    }
}

type Watch = Pin<Box<dyn Stream<Item = Seen> + Send>>;

fn stream<K>(api: Api<K>, config: watcher::Config, what: &'static str, wrap: fn(Event<K>) -> Seen) -> Watch
where
    K: Resource + Clone + serde::de::DeserializeOwned + Debug + Send + 'static,
{
    let events = watch_objects(api, config).backoff(Pause::default());
    Box::pin(events.map(move |event| event.map_or_else(|e| Seen::Failed(what, e), wrap)))
}

/// All watches, each starting with a complete and current list.
pub(super) fn watch(client: &Client, namespace: &str) -> impl Stream<Item = Seen> + Unpin + use<> {
    let all = watcher::Config::default();
    let leases = watcher::Config::default().labels(names::LEASE_SELECTOR);
    select_all([
        stream(Api::all(client.clone()), all.clone(), "Services", |e| Seen::Service(Box::new(e))),
        stream(Api::all(client.clone()), all.clone(), "ServiceGroups", |e| Seen::Group(Box::new(e))),
        stream(Api::namespaced(client.clone(), namespace), leases, "Leases", Seen::Lease),
        stream(Api::all(client.clone()), all, "Namespaces", Seen::Namespace),
    ])
}

impl AllocationController {
    pub(super) fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Failed(what, error) => warn!(%error, "the watch of {what} broke; listing again"),
            Seen::Service(event) => self.see_service(*event),
            Seen::Group(event) => self.see_group(*event),
            Seen::Lease(event) => self.see_lease(event),
            Seen::Namespace(event) => self.see_namespace(event),
        }
    }

    fn see_service(&mut self, event: Event<Service>) {
        match event {
            Event::Init => self.listing.services.present.clear(),
            Event::InitApply(service) => {
                if let Some(key) = self.know(Arc::new(slim(service))) {
                    self.listing.services.present.insert(key);
                }
            }
            Event::InitDone => {
                let present = std::mem::take(&mut self.listing.services.present);
                self.objects.retain(|key, _| present.contains(key));
                self.book.retain(&present);
                self.listing.services.done = true;
                self.touch_statuses();
            }
            Event::Apply(service) => {
                self.know(Arc::new(slim(service)));
            }
            Event::Delete(service) => {
                let Some(key) = key(&service) else { return };
                if self.objects.get(&key).is_some_and(|known| known.uid() == service.uid()) {
                    self.objects.remove(&key);
                    self.retries.succeeded(&key);
                    self.asks.succeeded(&key);
                    self.unseen.remove(&key);
                    self.fencing.forget(&key);
                    self.book.forget(&key);
                    self.touch_statuses();
                }
            }
        }
    }

    /// Takes a Service in, unless something newer is known. The watch runs behind our
    /// own writes: without this an old status would look like a lost address.
    pub(super) fn know(&mut self, service: Arc<Service>) -> Option<ObjectKey> {
        let key = key(service.as_ref())?;
        let number = |s: &Service| s.resource_version().and_then(|v| v.parse::<u64>().ok());
        if let Some(known) = self.objects.get(&key)
            && known.uid() == service.uid()
            && number(known) >= number(&service)
        {
            return Some(key);
        }
        let ask = service_request::service(&service, &self.classes)?;
        self.book.observe(ask);
        self.objects.insert(key.clone(), service);
        Some(key)
    }

    fn see_group(&mut self, event: Event<ServiceGroup>) {
        match event {
            Event::Init => self.listing.groups.present.clear(),
            Event::InitApply(group) => {
                self.listing.groups.present.extend(key(&group));
                self.know_group(group);
            }
            Event::InitDone => {
                let present = std::mem::take(&mut self.listing.groups.present);
                self.groups.retain(&present);
                self.listing.groups.done = true;
                self.groups_changed = true;
            }
            Event::Apply(group) => self.know_group(group),
            Event::Delete(group) => {
                self.groups.gone(&group);
                self.groups_changed = true;
            }
        }
    }

    fn know_group(&mut self, group: ServiceGroup) {
        match self.groups.seen(group) {
            Some(News::Config) => self.groups_changed = true,
            Some(News::Stranger(event)) => self.send_event(*event),
            None => {}
        }
        self.touch_statuses();
    }

    fn see_lease(&mut self, event: Event<Lease>) {
        let now = clock::now();
        match event {
            Event::Init => self.listing.leases.present.clear(),
            Event::InitApply(object) => {
                self.listing.leases.present.extend(names::node_of_lease(&object.name_any()));
                self.know_lease(&object);
            }
            Event::InitDone => {
                let present = std::mem::take(&mut self.listing.leases.present);
                self.live.retain(&present, now);
                self.live_at = Some(now);
                self.listing.leases.done = true;
            }
            Event::Apply(object) => self.know_lease(&object),
            Event::Delete(object) => {
                if let Some(node) = names::node_of_lease(&object.name_any()) {
                    self.live.gone(&node, now);
                    self.live_at = Some(now);
                }
            }
        }
    }

    fn know_lease(&mut self, object: &Lease) {
        match lease::facts(object) {
            Ok(facts) => {
                let now = clock::now();
                if self.live.seen(&facts, now) {
                    self.live_at = Some(now);
                }
            }
            Err(problem) => tracing::debug!(%problem, "a Lease is passed over"),
        }
    }

    fn see_namespace(&mut self, event: Event<PartialObjectMeta<Namespace>>) {
        match event {
            Event::Init => self.listing.namespaces.present.clear(),
            Event::InitApply(namespace) => {
                self.know_cluster(&namespace);
                self.listing.namespaces.present.insert(namespace.name_any());
            }
            Event::InitDone => {
                self.namespaces = std::mem::take(&mut self.listing.namespaces.present);
                self.listing.namespaces.done = true;
            }
            Event::Apply(namespace) => {
                self.know_cluster(&namespace);
                self.namespaces.insert(namespace.name_any());
            }
            Event::Delete(namespace) => {
                self.namespaces.remove(&namespace.name_any());
            }
        }
        self.touch_statuses();
    }
}

impl AllocationController {
    fn know_cluster(&mut self, namespace: &PartialObjectMeta<Namespace>) {
        if namespace.name_any() == CLUSTER {
            self.cluster_uid = namespace.uid();
        }
    }
}

fn key<K: ResourceExt>(object: &K) -> Option<ObjectKey> {
    ObjectKey::of(&object.namespace()?, &object.name_any()).ok()
}

/// Without what nobody reads here and often is half of it.
fn slim(mut service: Service) -> Service {
    service.metadata.managed_fields = None;
    service
}
