//! Nodes: labels for selectors, the UID for the Lease's owner, the word of an
//! administrator that a machine is down or to be left alone, and whether it is well.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use purelb_core::NodeName;
use purelb_core::facts::{NodeFacts, NodeImpairment};

use crate::names;

pub fn facts(node: &Node) -> Option<NodeFacts> {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
    Some(NodeFacts {
        name: NodeName::new(&node.name_any()).ok()?,
        uid: node.uid().unwrap_or_default(),
        labels: node.labels().clone(),
        out_of_service: taints.is_some_and(|t| t.iter().any(|t| t.key == names::TAINT_OUT_OF_SERVICE)),
        // As in Kubernetes, whatever its value.
        excluded: node.labels().contains_key(names::LABEL_EXCLUDE),
        impaired: impaired(node),
        addresses: addresses(node),
    })
}

/// As many as a host has; a Node may be written by whoever may write Nodes.
const MOST_ADDRESSES: usize = 16;

fn addresses(node: &Node) -> BTreeSet<IpAddr> {
    let all = node.status.iter().flat_map(|s| s.addresses.iter().flatten());
    let of_a_host = all.filter(|a| matches!(a.type_.as_str(), "InternalIP" | "ExternalIP"));
    of_a_host.filter_map(|a| a.address.parse::<IpAddr>().ok()).take(MOST_ADDRESSES).collect()
}

/// A condition that is not there says nothing: a Node may be new.
fn impaired(node: &Node) -> Option<NodeImpairment> {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let says = |kind: &str, of: &dyn Fn(&str) -> bool| {
        conditions.is_some_and(|all| all.iter().any(|c| c.type_ == kind && of(&c.status)))
    };
    if says("Ready", &|status| status != "True") {
        return Some(NodeImpairment::NotReady);
    }
    says("NetworkUnavailable", &|status| status == "True").then_some(NodeImpairment::NetworkUnavailable)
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

    #[test]
    fn sees_where_it_can_be_asked() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "192.0.2.7"}, {"type": "InternalIP", "address": "2001:db8::7"},
                {"type": "ExternalIP", "address": "198.51.100.7"}, {"type": "Hostname", "address": "192.0.2.8"},
                {"type": "InternalIP", "address": "nonsense"},
            ]},
        }))
        .unwrap();
        let expected = ["192.0.2.7", "198.51.100.7", "2001:db8::7"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(facts(&node).unwrap().addresses, BTreeSet::from(expected));
    }

    #[test]
    fn sees_the_label_and_the_conditions() {
        let read = |labels: serde_json::Value, conditions: serde_json::Value| {
            let node =
                json!({"metadata": {"name": "n", "labels": labels}, "status": {"conditions": conditions}});
            facts(&serde_json::from_value(node).unwrap()).unwrap()
        };
        let plain = read(json!({}), json!([]));
        assert!(!plain.excluded && plain.impaired.is_none(), "a new Node has neither");
        for value in ["", "true", "false"] {
            let label = json!({"node.kubernetes.io/exclude-from-external-load-balancers": value});
            assert!(read(label, json!([])).excluded, "{value:?}");
        }
        let is = |kind: &str, status: &str| json!([{"type": "MemoryPressure", "status": "True"}, {"type": kind, "status": status}]);
        for (kind, status, impaired) in [
            ("Ready", "True", None),
            ("Ready", "False", Some(NodeImpairment::NotReady)),
            ("Ready", "Unknown", Some(NodeImpairment::NotReady)),
            ("NetworkUnavailable", "False", None),
            ("NetworkUnavailable", "Unknown", None),
            ("NetworkUnavailable", "True", Some(NodeImpairment::NetworkUnavailable)),
        ] {
            assert_eq!(read(json!({}), is(kind, status)).impaired, impaired, "{kind} {status}");
        }
    }
}
