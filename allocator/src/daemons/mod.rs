//! What the leader asks of the daemons: to look again at an address nobody announces,
//! and (a setting) to drain while their Nodes are cordoned.
//!
//! Runs beside the controller: a daemon that does not answer holds up nobody's address.

pub mod client;
mod drain_cordoned;
mod resync;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{Stream, StreamExt, select_all};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client, ResourceExt};
use purelb_api::{lease, names};
use purelb_core::allocation::{DrainedNodes, NodeState};
use purelb_core::{NodeName, Vip};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::kube::watch_backoff::Pause;
use crate::leader::Guard;
use crate::settings::Settings;
use client::Daemons;
use drain_cordoned::wants_to_be_left;

/// Steps that failed are tried again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// And so the reading of the list of drained nodes.
const SOON: Duration = Duration::from_secs(1);
/// Addresses waiting to be asked about. When full, more are not asked about: to ask is a
/// second look for daemons that watch anyway.
pub const ASKS: usize = 64;
pub struct DaemonManager {
    client: Client,
    namespace: String,
    drains: bool,
    guard: Guard,
    daemons: Daemons,
    endpoints: BTreeMap<NodeName, String>,
    draining: BTreeMap<NodeName, bool>,
    nodes: BTreeMap<NodeName, NodeState>,
    ours: DrainedNodes,
    /// `ours` is what the Lease says.
    recalled: bool,
    /// Daemons that could not be reached when last asked: others first.
    silent: BTreeSet<NodeName>,
    listed: (bool, bool),
}

enum Seen {
    Lease(Box<Event<Lease>>),
    Node(Box<Event<Node>>),
    Failed(watcher::Error),
}

impl DaemonManager {
    pub fn new(client: Client, settings: &Settings, guard: Guard) -> Self {
        Self {
            daemons: Daemons::new(client.clone(), &settings.namespace),
            namespace: settings.namespace.clone(),
            drains: settings.drain_cordoned,
            guard,
            client,
            endpoints: BTreeMap::new(),
            draining: BTreeMap::new(),
            nodes: BTreeMap::new(),
            ours: DrainedNodes::new(),
            recalled: false,
            silent: BTreeSet::new(),
            listed: (false, false),
        }
    }

    /// Runs as long as the term lasts.
    pub async fn run(mut self, mut unannounced: mpsc::Receiver<Vip>) {
        let mut seen = self.watch();
        let mut again = Instant::now();
        loop {
            tokio::select! {
                Some(event) = seen.next() => {
                    self.see(event);
                    while let Some(Some(event)) = futures::FutureExt::now_or_never(seen.next()) {
                        self.see(event);
                    }
                }
                Some(ip) = unannounced.recv() => self.look_again(ip).await,
                () = sleep_until(again) => {}
            }
            let complete = self.listed.0 && (self.listed.1 || !self.drains);
            if self.drains && !self.recalled {
                self.recall().await;
            }
            if self.drains && self.recalled && complete && self.guard.check().is_ok() {
                self.step().await;
            }
            again = Instant::now() + if self.drains && !self.recalled { SOON } else { AGAIN };
        }
    }

    fn watch(&self) -> impl Stream<Item = Seen> + Unpin + use<> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let config = watcher::Config::default().labels(names::LEASE_SELECTOR);
        let leases = watch_objects(leases, config).backoff(Pause::default());
        let mut streams: Vec<std::pin::Pin<Box<dyn Stream<Item = Seen> + Send>>> =
            vec![Box::pin(leases.map(|e| e.map_or_else(Seen::Failed, |e| Seen::Lease(Box::new(e)))))];
        if self.drains {
            let nodes = watch_objects(Api::<Node>::all(self.client.clone()), watcher::Config::default());
            let wrap = |e: Result<Event<Node>, _>| e.map_or_else(Seen::Failed, |e| Seen::Node(Box::new(e)));
            streams.push(Box::pin(nodes.backoff(Pause::default()).map(wrap)));
        }
        select_all(streams)
    }

    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Failed(error) => warn!(%error, "a watch for the daemons' control API broke; listing again"),
            Seen::Lease(event) => self.see_lease(*event),
            Seen::Node(event) => match *event {
                // Until the list is complete a Node that is not in it says nothing.
                Event::Init => {
                    self.nodes.clear();
                    self.listed.1 = false;
                }
                Event::InitDone => self.listed.1 = true,
                Event::Apply(node) | Event::InitApply(node) => {
                    let Ok(name) = NodeName::new(&node.name_any()) else { return };
                    let uid = node.uid().unwrap_or_default();
                    self.nodes.insert(name, NodeState { uid, leaving: wants_to_be_left(&node) });
                }
                Event::Delete(node) => {
                    if let Ok(name) = NodeName::new(&node.name_any()) {
                        self.nodes.remove(&name);
                    }
                }
            },
        }
    }

    fn see_lease(&mut self, event: Event<Lease>) {
        match event {
            Event::Init => {
                self.endpoints.clear();
                self.draining.clear();
                self.listed.0 = false;
            }
            Event::InitDone => self.listed.0 = true,
            Event::Apply(object) | Event::InitApply(object) => {
                let Ok(facts) = lease::facts(&object) else { return };
                self.draining.insert(facts.node.clone(), facts.draining.is_some());
                match facts.control_endpoint {
                    Some(endpoint) => self.endpoints.insert(facts.node, endpoint),
                    None => self.endpoints.remove(&facts.node),
                };
            }
            Event::Delete(object) => {
                if let Some(node) = names::node_of_lease(&object.name_any()) {
                    self.endpoints.remove(&node);
                    self.draining.remove(&node);
                }
            }
        }
    }
}
