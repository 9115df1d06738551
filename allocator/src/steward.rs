//! What the leader asks of the daemons: to look again at an address nobody announces,
//! and (a setting) to drain while their Nodes are cordoned.
//!
//! A task of its own beside the reign: a daemon that does not answer holds up nobody's
//! address. Which nodes we drained, each with the uid of its Node, is kept on the leader's
//! Lease, written before the drain is asked for, so that a successor takes them back and
//! an operator's own drain is never undone. Until that list was read nobody is asked to
//! drain: what is written next would forget those on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{Stream, StreamExt, select_all};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client, ResourceExt};
use purelb_api::{lease, names};
use purelb_core::allocation::{DrainStep, Drained, NodeState, drain_steps};
use purelb_core::{NodeName, Vip};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::config::Settings;
use crate::control::Daemons;
use crate::leader::{Guard, LEASE};
use crate::pause::Pause;

/// On the leader's Lease: nodes whose daemons we drained, as `name/uid`.
pub const DRAINED: &str = "purelb.io/drained-nodes";
/// Steps that failed are tried again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// And so the reading of the list of drained nodes.
const SOON: Duration = Duration::from_secs(1);
/// Addresses waiting to be asked about. When full, more are not asked about: to ask is a
/// second look for daemons that watch anyway.
pub const ASKS: usize = 64;
/// So many daemons are asked who should have an address before it is given up.
const DAEMONS: usize = 5;

pub struct Steward {
    client: Client,
    namespace: String,
    drains: bool,
    guard: Guard,
    daemons: Daemons,
    endpoints: BTreeMap<NodeName, String>,
    draining: BTreeMap<NodeName, bool>,
    nodes: BTreeMap<NodeName, NodeState>,
    ours: Drained,
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

impl Steward {
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
            ours: Drained::new(),
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

    async fn step(&mut self) {
        for (node, step) in drain_steps(&self.nodes, &self.draining, &self.ours) {
            let endpoint = self.endpoints.get(&node).cloned();
            let done = match (step, endpoint) {
                (DrainStep::Forget, _) => {
                    let drains = self.draining.get(&node).copied().unwrap_or(false);
                    if drains {
                        warn!(%node, "this Node is not the one we drained, or is gone; its daemon's drain is left alone");
                    }
                    self.ours.remove(&node);
                    self.remember().await.map(|()| drains)
                }
                (_, None) => continue,
                (DrainStep::Drain, Some(endpoint)) => {
                    let uid = self.nodes.get(&node).map(|node| node.uid.clone());
                    self.ours.insert(node.clone(), uid);
                    match self.remember().await {
                        Ok(()) => self
                            .daemons
                            .drain(&node, &endpoint)
                            .await
                            .map(|_| true)
                            .map_err(|e| e.to_string()),
                        Err(why) => Err(why),
                    }
                }
                (DrainStep::Undrain, Some(endpoint)) => {
                    self.daemons.undrain(&node, &endpoint).await.map(|()| false).map_err(|e| e.to_string())
                }
            };
            match done {
                // Its Lease will say so, too; until then it is not asked again.
                Ok(drains) => {
                    info!(%node, ?step, "done");
                    if let Some(draining) = self.draining.get_mut(&node) {
                        *draining = drains;
                    }
                }
                Err(why) => warn!(%node, ?step, why, "the daemon was not asked; trying again"),
            }
        }
    }

    /// An address nobody announces: whoever should is asked to look again.
    async fn look_again(&mut self, ip: Vip) {
        let Some(winner) = self.ask_winner(ip).await else { return };
        let Some(winner) = winner else {
            return warn!(%ip, "nobody announces an address: no node can take it");
        };
        let Some(endpoint) = self.endpoints.get(&winner) else { return };
        match self.daemons.resync(&winner, endpoint).await {
            Ok(changed) => info!(%ip, node = %winner, added = ?changed.added, "asked for a resync"),
            Err(why) => warn!(%ip, node = %winner, %why, "could not ask for a resync"),
        }
    }

    /// Any daemon knows who wins; None: none of those that were asked answers.
    async fn ask_winner(&mut self, ip: Vip) -> Option<Option<NodeName>> {
        self.silent.retain(|node| self.endpoints.contains_key(node));
        let mut whom: Vec<(NodeName, String)> =
            self.endpoints.iter().map(|(node, endpoint)| (node.clone(), endpoint.clone())).collect();
        whom.sort_by_key(|(node, _)| self.silent.contains(node));
        for (node, endpoint) in whom.into_iter().take(DAEMONS) {
            match self.daemons.winner(&endpoint, ip).await {
                Ok(winner) => {
                    self.silent.remove(&node);
                    return Some(winner);
                }
                Err(why) => {
                    warn!(%ip, %node, %why, "nobody announces an address, and this daemon does not say who should");
                    self.silent.insert(node);
                }
            }
        }
        // Next time from the beginning.
        self.silent.clear();
        None
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reads which nodes we drained; what cannot be read is not taken for empty.
    async fn recall(&mut self) {
        match self.leases().get(LEASE).await {
            Ok(lease) => {
                let text = lease.annotations().get(DRAINED).cloned().unwrap_or_default();
                self.ours = text.split(',').filter_map(noted).collect();
                self.recalled = true;
            }
            Err(error) => {
                warn!(%error, "cannot read which nodes were drained by us; no drain is begun or ended")
            }
        }
    }

    /// Writes down which nodes are drained by us, over a version just read: a leader
    /// that was replaced in between gets a conflict.
    async fn remember(&self) -> Result<(), String> {
        let note = |(node, uid): (&NodeName, &Option<String>)| match uid {
            Some(uid) => format!("{node}/{uid}"),
            None => node.to_string(),
        };
        let text = self.ours.iter().map(note).collect::<Vec<_>>().join(",");
        for _ in 0..5 {
            let lease = self.leases().get(LEASE).await.map_err(|e| e.to_string())?;
            self.guard.check().map_err(|e| e.to_string())?;
            let patch = json!({"metadata": {"resourceVersion": lease.resource_version(),
                "annotations": {DRAINED: text}}});
            match self.leases().patch(LEASE, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => return Ok(()),
                // A renewal came in between.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the leader's Lease changes all the time".into())
    }
}

/// `name/uid`, or a name alone.
fn noted(text: &str) -> Option<(NodeName, Option<String>)> {
    let (name, uid) = match text.trim().split_once('/') {
        Some((name, uid)) => (name, Some(uid.to_owned())),
        None => (text.trim(), None),
    };
    Some((NodeName::new(name).ok()?, uid.filter(|uid| !uid.is_empty())))
}

/// Cordoned. The label that keeps a Node out of load balancing is the daemons' to heed, or,
/// by their LBNodeAgent, not: a drain would override that.
fn wants_to_be_left(node: &Node) -> bool {
    node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false)
}
