//! EndpointSlices: on which nodes a Service takes traffic.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use purelb_core::facts::EndpointFacts;
use purelb_core::{NodeName, ObjectKey};

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// `None` for a slice that belongs to no Service.
pub fn facts(slice: &EndpointSlice) -> Option<EndpointFacts> {
    let namespace = slice.namespace()?;
    let service = ObjectKey::of(&namespace, slice.labels().get(SERVICE_NAME)?).ok()?;
    let nodes = slice.endpoints.iter().flatten().filter(|e| takes_traffic(e));
    let nodes = nodes.filter_map(|e| NodeName::new(e.node_name.as_deref()?).ok()).collect();
    Some(EndpointFacts { slice: ObjectKey::of(&namespace, &slice.name_any()).ok()?, service, nodes })
}

/// Ready, or still serving while it terminates. Both absent mean yes, as the
/// EndpointSlice API defines it.
fn takes_traffic(endpoint: &Endpoint) -> bool {
    let Some(conditions) = &endpoint.conditions else {
        return true;
    };
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    ready || (serving && conditions.terminating.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_that_are_ready_or_still_serving() {
        let endpoint = |node: &str, conditions| json!({"addresses": ["10.0.0.1"], "nodeName": node, "conditions": conditions});
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"namespace": "d", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [
                endpoint("ready", json!({"ready": true})),
                endpoint("unsaid", json!({})),
                endpoint("leaving", json!({"ready": false, "serving": true, "terminating": true})),
                endpoint("gone", json!({"ready": false, "serving": false, "terminating": true})),
                endpoint("sick", json!({"ready": false, "serving": false, "terminating": false})),
                endpoint("published", json!({"ready": true, "serving": false, "terminating": false})),
                {"addresses": ["10.0.0.9"], "conditions": {"ready": true}},
            ],
        }))
        .unwrap();
        let read = facts(&slice).unwrap();
        assert_eq!((read.slice.as_str(), read.service.as_str()), ("d/web-1", "d/web"));
        let nodes: Vec<&str> = read.nodes.iter().map(NodeName::as_str).collect();
        assert_eq!(nodes, ["leaving", "published", "ready", "unsaid"]);
        let orphan = EndpointSlice { metadata: Default::default(), ..slice };
        assert_eq!(facts(&orphan), None);
    }
}
