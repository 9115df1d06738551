use serde_json::{Value, json};

use super::*;

fn mk(spec: Value, annotations: Value, ingress: Value) -> Service {
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "a", "uid": "u", "annotations": annotations},
        "spec": spec,
        "status": {"loadBalancer": {"ingress": ingress}},
    }))
    .unwrap()
}

fn read(spec: Value, annotations: Value, ingress: Value, default_announcer: bool) -> ServiceAsk {
    let classes = Classes { class: "us".into(), default_announcer };
    service(&mk(spec, annotations, ingress), &classes).unwrap()
}

#[test]
fn whose_it_is() {
    let lb = |class: Value| json!({"type": "LoadBalancer", "loadBalancerClass": class});
    let ours = json!({"purelb.io/allocated-by": "PureLB"});
    let ip = json!([{"ip": "192.0.2.1"}]);
    let table = [
        (json!({"type": "ClusterIP"}), json!({}), json!([]), true, ServiceOwner::NoLoadBalancer),
        (lb(json!("us")), json!({}), json!([]), false, ServiceOwner::Ours),
        (lb(json!("us")), json!({}), ip.clone(), false, ServiceOwner::Ours),
        (lb(json!("them")), ours.clone(), ip.clone(), true, ServiceOwner::Foreign),
        (lb(Value::Null), json!({}), json!([]), true, ServiceOwner::Ours),
        (lb(Value::Null), json!({}), json!([]), false, ServiceOwner::Foreign),
        (lb(Value::Null), json!({}), ip.clone(), true, ServiceOwner::Foreign),
        (lb(Value::Null), ours, ip, true, ServiceOwner::Ours),
    ];
    for (spec, annotations, ingress, default_announcer, expected) in table {
        let found = read(spec.clone(), annotations.clone(), ingress, default_announcer).whose;
        assert_eq!(found, expected, "{spec} {annotations} {default_announcer}");
    }
}

#[test]
fn families_by_what_the_server_settled() {
    let with = |policy: &str, families: Value| {
        read(
            json!({"type": "LoadBalancer", "ipFamilyPolicy": policy, "ipFamilies": families}),
            json!({}),
            json!([]),
            true,
        )
        .families
    };
    assert_eq!(with("SingleStack", json!(["IPv6"])), Families::One(Family::V6));
    assert_eq!(with("PreferDualStack", json!(["IPv4"])), Families::One(Family::V4));
    assert_eq!(with("PreferDualStack", json!(["IPv6", "IPv4"])), Families::Either { first: Family::V6 });
    assert_eq!(with("RequireDualStack", json!(["IPv4", "IPv6"])), Families::Both { first: Family::V4 });
}

#[test]
fn explicit_addresses_and_the_deprecated_field() {
    let with = |annotations: Value, field: Value| {
        let found =
            read(json!({"type": "LoadBalancer", "loadBalancerIP": field}), annotations, json!([]), true);
        (found.explicit, found.deprecated_field)
    };
    let ip = |text: &str| text.parse::<Vip>().unwrap();
    let both = json!({"purelb.io/addresses": "192.0.2.1"});
    assert_eq!(with(both, json!("192.0.2.9")), (Ok(vec![ip("192.0.2.1")]), false), "the annotation counts");
    assert_eq!(with(json!({}), json!("192.0.2.9")), (Ok(vec![ip("192.0.2.9")]), true));
    assert!(with(json!({}), json!("nine")).0.unwrap_err().contains("spec.loadBalancerIP"));
    assert_eq!(with(json!({}), Value::Null), (Ok(Vec::new()), false));
}
