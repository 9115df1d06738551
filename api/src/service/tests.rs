use serde_json::{Value, json};

use super::*;

fn service(spec: Value, annotations: Value) -> Service {
    let object = json!({
        "metadata": {"namespace": "d", "name": "web", "annotations": annotations},
        "spec": spec,
        "status": {"loadBalancer": {"ingress": [
            {"ip": "192.0.2.5", "ipMode": "VIP"}, {"ip": "2001:db8::5"}, {"hostname": "x"}, {"ip": "nonsense"},
        ]}},
    });
    serde_json::from_value(object).unwrap()
}

fn ours() -> Value {
    json!({"purelb.io/allocated-by": "PureLB"})
}

#[test]
fn reads_what_the_allocator_wrote() {
    let annotations = json!({
        "purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "g", "purelb.io/pool-type": "remote",
        "purelb.io/skip-ipv6-dad": "true", "purelb.io/node-affinity": "service-endpoints",
        "purelb.io/announcing-IPv4": "n1,eth0,192.0.2.5", "purelb.io/announcing-IPv6": "n2,eth0,2001:db8::5",
    });
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let read = facts(&service(spec, annotations), &Classes::default()).unwrap();
    assert_eq!(read.key.as_str(), "d/web");
    assert_eq!(read.vips, ["192.0.2.5", "2001:db8::5"].map(|t| t.parse().unwrap()).into());
    assert_eq!(read.group.as_deref(), Some("g"));
    assert!(read.only_local_endpoints && read.prefer_endpoints);
    assert_eq!(read.slots.len(), 2);
}

#[test]
fn foreign_services_are_not_ours() {
    let classes = Classes::default();
    let strict = Classes { default_announcer: false, ..Classes::default() };
    let read = |spec: Value, annotations: Value, classes: &Classes| {
        facts(&service(spec, annotations), classes).is_some()
    };
    let classed = |class: &str| json!({"type": "LoadBalancer", "loadBalancerClass": class});
    assert!(read(json!({"type": "LoadBalancer"}), ours(), &classes));
    assert!(!read(json!({"type": "LoadBalancer"}), ours(), &strict));
    assert!(read(classed("purelb.io/purelbv2"), ours(), &strict));
    assert!(!read(classed("example.com/other"), ours(), &classes));
    assert!(!read(json!({"type": "ClusterIP"}), ours(), &classes));
    assert!(!read(json!({"type": "LoadBalancer"}), json!({}), &classes), "allocated by somebody else");
    assert!(!read(json!({"type": "LoadBalancer"}), json!({"purelb.io/allocated-by": "Other"}), &classes));
}

#[test]
fn the_default_announcer_is_named_in_any_case() {
    for (text, ours) in [
        ("PureLB", true),
        ("purelb", true),
        (" PURELB\n", true),
        ("", false),
        ("true", false),
        ("MetalLB", false),
    ] {
        assert_eq!(names_us(text), ours, "{text:?}");
    }
}
