//! What the leader asks of the daemons: to look again at an address nobody announces,
//! and (a setting) to drain while their Nodes are cordoned.
//!
//! A task of its own beside the reign: a daemon that does not answer holds up nobody's
//! address. Which nodes we drained is kept on the leader's Lease, written before the
//! drain is asked for, so that a successor takes them back and an operator's own drain
//! is never undone.

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
use purelb_core::allocation::{DrainStep, drain_steps};
use purelb_core::{NodeName, Vip};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::config::Settings;
use crate::control::Daemons;
use crate::leader::{Guard, LEASE};

/// On the leader's Lease: nodes whose daemons we drained.
pub const DRAINED: &str = "purelb.io/drained-nodes";
/// Steps that failed are tried again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// Addresses waiting to be asked about. When full, more are not asked about: the
/// daemons resync by themselves, only later.
pub const ASKS: usize = 64;

pub struct Steward {
    client: Client,
    namespace: String,
    drains: bool,
    guard: Guard,
    daemons: Daemons,
    endpoints: BTreeMap<NodeName, String>,
    draining: BTreeMap<NodeName, bool>,
    leaving: BTreeSet<NodeName>,
    ours: BTreeSet<NodeName>,
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
            leaving: BTreeSet::new(),
            ours: BTreeSet::new(),
            listed: (false, false),
        }
    }

    /// Runs as long as the term lasts.
    pub async fn run(mut self, mut unannounced: mpsc::Receiver<Vip>) {
        self.recall().await;
        let mut seen = self.watch();
        let mut again = Instant::now() + AGAIN;
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
            if self.drains && complete && self.guard.check().is_ok() {
                self.step().await;
            }
            again = Instant::now() + AGAIN;
        }
    }

    fn watch(&self) -> impl Stream<Item = Seen> + Unpin + use<> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let config = watcher::Config::default().labels(names::LEASE_SELECTOR);
        let leases = watch_objects(leases, config).default_backoff();
        let mut streams: Vec<std::pin::Pin<Box<dyn Stream<Item = Seen> + Send>>> =
            vec![Box::pin(leases.map(|e| e.map_or_else(Seen::Failed, |e| Seen::Lease(Box::new(e)))))];
        if self.drains {
            let nodes = watch_objects(Api::<Node>::all(self.client.clone()), watcher::Config::default());
            let wrap = |e: Result<Event<Node>, _>| e.map_or_else(Seen::Failed, |e| Seen::Node(Box::new(e)));
            streams.push(Box::pin(nodes.default_backoff().map(wrap)));
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
                    self.leaving.clear();
                    self.listed.1 = false;
                }
                Event::InitDone => self.listed.1 = true,
                Event::Apply(node) | Event::InitApply(node) => {
                    let Ok(name) = NodeName::new(&node.name_any()) else { return };
                    if wants_to_be_left(&node) {
                        self.leaving.insert(name);
                    } else {
                        self.leaving.remove(&name);
                    }
                }
                Event::Delete(node) => {
                    if let Ok(name) = NodeName::new(&node.name_any()) {
                        self.leaving.remove(&name);
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
        for (node, step) in drain_steps(&self.leaving, &self.draining, &self.ours) {
            let Some(endpoint) = self.endpoints.get(&node).cloned() else { continue };
            let done = match step {
                DrainStep::Forget => {
                    self.ours.remove(&node);
                    self.remember().await
                }
                DrainStep::Drain => {
                    self.ours.insert(node.clone());
                    match self.remember().await {
                        Ok(()) => self.daemons.drain(&endpoint).await.map(drop).map_err(|e| e.to_string()),
                        Err(why) => Err(why),
                    }
                }
                DrainStep::Undrain => self.daemons.undrain(&endpoint).await.map_err(|e| e.to_string()),
            };
            match done {
                // Its Lease will say so, too; until then it is not asked again.
                Ok(()) => {
                    info!(%node, ?step, "asked the daemon");
                    self.draining.insert(node, step == DrainStep::Drain);
                }
                Err(why) => warn!(%node, ?step, why, "the daemon was not asked; trying again"),
            }
        }
    }

    /// An address nobody announces: whoever should is asked to look again.
    async fn look_again(&self, ip: Vip) {
        let Some(anyone) = self.endpoints.values().next() else { return };
        let winner = match self.daemons.winner(anyone, ip).await {
            Ok(winner) => winner,
            Err(why) => return warn!(%ip, %why, "nobody announces an address, and nobody could be asked why"),
        };
        let Some(winner) = winner else {
            return warn!(%ip, "nobody announces an address: no node can take it");
        };
        let Some(endpoint) = self.endpoints.get(&winner) else { return };
        match self.daemons.resync(endpoint).await {
            Ok(changed) => info!(%ip, node = %winner, added = ?changed.added, "asked for a resync"),
            Err(why) => warn!(%ip, node = %winner, %why, "could not ask for a resync"),
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn recall(&mut self) {
        if let Ok(Some(lease)) = self.leases().get_opt(LEASE).await {
            let text = lease.annotations().get(DRAINED).cloned().unwrap_or_default();
            self.ours = text.split(',').filter_map(|name| NodeName::new(name.trim()).ok()).collect();
        }
    }

    /// Writes down which nodes are drained by us, over a version just read: a leader
    /// that was replaced in between gets a conflict.
    async fn remember(&self) -> Result<(), String> {
        let text = self.ours.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
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

fn wants_to_be_left(node: &Node) -> bool {
    let cordoned = node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
    cordoned || node.labels().contains_key(names::LABEL_EXCLUDE)
}
