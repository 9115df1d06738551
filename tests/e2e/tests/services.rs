//! Services of all kinds: how fast they are served, by whom, and where.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_core::Mono;
use purelb_e2e::{Cluster, Wish, millis, row, shared_plane, vip};
use purelb_kit::lab::{AddressWatch, Change, Lab, Observer};
use purelb_kit::wait::eventually;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(20);

/// When the first kernel had the address, and when the wire heard of it.
async fn served(
    kernel: &AddressWatch,
    wire: &Observer,
    vip: IpAddr,
    sent: Mono,
) -> Result<(Duration, Duration)> {
    eventually(&format!("{vip} is announced"), PATIENCE, || {
        let events = kernel.events(vip);
        let there = events.iter().find(|e| e.change == Change::Set).map(|e| e.at.since(sent));
        let said = wire.announcements(vip).first().map(|c| c.at.since(sent));
        async move { there.zip(said).ok_or((there, said)) }
    })
    .await
}

#[tokio::test]
async fn a_service_is_announced_within_milliseconds() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .node("c", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let (kernel, wire) = (cluster.lab.watch_addresses()?, cluster.lab.observe()?);
    let mut times: Vec<(Duration, Duration, Duration, Duration)> = Vec::new();
    let mut writes = Vec::new();
    for n in 0..20 {
        let (v4, v6) = (vip(&format!("192.0.2.{}", 100 + n)), vip(&format!("2001:db8:1::{}", 100 + n)));
        // The server says "set" somewhat after it is: the watches may be ahead of it.
        let (sent, set) = cluster.serve(Wish::new(&format!("web{n}"), [v4, v6])).await?;
        writes.push(set.since(sent));
        let (there4, said4) = served(&kernel, &wire, v4, set).await?;
        let (there6, said6) = served(&kernel, &wire, v6, set).await?;
        times.push((there4, said4, there6, said6));
    }
    let median = |pick: fn(&(Duration, Duration, Duration, Duration)) -> Duration| {
        let mut all: Vec<Duration> = times.iter().map(pick).collect();
        all.sort();
        (all[all.len() / 2], all[all.len() - 1])
    };
    let (there4, said4, there6, said6) = (median(|t| t.0), median(|t| t.1), median(|t| t.2), median(|t| t.3));
    writes.sort();
    let words = |(middle, worst): (Duration, Duration)| format!("{:.1?} (worst {:.1?})", middle, worst);
    row(
        "Service status -> interface -> first GARP/NA",
        "both within 20 ms, IPv4 and IPv6 (median of 20)",
        &format!(
            "IPv4 {} and {}; IPv6 {} and {}; the status write itself took {:.1?}",
            words(there4),
            words(said4),
            words(there6),
            words(said6),
            writes[writes.len() / 2],
        ),
        said4.0 < Duration::from_millis(20) && said6.0 < Duration::from_millis(20),
    );

    // With duplicate address detection the kernel's second of waiting is added, no more.
    let slow = vip("2001:db8:1::f00");
    let (sent, _) = cluster.serve(Wish::new("dad", [slow]).with_dad()).await?;
    let (there, said) = served(&kernel, &wire, slow, sent).await?;
    row(
        "the same with IPv6 duplicate address detection",
        "announced once it is over, < 3 s",
        &format!("on the interface after {}, announced after {}", millis(there), millis(said)),
        said < Duration::from_secs(3) && there < said,
    );
    Ok(())
}

#[tokio::test]
async fn a_remote_pool_is_on_every_dummy() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    cluster
        .group(
            "default",
            json!({"remote": {
                "v4pool": {"pool": "203.0.113.0/26", "subnet": "203.0.113.0/24", "aggregation": "default"},
                "v6pool": {"pool": "2001:db8:f::/112", "subnet": "2001:db8:f::/64", "aggregation": "/128"},
            }}),
        )
        .await?;
    let (v4, v6) = (vip("203.0.113.9"), vip("2001:db8:f::9"));
    cluster.serve(Wish::new("edge", [v4, v6]).remote()).await?;
    for (ip, length) in [(v4, 24), (v6, 128)] {
        cluster
            .until(&format!("{ip} is on every dummy"), PATIENCE, || {
                for node in cluster.lab.nodes() {
                    let address = node
                        .address(ip)
                        .map_err(|e| e.to_string())?
                        .ok_or(format!("not on {}", node.name()))?;
                    if address.dev != "kube-lb0"
                        || address.net.prefix_len() != length
                        || address.valid.is_some()
                    {
                        return Err(format!("{address:?}"));
                    }
                }
                Ok(())
            })
            .await?;
    }
    assert!(cluster.slots("edge").await?.is_empty(), "remote pools write no slots");

    // Local traffic policy: only where an endpoint is.
    let only = vip("203.0.113.10");
    cluster.serve(Wish::new("local", [only]).remote().only_local_endpoints()).await?;
    for (endpoints, expected) in [
        (vec![("a", true, true)], vec!["a"]),
        (vec![("a", true, true), ("b", false, true)], vec!["a", "b"]),
        (vec![("b", true, true)], vec!["b"]),
    ] {
        cluster.endpoints("local", &endpoints).await?;
        cluster
            .until(&format!("{only} is on {expected:?}"), PATIENCE, || {
                let holders = cluster.holders(only).map_err(|e| e.to_string())?;
                let on: Vec<&str> = holders.iter().map(|(n, _)| n.as_str()).collect();
                if on == expected { Ok(()) } else { Err(format!("{on:?}")) }
            })
            .await?;
    }
    // A stop takes them off, and the dummy that we made.
    cluster.daemon("a").terminate(PATIENCE).await?;
    assert!(cluster.node("a").links()?.iter().all(|l| l.name != "kube-lb0"), "the dummy we made is gone");
    Ok(())
}

#[tokio::test]
async fn local_traffic_policy_narrows_the_candidates() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .node("c", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let vips = cluster.won_by("a", &["a", "b", "c"], 1, 0)?;
    cluster.serve(Wish::new("web", vips.clone()).only_local_endpoints()).await?;
    // Nobody has an endpoint: nobody announces it, and says so.
    cluster.metric_says("a", "purelb_lbnodeagent_vips{reason=\"NoEndpoints\"} 2").await?;
    for vip in &vips {
        assert!(cluster.holders(*vip)?.is_empty());
    }
    let steps: [(&[(&str, bool, bool)], &str); 4] = [
        (&[("b", true, true)], "b"),
        (&[("a", true, true), ("b", true, true)], "a"),
        (&[("c", false, true)], "c"),
        (&[("a", true, true), ("b", true, true), ("c", true, true)], "a"),
    ];
    for (endpoints, expected) in steps {
        cluster.endpoints("web", endpoints).await?;
        for vip in &vips {
            cluster.holder_where(*vip, &format!("on {expected}"), |n| n == expected).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn overlapping_subnets_and_two_legs() -> Result<()> {
    let lab = Lab::builder()
        .segment("wide", ["10.20.0.0/16"])
        .segment("narrow", ["10.20.30.0/24"])
        .node("a", ["wide"])
        .node("b", ["narrow"])
        .node("d", ["wide", "narrow"]);
    let mut cluster = Cluster::new(shared_plane().await?, lab).await?;
    cluster.agent("default", json!({"local": {"localInterface": "eth.*"}})).await?;
    for name in ["a", "b", "d"] {
        cluster.join(name).await?;
    }
    for name in ["a", "b", "d"] {
        cluster.daemon(name).ready(PATIENCE).await?;
    }
    // In both: any of them may win, whatever the prefix length says.
    let both: Vec<IpAddr> = (100..112).map(|n| vip(&format!("10.20.30.{n}"))).collect();
    let wide: Vec<IpAddr> = (100..106).map(|n| vip(&format!("10.20.99.{n}"))).collect();
    cluster.serve(Wish::new("both", both.clone())).await?;
    cluster.serve(Wish::new("wide", wide.clone())).await?;
    for vip in &both {
        let expected = ["a", "b", "d"]
            .into_iter()
            .min_by_key(|n| purelb_core::election::score(&cluster.node_name(n), &vip.to_string()))
            .context("three candidates")?;
        cluster.holder_where(*vip, &format!("on {expected}"), |n| n == expected).await?;
    }
    for vip in &wide {
        let holder = cluster.holder_where(*vip, "a node of the wide one", |n| n != "b").await?;
        let address = cluster.node(&holder).address(*vip)?.context("just seen")?;
        assert_eq!((address.dev.as_str(), address.net.prefix_len()), ("eth0", 16));
    }
    Ok(())
}

/// What a tenant may write on their Service moves its address nowhere.
#[tokio::test]
async fn annotations_of_a_tenant_put_nothing_on_every_node() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["192.0.2.0/24"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .node("c", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let pool = json!({"v4pool": {"pool": "192.0.2.130-192.0.2.140", "subnet": "192.0.2.0/24"}});
    cluster.group("default", json!({"local": pool})).await?;
    let ip = vip("192.0.2.130");
    cluster.serve(Wish::new("web", [ip])).await?;
    let holder = cluster.one_holder(ip).await?;
    // Created so: a change of theirs is refused by the cluster's policy, too.
    let services = cluster.services();
    services.delete("web", &Default::default()).await?;
    cluster
        .until("it is gone", PATIENCE, || {
            let holders = cluster.holders(ip).map_err(|e| e.to_string())?;
            if holders.is_empty() { Ok(()) } else { Err(format!("{holders:?}")) }
        })
        .await?;
    cluster.serve(Wish::new("web", [ip]).remote()).await?;
    let again = cluster.one_holder(ip).await?;
    assert_eq!(again, holder);
    cluster.announced_by(&holder, &[ip]).await?;
    let holders = cluster.holders(ip)?;
    assert!(holders.len() == 1 && holders[0].1 != "kube-lb0", "{holders:?}");
    Ok(())
}
