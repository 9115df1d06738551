//! The Leases of all nodes: who lives, and what each announces.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use purelb_api::{lease, names};
use purelb_core::NodeName;
use purelb_core::facts::LeaseFacts;
use purelb_core::messages::{FactsUpdate, Input, Source};

use super::watched_kind::{ObjectReading, WatchedKind};

pub(crate) struct LeaseKind {
    pub(crate) namespace: String,
}

impl WatchedKind for LeaseKind {
    type Object = Lease;
    type Key = NodeName;
    type Facts = LeaseFacts;
    const SOURCE: Source = Source::Leases;

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn labels(&self) -> Option<String> {
        Some(names::LEASE_SELECTOR.to_owned())
    }

    fn key(&self, meta: &ObjectMeta) -> Option<NodeName> {
        names::node_of_lease(meta.name.as_deref()?)
    }

    /// A node's Lease that somebody else holds says nothing of that node.
    fn read(&mut self, key: &NodeName, object: &Lease) -> ObjectReading<LeaseFacts> {
        lease::facts(object).map_or_else(
            |problem| {
                // Whoever writes it may do so every second.
                tracing::debug!(node = %key, %problem, "Lease ignored");
                ObjectReading::NotOurs
            },
            ObjectReading::Facts,
        )
    }

    fn input(update: FactsUpdate<LeaseFacts, NodeName>) -> Input {
        Input::Leases(update)
    }
}
