//! Seeing it: Debian's Prometheus reads real daemons and a real allocator in the lab,
//! with the shipped rules, while faults come and go; and everything shipped for
//! monitoring speaks of metrics that these programs really export.

mod exported;
mod files;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::PostParams;
use purelb_e2e::monitor::{Allocator, Prometheus, State, Target};
use purelb_e2e::{Cluster, shared_plane, vip};
use purelb_kit::controlplane::fixtures::service;
use purelb_kit::lab::{Cut, Lab};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);
/// Addresses of the pool that runs out.
const POOL: usize = 4;

/// A Service for the allocator to serve.
async fn ask_for(cluster: &Cluster<'_>, name: &str, group: &str) -> Result<()> {
    let mut object = service(&cluster.namespace, name);
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert("purelb.io/service-group".to_owned(), group.to_owned());
    object.spec.as_mut().context("a Service has a spec")?.load_balancer_class = Some(cluster.class.clone());
    cluster.services().create(&PostParams::default(), &object).await.context("creating a Service")?;
    Ok(())
}

async fn group(cluster: &Cluster<'_>, name: &str, pool: &str, subnet: &str) -> Result<()> {
    let spec = json!({"local": {"v4pool": {"pool": pool, "subnet": subnet, "aggregation": "default"}}});
    cluster.group(name, spec).await
}

/// Daemons that start from here on serve their metrics with a certificate for this node,
/// which is to be trusted.
fn with_tls(cluster: &mut Cluster<'_>, name: &str) -> Result<PathBuf> {
    let address = cluster.node(name).management_address().context("a node has one")?;
    let made = rcgen::generate_simple_self_signed([address.to_string()])?;
    let (certificate, key) = (cluster.lab.dir().join("metrics.crt"), cluster.lab.dir().join("metrics.key"));
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    cluster.settings.toml = format!("[metrics]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    Ok(certificate)
}

/// How soon an alert followed its fault and its end, on stderr also when all is well.
fn figure(fault: &str, alert: &str, fired: Duration, resolved: Duration) {
    let (fired, resolved) = (fired.as_secs_f64(), resolved.as_secs_f64());
    let words =
        format!("figure: {fault} | {alert} | fired after {fired:.1} s, resolved after {resolved:.1} s");
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// Services from each kind of group that is counted apart: of several ranges, one of which
/// has not enough for all; balanced; and of a provider that does not answer.
async fn every_kind_of_pool(cluster: &Cluster<'_>) -> Result<()> {
    let range = |pool: &str, subnet: &str| json!({"pool": pool, "subnet": subnet, "aggregation": "default"});
    let multi = [range("192.0.2.120", "192.0.2.0/24"), range("192.0.2.160/28", "192.0.2.0/24")];
    let balanced = [range("192.0.2.130/31", "192.0.2.0/24"), range("192.0.2.140/31", "192.0.2.0/24")];
    let nobody = cluster.lab.dir().join("nobody.sock");
    let groups = [
        ("multi", json!({"local": {"v4pools": multi, "multiPool": true}})),
        ("balanced", json!({"local": {"v4pools": balanced, "balancePools": true}})),
        ("external", json!({"external": {"provider": "lab", "socket": nobody, "announce": "local"}})),
    ];
    for (name, spec) in groups {
        cluster.group(name, spec).await?;
        ask_for(cluster, &format!("from-{name}"), name).await?;
    }
    ask_for(cluster, "from-multi-too", "multi").await?;
    Ok(())
}

#[tokio::test]
async fn alerts_fire_and_resolve_for_injected_faults() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["192.0.2.0/24"])
        .segment("island", ["198.51.100.0/24"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .node("c", ["island"])
        .node("monitor", Vec::<String>::new());
    let mut cluster = Cluster::new(shared_plane().await?, lab).await?;
    for name in ["a", "b"] {
        cluster.join(name).await?;
    }
    // One of them serves its metrics over TLS.
    let trust = with_tls(&mut cluster, "c")?;
    cluster.join("c").await?;
    let allocator = Allocator::start(&cluster, "monitor").await?;
    let monitor = cluster.node("monitor");
    let daemon = |name, trust| Target { job: "purelbd", instance: name, node: cluster.node(name), trust };
    let targets = [
        daemon("a", None),
        daemon("b", None),
        daemon("c", Some(trust)),
        Target { job: "purelb-allocator", instance: "allocator", node: monitor.clone(), trust: None },
    ];
    let prometheus = Prometheus::start(monitor, &targets, &files::rules())?;

    // The path of a Service through all of it, seen by nobody but Prometheus.
    group(&cluster, "default", &format!("192.0.2.100-192.0.2.{}", 99 + POOL), "192.0.2.0/24").await?;
    group(&cluster, "island", "198.51.100.100-198.51.100.119", "198.51.100.0/24").await?;
    ask_for(&cluster, "web", "default").await?;
    ask_for(&cluster, "lonely", "island").await?;
    let (web, lonely) = (vip("192.0.2.100"), vip("198.51.100.100"));
    for ip in [web, lonely] {
        let holder = cluster.one_holder(ip).await;
        holder.with_context(|| format!("the allocator said:\n{}", allocator.log()))?;
    }
    let settled = |prometheus: &Prometheus| {
        let up = prometheus.query("sum(up)")?;
        let announced = prometheus.query("sum(purelb_vip_announced)")?;
        let pools = prometheus.query("sum(purelb_address_pool_family_in_use)")?;
        let firing = prometheus.firing()?;
        let good = (up.as_slice(), announced.as_slice(), pools.as_slice()) == (&[4.0], &[2.0], &[2.0]);
        let seen = format!("up {up:?}, announced {announced:?}, in use {pools:?}, firing {firing:?}");
        Ok(if good && firing.is_empty() { Ok(()) } else { Err(seen) })
    };
    prometheus.until("all is read, and nothing fires", PATIENCE, settled).await?;

    // What dashboards make of histograms is a number.
    let middle = "histogram_quantile(0.5, sum by (le) (purelb_event_to_applied_seconds_bucket))";
    let times = prometheus.query(middle)?;
    ensure!(times.iter().any(|t| *t > 0.0 && *t < 5.0), "{middle}: {times:?}");

    // A node cut off from the API server gives up, says so, and comes back.
    cluster.node("a").cut(Cut::Api)?;
    let fired = prometheus.alert(State::Firing, "PureLBLeaseUnhealthy", &[("instance", "a")]).await?;
    cluster.node("a").heal(&Cut::Api)?;
    let resolved = prometheus.alert(State::Resolved, "PureLBLeaseUnhealthy", &[]).await?;
    figure("a node is cut off from the API server", "PureLBLeaseUnhealthy", fired, resolved);
    // That it had come to the edge is remembered for some minutes.
    prometheus.alert(State::Firing, "PureLBFenceMarginLow", &[("instance", "a")]).await?;

    // No cable anywhere: nobody can have the address.
    for name in ["a", "b"] {
        cluster.node(name).pull_carrier("lan")?;
    }
    let fired = prometheus.alert(State::Firing, "PureLBVipWithoutOwner", &[("ip", "192.0.2.100")]).await?;
    for name in ["a", "b"] {
        cluster.node(name).restore_carrier("lan")?;
    }
    let resolved = prometheus.alert(State::Resolved, "PureLBVipWithoutOwner", &[]).await?;
    figure("every candidate loses its carrier", "PureLBVipWithoutOwner", fired, resolved);
    cluster.one_holder(web).await?;

    // A pool runs full, and one Service too many is refused.
    for n in 1..=POOL {
        ask_for(&cluster, &format!("more{n}"), "default").await?;
    }
    let full = [("pool", "default"), ("family", "ipv4")];
    let fired = prometheus.alert(State::Firing, "PureLBPoolNearlyExhausted", &full).await?;
    let refused = |prometheus: &Prometheus| {
        let seen =
            prometheus.query("sum(purelb_address_pool_allocation_rejected_total{pool=\"default\"})")?;
        Ok(if seen.first().is_some_and(|n| *n >= 1.0) { Ok(()) } else { Err(format!("{seen:?}")) })
    };
    prometheus.until("the refusal is counted", PATIENCE, refused).await?;
    // By now every metric has been touched: everything shipped speaks of what is there.
    every_kind_of_pool(&cluster).await?;
    let counted = |prometheus: &Prometheus| {
        let names = ["multipool_allocations", "multipool_partial", "balance_pools_allocations"]
            .map(|name| format!("sum(purelb_address_pool_{name}_total)"));
        let calls = "sum(purelb_allocator_sidecar_rpc_total)".to_owned();
        let seen: Vec<usize> =
            names.iter().chain([&calls]).map(|n| Ok(prometheus.query(n)?.len())).collect::<Result<_>>()?;
        Ok(if seen.iter().all(|n| *n == 1) { Ok(()) } else { Err(format!("{seen:?}")) })
    };
    prometheus.until("every kind of pool is counted", PATIENCE, counted).await?;
    let mut texts = vec![allocator.metrics()?];
    for name in ["a", "b"] {
        let answer = cluster.daemon(name).metrics()?;
        texts.push(answer.split_once("\r\n\r\n").context("an HTTP answer")?.1.to_owned());
    }
    exported::check(&texts)?;
    for n in 1..=POOL {
        cluster.remove_service(&format!("more{n}")).await?;
    }
    let resolved = prometheus.alert(State::Resolved, "PureLBPoolNearlyExhausted", &[]).await?;
    figure("a pool runs full", "PureLBPoolNearlyExhausted", fired, resolved);

    // A drain that cannot end: nobody else is on the island.
    let drained = cluster.daemon("c").ctl("drain --timeout 2s").await?;
    ensure!(drained.code == 3, "{drained:?}");
    let fired = prometheus.alert(State::Firing, "PureLBDrainStuck", &[("instance", "c")]).await?;
    let undrained = cluster.daemon("c").ctl("undrain").await?;
    ensure!(undrained.code == 0, "{undrained:?}");
    let resolved = prometheus.alert(State::Resolved, "PureLBDrainStuck", &[]).await?;
    figure("a drain nobody can take over from", "PureLBDrainStuck", fired, resolved);

    // A daemon that is gone says nothing: Prometheus does.
    cluster.daemon("b").process().kill()?;
    let fired = prometheus.alert(State::Firing, "PureLBDaemonDown", &[("instance", "b")]).await?;
    cluster.daemon_mut("b").restart()?;
    let resolved = prometheus.alert(State::Resolved, "PureLBDaemonDown", &[]).await?;
    figure("a daemon is killed", "PureLBDaemonDown", fired, resolved);

    // And all is well: only the memory of the edge is left.
    let calm = |prometheus: &Prometheus| {
        let firing = prometheus.firing()?;
        let left = firing.iter().all(|(name, _)| name == "PureLBFenceMarginLow");
        Ok(if left { Ok(()) } else { Err(format!("{firing:?}")) })
    };
    prometheus.until("everything has resolved", PATIENCE, calm).await?;
    prometheus.alert(State::Firing, "PureLBFenceMarginLow", &[("instance", "a")]).await?;
    Ok(())
}
