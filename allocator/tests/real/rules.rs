//! What Services get, and every way of being refused.

use anyhow::Result;
use serde_json::{Value, json};

use crate::common::{Cluster, State, local, next_second};
use crate::plane::shared;

fn v4(pool: &str, subnet: &str) -> Value {
    local(json!({"v4pool": {"pool": pool, "subnet": subnet}}))
}

/// Words a refused Service is told; it has no address.
async fn refused(cluster: &Cluster, key: &str, reason: &str) -> Result<String> {
    let State { ips, told, .. } = cluster.told(key, reason).await?;
    assert!(ips.is_empty(), "{key} was refused and has {ips:?}");
    cluster.events_of(key, "AllocationFailed", 1).await?;
    let (status, _, message) = told.unwrap();
    assert_eq!(status, "False");
    Ok(message)
}

#[tokio::test]
async fn explicit_addresses_are_given_or_refused_never_replaced() -> Result<()> {
    let c = shared().await?;
    c.namespace("explicit").await?;
    c.group("explicit", v4("10.1.0.10-10.1.0.20", "10.1.0.0/24")).await?;
    c.group(
        "fenced",
        json!({"local": {"v4pool": {"pool": "10.1.1.10-10.1.1.20", "subnet": "10.1.1.0/24"}},
        "namespaces": ["somebody"], "enforceNamespaces": true}),
    )
    .await?;
    c.service("explicit/a", &[("addresses", "10.1.0.15")]).await?;
    let a = c.has("explicit/a", &["10.1.0.15"]).await?;
    assert_eq!(a.annotations["purelb.io/allocated-from"], "explicit");
    for (key, ip, reason, words) in [
        ("explicit/in-use", "10.1.0.15", "InUse", "in use by Service explicit/a"),
        ("explicit/outside", "10.99.0.1", "OutOfPool", "10.99.0.1 is not in a pool"),
        ("explicit/foreign", "10.1.1.15", "GroupClosed", "is only for the namespaces it lists"),
        ("explicit/garbage", "ten", "BadAddresses", "is not an IP address"),
        ("explicit/edge", "10.1.0.10,10.1.0.11", "BadAddresses", "two IPv4 addresses"),
    ] {
        c.service(key, &[("addresses", ip)]).await?;
        let message = refused(&c, key, reason).await?;
        assert!(message.contains(words), "{key}: {message}");
    }
    c.delete("explicit/a").await?;
    c.has("explicit/in-use", &["10.1.0.15"]).await?;
    Ok(())
}

#[tokio::test]
async fn explicit_addresses_changed_later_move_the_service() -> Result<()> {
    let c = shared().await?;
    c.namespace("mover").await?;
    c.group("mover", v4("10.2.0.10-10.2.0.20", "10.2.0.0/24")).await?;
    c.group("target", v4("10.2.1.10-10.2.1.20", "10.2.1.0/24")).await?;
    c.service("mover/a", &[("service-group", "mover")]).await?;
    c.has("mover/a", &["10.2.0.10"]).await?;
    c.annotate("mover/a", "addresses", json!("10.2.0.19")).await?;
    c.has("mover/a", &["10.2.0.19"]).await?;
    c.service("mover/b", &[("service-group", "mover")]).await?;
    c.has("mover/b", &["10.2.0.10"]).await?;
    c.annotate("mover/a", "addresses", json!("10.2.0.10")).await?;
    let a = c.told("mover/a", "InUse").await?;
    assert_eq!(a.ips, ["10.2.0.19"], "what it has it keeps");
    c.annotate("mover/a", "addresses", Value::Null).await?;
    c.told("mover/a", "AddressAssigned").await?;
    c.annotate("mover/a", "service-group", json!("target")).await?;
    c.annotate("mover/a", "re-evaluate", json!("true")).await?;
    let a = c.has("mover/a", &["10.2.1.10"]).await?;
    assert_eq!(a.annotations["purelb.io/allocated-from"], "target");
    assert!(!a.annotations.contains_key("purelb.io/re-evaluate"), "one shot");
    Ok(())
}

#[tokio::test]
async fn single_and_dual_stack_both_ways_and_large_pools() -> Result<()> {
    let c = shared().await?;
    c.namespace("dual").await?;
    c.group(
        "dual",
        local(json!({
            "v4pool": {"pool": "10.3.0.10-10.3.0.20", "subnet": "10.3.0.0/24"},
            "v6pool": {"pool": "fd00:3::/64", "subnet": "fd00:3::/64"},
        })),
    )
    .await?;
    c.group("only4", v4("10.3.1.10-10.3.1.20", "10.3.1.0/24")).await?;
    let group = [("service-group", "dual")];
    c.service_with("dual/a", &group, |s| {
        s.spec.as_mut().unwrap().ip_family_policy = Some("SingleStack".into());
    })
    .await?;
    c.has("dual/a", &["10.3.0.10"]).await?;
    c.patch("dual/a", json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}})).await?;
    c.has("dual/a", &["10.3.0.10", "fd00:3::1"]).await?;
    c.patch("dual/a", json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}})).await?;
    c.has("dual/a", &["10.3.0.10"]).await?;
    c.service_with("dual/six", &group, |s| {
        let spec = s.spec.as_mut().unwrap();
        (spec.ip_family_policy, spec.ip_families) = (Some("SingleStack".into()), Some(vec!["IPv6".into()]));
    })
    .await?;
    c.has("dual/six", &["fd00:3::1"]).await?;
    let wants = |policy: &str, group: &str, key: &str| {
        let (c, policy, group, key) = (c.clone(), policy.to_owned(), group.to_owned(), key.to_owned());
        async move {
            c.service_with(&key, &[("service-group", &group)], |s| {
                s.spec.as_mut().unwrap().ip_family_policy = Some(policy);
            })
            .await
        }
    };
    wants("PreferDualStack", "only4", "dual/prefer").await?;
    c.has("dual/prefer", &["10.3.1.10"]).await?;
    wants("RequireDualStack", "only4", "dual/require").await?;
    refused(&c, "dual/require", "NoRange").await?;
    let full = i64::MAX;
    c.group_status("dual", "counts do not overflow", |s| {
        s["allocatedIPv6"] == 1 && s["availableIPv6"] == full && s["availableIPv4"] == 10
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn shared_addresses() -> Result<()> {
    let c = shared().await?;
    c.namespace("sharing").await?;
    c.group("sharing", v4("10.4.0.10-10.4.0.20", "10.4.0.0/24")).await?;
    let with_port = |key: &'static str, port: i32| {
        let c = c.clone();
        async move {
            let annotations = [("service-group", "sharing"), ("allow-shared-ip", "k")];
            c.service_with(key, &annotations, |s| {
                s.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = port;
            })
            .await
        }
    };
    with_port("sharing/a", 80).await?;
    c.has("sharing/a", &["10.4.0.10"]).await?;
    with_port("sharing/b", 443).await?;
    c.has("sharing/b", &["10.4.0.10"]).await?;
    with_port("sharing/c", 80).await?;
    let words = refused(&c, "sharing/c", "PortTaken").await?;
    assert!(words.contains("TCP/80") && words.contains("sharing/a"), "{words}");
    c.delete("sharing/a").await?;
    c.has("sharing/c", &["10.4.0.10"]).await?;
    Ok(())
}

/// One node announces an address for all who share it: where traffic must stay on that
/// node, they need the same pods. Also who changes later.
#[tokio::test]
async fn local_traffic_shares_an_address_only_with_the_same_pods() -> Result<()> {
    let c = shared().await?;
    c.namespace("pods").await?;
    c.group("pods", v4("10.10.0.10-10.10.0.20", "10.10.0.0/24")).await?;
    let with = |key: &'static str, port: i32, app: &'static str, policy: &'static str| {
        let c = c.clone();
        async move {
            let annotations = [("service-group", "pods"), ("allow-shared-ip", "k")];
            c.service_with(key, &annotations, |s| {
                let spec = s.spec.as_mut().unwrap();
                spec.ports.as_mut().unwrap()[0].port = port;
                spec.selector = Some([("app".to_owned(), app.to_owned())].into());
                spec.external_traffic_policy = Some(policy.to_owned());
            })
            .await
        }
    };
    with("pods/a", 80, "a", "Local").await?;
    c.has("pods/a", &["10.10.0.10"]).await?;
    with("pods/same", 81, "a", "Local").await?;
    c.has("pods/same", &["10.10.0.10"]).await?;
    with("pods/anywhere", 82, "b", "Cluster").await?;
    c.has("pods/anywhere", &["10.10.0.10"]).await?;
    with("pods/other", 83, "b", "Local").await?;
    let words = refused(&c, "pods/other", "OtherPods").await?;
    assert!(words.contains("10.10.0.10") && words.contains("externalTrafficPolicy: Local"), "{words}");
    // Let in, and then changed: it does not stay.
    c.patch("pods/anywhere", json!({"spec": {"externalTrafficPolicy": "Local"}})).await?;
    c.until("pods/anywhere", "it has left", |s| s.ips.is_empty()).await?;
    refused(&c, "pods/anywhere", "OtherPods").await?;
    c.has("pods/a", &["10.10.0.10"]).await?;
    c.patch("pods/anywhere", json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await?;
    c.has("pods/anywhere", &["10.10.0.10"]).await?;
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/allocation.md"))?;
    assert!(guide.contains("\n| OtherPods | "), "docs/allocation.md explains it");
    Ok(())
}

#[tokio::test]
async fn exhausted_pools_recover_in_order_of_creation() -> Result<()> {
    let c = shared().await?;
    c.namespace("full").await?;
    c.group("full", v4("10.5.0.10-10.5.0.11", "10.5.0.0/24")).await?;
    let group = [("service-group", "full")];
    for name in ["a", "b"] {
        c.service(&format!("full/{name}"), &group).await?;
        c.has_some(&format!("full/{name}")).await?;
    }
    // Names against the order of creation.
    for name in ["z-first", "y-second"] {
        c.service(&format!("full/{name}"), &group).await?;
        let words = refused(&c, &format!("full/{name}"), "Exhausted").await?;
        assert!(words.contains("no free IPv4 address (all 2 in use)"), "{words}");
        next_second().await?;
    }
    c.delete("full/a").await?;
    c.has("full/z-first", &["10.5.0.10"]).await?;
    assert!(c.state("full/y-second").await?.ips.is_empty());
    c.edit_group("full", json!({"local": {"v4pool": {"pool": "10.5.0.10-10.5.0.12"}}})).await?;
    c.has("full/y-second", &["10.5.0.12"]).await?;
    c.events_of("full/y-second", "AllocationFailed", 1).await?;
    Ok(())
}

#[tokio::test]
async fn released_on_type_change_and_taken_again() -> Result<()> {
    let c = shared().await?;
    c.namespace("types").await?;
    c.group("types", v4("10.6.0.10-10.6.0.20", "10.6.0.0/24")).await?;
    c.service("types/a", &[("service-group", "types")]).await?;
    c.has("types/a", &["10.6.0.10"]).await?;
    c.patch("types/a", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await?;
    c.until("types/a", "the marks come off", |s| !s.annotations.contains_key("purelb.io/allocated-by"))
        .await?;
    c.events_of("types/a", "AddressReleased", 1).await?;
    c.service("types/b", &[("service-group", "types")]).await?;
    c.has("types/b", &["10.6.0.10"]).await?;
    c.patch("types/a", json!({"spec": {"type": "LoadBalancer"}})).await?;
    c.has("types/a", &["10.6.0.11"]).await?;
    // Another class, which only another type in between allows: somebody else's now.
    c.patch("types/a", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await?;
    c.patch("types/a", json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}}))
        .await?;
    c.service("types/c", &[("service-group", "types"), ("addresses", "10.6.0.11")]).await?;
    c.has("types/c", &["10.6.0.11"]).await?;
    // The address is free before the write that says so has reached the Service.
    c.until("types/a", "the marks come off", |s| {
        s.ips.is_empty() && !s.annotations.contains_key("purelb.io/allocated-by")
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn foreign_classes_are_untouched_and_those_without_are_ours_by_setting() -> Result<()> {
    let c = shared().await?;
    c.namespace("classes").await?;
    c.group("classes", v4("10.7.0.10-10.7.0.20", "10.7.0.0/24")).await?;
    let group = [("service-group", "classes")];
    c.service_with("classes/foreign", &group, |s| {
        s.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into());
    })
    .await?;
    let before = c.services("classes").get("foreign").await?;
    c.service_with("classes/none", &group, |s| s.spec.as_mut().unwrap().load_balancer_class = None).await?;
    c.has("classes/none", &["10.7.0.10"]).await?;
    let after = c.services("classes").get("foreign").await?;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version, "never touched");
    Ok(())
}

#[tokio::test]
async fn the_deprecated_field_is_honoured_with_a_warning() -> Result<()> {
    let c = shared().await?;
    c.namespace("oldfield").await?;
    c.group("oldfield", v4("10.8.0.10-10.8.0.20", "10.8.0.0/24")).await?;
    c.service_with("oldfield/a", &[], |s| {
        s.spec.as_mut().unwrap().load_balancer_ip = Some("10.8.0.18".into());
    })
    .await?;
    c.has("oldfield/a", &["10.8.0.18"]).await?;
    c.events_of("oldfield/a", "DeprecationWarning", 1).await?;
    let spec = c.services("oldfield").get("a").await?.spec.unwrap();
    assert_eq!(spec.load_balancer_ip.as_deref(), Some("10.8.0.18"), "the spec is the user's");
    Ok(())
}
