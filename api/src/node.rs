//! Nodes: labels for selectors, the UID for the Lease's owner, the word of an
//! administrator that a machine is down.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use purelb_core::NodeName;
use purelb_core::facts::NodeFacts;

use crate::names;

pub fn facts(node: &Node) -> Option<NodeFacts> {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
    Some(NodeFacts {
        name: NodeName::new(&node.name_any()).ok()?,
        uid: node.uid().unwrap_or_default(),
        labels: node.labels().clone(),
        out_of_service: taints.is_some_and(|t| t.iter().any(|t| t.key == names::TAINT_OUT_OF_SERVICE)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sees_the_administrators_word() {
        let mut node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "uid": "u", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "nodeshutdown"}]},
        }))
        .unwrap();
        let read = facts(&node).unwrap();
        assert_eq!((read.name.as_str(), read.uid.as_str(), read.labels["zone"].as_str()), ("n1", "u", "a"));
        assert!(read.out_of_service);
        node.spec = None;
        assert!(!facts(&node).unwrap().out_of_service);
    }
}
