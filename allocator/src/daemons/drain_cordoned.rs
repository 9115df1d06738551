//! Drains the daemons of cordoned Nodes, and ends the drain when the Node is no longer
//! cordoned.
//!
//! Which nodes we drained, each with the uid of its Node, is kept on the leader's
//! Lease, written before the drain is asked for, so that a successor takes them back and
//! an operator's own drain is never undone. Until that list was read nobody is asked to
//! drain: what is written next would forget those on it.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use purelb_core::NodeName;
use purelb_core::allocation::{DrainStep, drain_steps};
use serde_json::json;
use tracing::{info, warn};

use super::DaemonManager;
use crate::leader::LEASE;

/// On the leader's Lease: nodes whose daemons we drained, as `name/uid`.
pub const DRAINED: &str = "purelb.io/drained-nodes";

impl DaemonManager {
    pub(super) async fn step(&mut self) {
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

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reads which nodes we drained; what cannot be read is not taken for empty.
    pub(super) async fn recall(&mut self) {
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
pub(super) fn wants_to_be_left(node: &Node) -> bool {
    node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false)
}
