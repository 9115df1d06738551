//! Nodes: their labels, taints and conditions.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use purelb_api::node;
use purelb_core::NodeName;
use purelb_core::facts::NodeFacts;
use purelb_core::messages::{FactsUpdate, Input, Source};

use super::watched_kind::{ObjectReading, WatchedKind};

pub(crate) struct NodeKind;

impl WatchedKind for NodeKind {
    type Object = Node;
    type Key = NodeName;
    type Facts = NodeFacts;
    const SOURCE: Source = Source::Nodes;

    fn namespace(&self) -> Option<&str> {
        None
    }

    fn key(&self, meta: &ObjectMeta) -> Option<NodeName> {
        NodeName::new(meta.name.as_deref()?).ok()
    }

    fn read(&mut self, _key: &NodeName, object: &Node) -> ObjectReading<NodeFacts> {
        node::facts(object).map_or(ObjectReading::NotOurs, ObjectReading::Facts)
    }

    fn input(update: FactsUpdate<NodeFacts, NodeName>) -> Input {
        Input::Nodes(update)
    }
}
