//! ServiceGroups: namespaces, overlaps, edits, several ranges.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::common::{Cluster, SYSTEM, local, next_second};
use crate::plane::shared;

fn accepted(status: &Value) -> Value {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|c| c["type"] == "Accepted").unwrap_or_default()
}

#[tokio::test]
async fn namespaces_choose_and_enforce() -> Result<()> {
    let c = shared().await?;
    for namespace in ["team", "team-closed", "nobody"] {
        c.namespace(namespace).await?;
    }
    let pool = |n: u8| json!({"v4pool": {"pool": format!("10.10.{n}.10-10.10.{n}.20"), "subnet": format!("10.10.{n}.0/24")}});
    c.group("team-b", json!({"local": pool(1), "namespaces": ["team", "missing"]})).await?;
    c.group("team-a", json!({"local": pool(2), "namespaces": ["team"], "namespaceDefault": true})).await?;
    c.group("closed", json!({"remote": pool(3), "namespaces": ["team-closed"], "enforceNamespaces": true}))
        .await?;
    c.group_status("closed", "accepted", |s| accepted(s)["status"] == "True").await?;
    c.service("team/a", &[]).await?;
    c.has("team/a", &["10.10.2.10"]).await?;
    c.service("team/named", &[("service-group", "team-b")]).await?;
    c.has("team/named", &["10.10.1.10"]).await?;
    c.service("team-closed/a", &[]).await?;
    let remote = c.has("team-closed/a", &["10.10.3.10"]).await?;
    assert_eq!(remote.annotations["purelb.io/pool-type"], "remote");
    c.service("team-closed/out", &[("service-group", "team-a")]).await?;
    c.told("team-closed/out", "NamespaceBound").await?;
    c.service("nobody/in", &[("service-group", "closed")]).await?;
    c.told("nobody/in", "GroupClosed").await?;
    c.group_status("team-b", "bound to those that exist", |s| s["boundNamespaces"] == json!(["team"]))
        .await?;
    Ok(())
}

#[tokio::test]
async fn overlaps_are_refused_in_both_orders() -> Result<()> {
    let c = shared().await?;
    c.namespace("overlap").await?;
    let wide = local(json!({"v4pool": {"pool": "10.11.0.0/24", "subnet": "10.11.0.0/24"}}));
    let narrow = |n: u8| {
        let pool = format!("10.11.{n}.10-10.11.{n}.20");
        local(json!({"v4pool": {"pool": pool, "subnet": format!("10.11.{n}.0/24")}}))
    };
    c.group("ov-wide", wide).await?;
    c.group_status("ov-wide", "accepted", |s| accepted(s)["status"] == "True").await?;
    next_second().await?;
    c.group("ov-narrow", narrow(0)).await?;
    let status = c.group_status("ov-narrow", "refused", |s| accepted(s)["reason"] == "Overlap").await?;
    let words = accepted(&status)["message"].to_string();
    assert!(words.contains("purelb-system/ov-wide") && words.contains("10.11.0.10-10.11.0.20"), "{words}");
    c.service("overlap/a", &[("service-group", "ov-narrow")]).await?;
    c.told("overlap/a", "GroupRefused").await?;
    // The other order: the narrow one is there first.
    c.group("ov-first", narrow(1)).await?;
    c.group_status("ov-first", "accepted", |s| accepted(s)["status"] == "True").await?;
    next_second().await?;
    c.group("ov-second", local(json!({"v4pool": {"pool": "10.11.1.0/24", "subnet": "10.11.1.0/24"}})))
        .await?;
    c.group_status("ov-second", "refused", |s| accepted(s)["reason"] == "Overlap").await?;
    // The obstacle goes: the Service that waited is served.
    c.drop_group("ov-wide").await?;
    c.has("overlap/a", &["10.11.0.10"]).await?;
    Ok(())
}

#[tokio::test]
async fn edits_take_nothing_away_and_removed_ranges_are_marked() -> Result<()> {
    let c = shared().await?;
    c.namespace("edits").await?;
    c.group("edits", local(json!({"v4pool": {"pool": "10.12.0.10-10.12.0.20", "subnet": "10.12.0.0/24"}})))
        .await?;
    c.service("edits/a", &[("service-group", "edits")]).await?;
    c.has("edits/a", &["10.12.0.10"]).await?;
    c.edit_group("edits", json!({"local": {"v4pool": {"pool": "10.12.0.100-10.12.0.110"}}})).await?;
    let a = c.told("edits/a", "RangeRemoved").await?;
    assert_eq!(a.ips, ["10.12.0.10"]);
    c.events_of("edits/a", "ConfigurationWarning", 1).await?;
    c.service("edits/b", &[("service-group", "edits")]).await?;
    c.has("edits/b", &["10.12.0.100"]).await?;
    c.drop_group("edits").await?;
    c.service("edits/c", &[("service-group", "edits")]).await?;
    c.told("edits/c", "NoSuchGroup").await?;
    assert_eq!(c.state("edits/a").await?.ips, ["10.12.0.10"]);
    assert_eq!(c.state("edits/b").await?.ips, ["10.12.0.100"]);
    Ok(())
}

async fn node_lease(c: &Cluster, node: &str, subnets: &str) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(c.client.clone(), SYSTEM);
    let lease = serde_json::from_value(json!({
        "metadata": {
            "name": format!("purelb-node-{node}"), "namespace": SYSTEM,
            "labels": {"app.kubernetes.io/name": "purelb", "app.kubernetes.io/component": "lbnodeagent"},
            "annotations": {"purelb.io/subnets": subnets},
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 600,
            "renewTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(jiff::Timestamp::now())},
    }))?;
    leases.create(&PostParams::default(), &lease).await?;
    Ok(())
}

#[tokio::test]
async fn multi_pool_grows_and_shrinks_with_live_subnets() -> Result<()> {
    let c = shared().await?;
    c.namespace("multi").await?;
    let pool =
        |n: u8| json!({"pool": format!("10.13.{n}.10-10.13.{n}.20"), "subnet": format!("10.13.{n}.0/24")});
    let pools: Vec<Value> = (1..=3).map(pool).collect();
    c.group("multi", local(json!({"v4pools": pools, "multiPool": true}))).await?;
    c.service("multi/a", &[("service-group", "multi")]).await?;
    c.told("multi/a", "NoEligibleRange").await?;
    node_lease(&c, "m1", "10.13.1.0/24").await?;
    c.has("multi/a", &["10.13.1.10"]).await?;
    node_lease(&c, "m2", "10.13.2.0/24,10.13.3.0/24").await?;
    c.has("multi/a", &["10.13.1.10", "10.13.2.10", "10.13.3.10"]).await?;
    c.service("multi/one", &[("service-group", "multi"), ("multi-pool", "false")]).await?;
    c.has("multi/one", &["10.13.1.11"]).await?;
    let leases: Api<Lease> = Api::namespaced(c.client.clone(), SYSTEM);
    leases.delete("purelb-node-m1", &DeleteParams::default()).await?;
    c.has("multi/a", &["10.13.2.10", "10.13.3.10"]).await?;
    // A range that comes later, in a subnet that is alive already.
    node_lease(&c, "m4", "10.13.4.0/24").await?;
    let pools: Vec<Value> = (1..=4).map(pool).collect();
    c.edit_group("multi", local(json!({"v4pools": pools}))).await?;
    c.has("multi/a", &["10.13.2.10", "10.13.3.10", "10.13.4.10"]).await?;
    assert_eq!(c.state("multi/one").await?.ips, ["10.13.1.11"], "one address stays where it is");
    Ok(())
}

#[tokio::test]
async fn balanced_pools_fill_evenly() -> Result<()> {
    let c = shared().await?;
    c.namespace("balanced").await?;
    let pools: Vec<Value> = (1..=3)
        .map(|n| json!({"pool": format!("10.14.{n}.10-10.14.{n}.20"), "subnet": format!("10.14.{n}.0/24")}))
        .collect();
    c.group("balanced", local(json!({"v4pools": pools, "balancePools": true}))).await?;
    let mut per_range = std::collections::BTreeMap::<String, u32>::new();
    for i in 0..9 {
        let key = format!("balanced/s{i}");
        c.service(&key, &[("service-group", "balanced")]).await?;
        let ip = c.has_some(&key).await?.ips[0].clone();
        *per_range.entry(ip.rsplit_once('.').unwrap().0.to_owned()).or_default() += 1;
    }
    assert!(per_range.len() == 3 && per_range.values().all(|n| *n == 3), "{per_range:?}");
    Ok(())
}

#[tokio::test]
async fn groups_elsewhere_are_told_that_nobody_reads_them() -> Result<()> {
    let c = shared().await?;
    c.namespace("stray").await?;
    let groups: Api<purelb_api::ServiceGroup> = Api::namespaced(c.client.clone(), "stray");
    let stray = serde_json::from_value(json!({"metadata": {"name": "stray", "namespace": "stray"},
        "spec": {"local": {"v4pool": {"pool": "10.15.0.10", "subnet": "10.15.0.0/24"}}}}))?;
    groups.create(&PostParams::default(), &stray).await?;
    c.events_of("stray/stray", "ServiceGroupOutOfScope", 1).await?;
    Ok(())
}
