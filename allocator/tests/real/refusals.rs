//! Every way of being refused: told as condition and as event, in words that name what is
//! wrong, once, also over a restart.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::ListParams;
use purelb_kit::ipam::Provider;
use serde_json::{Value, json};

use crate::common::{Cluster, local, next_second};
use crate::plane::{Allocator, own};

/// Name, annotations, more of its spec, the reason it is told, words of the message.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<Value>, &'a str, &'a str);

fn v4(pool: &str, subnet: &str) -> Value {
    local(json!({"v4pool": {"pool": pool, "subnet": subnet}}))
}

async fn groups(c: &Cluster, socket: &std::path::Path) -> Result<()> {
    c.group("full", v4("10.20.0.10", "10.20.0.0/24")).await?;
    c.group("cidr", v4("10.21.0.0/24", "10.21.0.0/24")).await?;
    c.group("six", local(json!({"v6pool": {"pool": "fd00:20::/64", "subnet": "fd00:20::/64"}}))).await?;
    c.group("backwards", v4("10.22.0.20-10.22.0.10", "10.22.0.0/24")).await?;
    let nobody = json!({"v4pools": [{"pool": "10.23.0.10", "subnet": "10.23.0.0/24"}], "multiPool": true});
    c.group("nobody-there", local(nobody)).await?;
    let with = |mut spec: Value, namespace: &str| {
        spec["namespaces"] = json!([namespace]);
        spec["enforceNamespaces"] = json!(true);
        spec
    };
    c.group("closed", with(v4("10.24.0.10", "10.24.0.0/24"), "elsewhere")).await?;
    c.group("fence", with(v4("10.25.0.10", "10.25.0.0/24"), "fenced")).await?;
    let external = |socket: &std::path::Path| json!({"external": {"provider": "acme", "socket": socket}});
    c.group("away", external(&socket.with_extension("away"))).await?;
    c.group("doubtful", external(socket)).await?;
    next_second().await?;
    c.group("overlapping", v4("10.20.0.0/28", "10.20.0.0/24")).await
}

async fn services(c: &Cluster, namespace: &str) -> Result<Vec<Service>> {
    Ok(c.services(namespace).list(&ListParams::default()).await?.items)
}

#[tokio::test]
async fn every_refusal_is_told_once() -> Result<()> {
    let (plane, c) = own().await?;
    let provider = Provider::new(&["10.20.0.0/24".parse()?]);
    let socket = plane.dir().join("ipam.sock");
    let _serving = provider.serve(&socket)?;
    for namespace in ["refused", "fenced", "calm"] {
        c.namespace(namespace).await?;
    }
    groups(&c, &socket).await?;
    let allocator = Allocator::start(&plane, "first", &[]).await?;
    c.service("refused/holder", &[("service-group", "full"), ("allow-shared-ip", "k")]).await?;
    c.has("refused/holder", &["10.20.0.10"]).await?;
    let both = || Some(json!({"ipFamilyPolicy": "RequireDualStack"}));
    let cases: [Case; 18] = [
        ("no-group", &[("service-group", "nope")], None, "NoSuchGroup", "nope does not exist: create it"),
        ("no-default", &[], None, "NoSuchGroup", "default does not exist: create it"),
        (
            "bad-name",
            &[("service-group", "Not/One")],
            None,
            "BadGroupName",
            "is not the name of a ServiceGroup",
        ),
        (
            "overlap",
            &[("service-group", "overlapping")],
            None,
            "GroupRefused",
            "of ServiceGroup purelb-system/full",
        ),
        ("invalid", &[("service-group", "backwards")], None, "GroupInvalid", "spec.local.v4pool.pool"),
        ("one-family", &[("service-group", "cidr")], both(), "NoRange", "has no IPv6 pool: add one"),
        (
            "no-node",
            &[("service-group", "nobody-there")],
            None,
            "NoEligibleRange",
            "no live node serves the subnet",
        ),
        ("full", &[("service-group", "full")], None, "Exhausted", "all 1 in use"),
        ("in-use", &[("addresses", "10.20.0.10")], None, "InUse", "in use by Service refused/holder"),
        ("port", &[("addresses", "10.20.0.10"), ("allow-shared-ip", "k")], None, "PortTaken", "TCP/80"),
        ("nowhere", &[("addresses", "10.99.0.1")], None, "OutOfPool", "not in a pool of any ServiceGroup"),
        (
            "other-pool",
            &[("service-group", "cidr"), ("addresses", "10.20.0.10")],
            None,
            "OutOfPool",
            "it belongs to ServiceGroup purelb-system/full",
        ),
        ("family", &[("addresses", "fd00:20::5")], None, "WrongFamily", "wants IPv4 only"),
        ("network", &[("addresses", "10.21.0.0")], None, "Excluded", "never given to a Service"),
        ("garbage", &[("addresses", "ten")], None, "BadAddresses", "is not an IP address"),
        (
            "closed",
            &[("service-group", "closed")],
            None,
            "GroupClosed",
            "is only for the namespaces it lists",
        ),
        ("away", &[("service-group", "away")], None, "Provider", "gave nothing"),
        (
            "doubtful",
            &[("service-group", "doubtful"), ("addresses", "10.20.0.10")],
            None,
            "ProviderGaveHeld",
            "which Service refused/holder holds",
        ),
    ];
    let create = async |key: &str, annotations: &[(&str, &str)], more: Option<Value>| {
        c.service_with(key, annotations, |s| {
            let spec = s.spec.as_mut().unwrap();
            spec.ip_family_policy = Some("SingleStack".into());
            if let Some(policy) = more.as_ref().and_then(|m| m["ipFamilyPolicy"].as_str()) {
                spec.ip_family_policy = Some(policy.to_owned());
            }
        })
        .await
    };
    let mut expected = BTreeMap::new();
    for (name, annotations, more, reason, words) in cases {
        create(&format!("refused/{name}"), annotations, more).await?;
        expected.insert(format!("refused/{name}"), (reason, words));
    }
    create("fenced/out", &[("service-group", "cidr")], None).await?;
    expected.insert("fenced/out".into(), ("NamespaceBound", "uses ServiceGroup purelb-system/fence only"));
    for (key, (reason, words)) in &expected {
        let state = c.told(key, reason).await?;
        let (status, _, message) = state.told.unwrap();
        assert!(state.ips.is_empty(), "{key} has {:?}", state.ips);
        assert_eq!(status, "False", "{key}");
        assert!(message.contains(words), "{key}: {message}");
        c.events_of(key, "AllocationFailed", 1).await?;
    }
    let versions = async || -> Result<BTreeMap<String, Option<String>>> {
        let all = [services(&c, "refused").await?, services(&c, "fenced").await?].concat();
        Ok(all.iter().map(|s| (s.name_any(), s.resource_version())).collect())
    };
    let before = versions().await?;
    // A new leader looks at everybody, and so does the change of a group: nobody is told
    // again what he knows.
    allocator.stop().await?;
    let second = Allocator::start(&plane, "second", &[]).await?;
    c.group("poke", v4("10.26.0.10", "10.26.0.0/24")).await?;
    c.service("calm/poke", &[("addresses", "10.26.0.10")]).await?;
    c.has("calm/poke", &["10.26.0.10"]).await?;
    c.events_of("calm/poke", "AddressAssigned", 1).await?;
    assert_eq!(before, versions().await?, "no Service was written");
    for key in expected.keys() {
        c.events_of(key, "AllocationFailed", 1).await?;
    }
    let reasons: std::collections::BTreeSet<&str> = expected.values().map(|(reason, _)| *reason).collect();
    println!(
        "figure: refusals told by condition and event, and again after a restart and an edit | once, no write | {} reasons, once, no write",
        reasons.len()
    );
    assert_eq!(reasons.len(), 17);
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/allocation.md"))?;
    for reason in reasons {
        assert!(guide.contains(&format!("\n| {reason} | ")), "docs/allocation.md does not explain {reason}");
    }
    second.stop().await
}
