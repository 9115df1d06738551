//! Writes that fail, hang, are overtaken or get lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use purelb_kit::embedded::{EmbeddedApi, Verb};
use purelb_kit::faults::{Cut, End, Fault, Matcher, Proxy};
use serde_json::json;

use crate::common::{Cluster, local, settings};
use crate::site::Running;

async fn behind_a_proxy() -> Result<(EmbeddedApi, Proxy, Cluster, Running)> {
    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    let running = Running::start(proxy.client("allocator")?, settings()).await?;
    let cluster = Cluster::new(api.client("user")?);
    cluster.namespace("shop").await?;
    cluster
        .group(
            "default",
            local(json!({"v4pool": {"pool": "192.0.2.10-192.0.2.99", "subnet": "192.0.2.0/24"}})),
        )
        .await?;
    running.leads().await?;
    Ok((api, proxy, cluster, running))
}

async fn all_different(cluster: &Cluster, count: usize) -> Result<()> {
    let mut seen = BTreeSet::new();
    for i in 0..count {
        let state = cluster.has_some(&format!("shop/s{i}")).await?;
        assert_eq!(state.ips.len(), 1);
        assert!(seen.insert(state.ips[0].clone()), "{} twice", state.ips[0]);
    }
    Ok(())
}

#[tokio::test]
async fn conflicts_refusals_and_lost_answers_end_well() -> Result<()> {
    for fault in [
        Fault::answer(409).on_writes().of("services").times(5),
        Fault::answer(409).on_writes().of("services/status").times(5),
        Fault::answer(500).on_writes().of("services/status").times(5),
        Fault::lost_answer().on_writes().of("services/status").times(5),
        Fault::lost_answer().on_writes().of("services").times(5),
        Fault::dropped().on_writes().of("services").times(5),
        Fault::too_many_requests(1).on_writes().of("services/status").times(5),
    ] {
        let (_api, proxy, cluster, running) = behind_a_proxy().await?;
        let injected = proxy.inject(fault);
        for i in 0..10 {
            cluster.service(&format!("shop/s{i}"), &[]).await?;
        }
        all_different(&cluster, 10).await?;
        assert_eq!(injected.hits(), 5);
        running.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn watches_that_break_are_listed_again() -> Result<()> {
    let (_api, proxy, cluster, running) = behind_a_proxy().await?;
    cluster.service("shop/s0", &[]).await?;
    cluster.has_some("shop/s0").await?;
    proxy.end_watches(&Matcher::all(), End::Stale);
    cluster.service("shop/s1", &[]).await?;
    all_different(&cluster, 2).await?;
    running.stop().await
}

#[tokio::test]
async fn cut_off_it_writes_nothing_more_and_another_takes_over() -> Result<()> {
    let (api, proxy, cluster, first) = behind_a_proxy().await?;
    let cut = proxy.cut(Cut::Hang);
    for i in 0..5 {
        cluster.service(&format!("shop/s{i}"), &[]).await?;
    }
    let second = Running::start(api.client("second")?, settings()).await?;
    second.leads().await?;
    all_different(&cluster, 5).await?;
    cut.restore();
    cluster.service("shop/s5", &[]).await?;
    all_different(&cluster, 6).await?;
    let by_first: u64 = api
        .requests()
        .into_iter()
        .filter(|(k, _)| {
            k.client == "allocator" && k.verb == Verb::Patch && k.resource.starts_with("services")
        })
        .map(|(_, n)| n)
        .sum();
    assert_eq!(by_first, 0, "the former leader does not write");
    assert!(!first.health.leads() || first.health.ready());
    first.kill().await;
    second.stop().await
}

/// A write leaves the old leader and is held up on its way; meanwhile another one
/// takes over and gives the same address away. Then the old write arrives.
#[tokio::test]
async fn a_write_of_the_old_leader_that_arrives_late_is_refused() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    let first = Running::start(proxy.client("first")?, settings()).await?;
    let cluster = Cluster::new(api.client("user")?);
    cluster.namespace("shop").await?;
    let pool = json!({"v4pool": {"pool": "192.0.2.10-192.0.2.11", "subnet": "192.0.2.0/24"}});
    cluster.group("default", local(pool)).await?;
    first.leads().await?;
    let held_up = proxy.inject(Fault::stalled().on_writes().of("services/status").times(1));
    let lease_cut = proxy.inject(Fault::stalled().on_writes().of("leases"));
    cluster.service("shop/old", &[]).await?;
    purelb_kit::wait::eventually("the old leader's write is on its way", Duration::from_secs(30), || async {
        if held_up.hits() == 1 { Ok(()) } else { Err(held_up.hits()) }
    })
    .await?;
    // Older by name, so that the new leader serves it first.
    cluster.service("shop/a-new", &[]).await?;
    let second = Running::start(api.client("second")?, settings()).await?;
    second.leads().await?;
    let new = cluster.has_some("shop/a-new").await?;
    let old = cluster.has_some("shop/old").await?;
    assert_ne!(new.ips, old.ips);
    held_up.end();
    lease_cut.end();
    // Whatever arrives now finds another version.
    cluster.service("shop/more", &[]).await?;
    cluster.told("shop/more", "Exhausted").await?;
    assert_eq!(cluster.state("shop/old").await?.ips, old.ips);
    assert_eq!(cluster.state("shop/a-new").await?.ips, new.ips);
    first.kill().await;
    second.stop().await
}

/// Longer than a look at the Lease is waited for, and the pause after it.
const BEATS: Duration = Duration::from_secs(5);

/// The API server is away for both replicas: whoever asks their liveness probes hears that
/// their loops turn, or a cluster without API server would lose its allocators as well.
#[tokio::test]
async fn an_api_server_that_is_away_makes_nobody_look_dead() -> Result<()> {
    const AWAY: Duration = Duration::from_secs(8);
    let api = EmbeddedApi::start().await?;
    for cut in [Cut::Hang, Cut::Down] {
        let proxy = Proxy::before(&api).start().await?;
        let first = Running::start(proxy.client("first")?, settings()).await?;
        first.leads().await?;
        let second = Running::start(proxy.client("second")?, settings()).await?;
        let severed = proxy.cut(cut);
        let began = Instant::now();
        let mut longest = Duration::ZERO;
        while began.elapsed() < AWAY {
            longest = longest.max(first.health.since_beat()).max(second.health.since_beat());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(longest < BEATS, "{cut:?}: a loop did not turn for {longest:?}");
        assert!(!first.health.ready() && !second.health.ready(), "{cut:?}: nobody says that all is well");
        drop(severed);
        purelb_kit::wait::eventually("one of them leads again", Duration::from_secs(30), || async {
            let leads = |r: &Running| r.health.leads() && r.health.ready();
            if leads(&first) || leads(&second) { Ok(()) } else { Err("nobody leads") }
        })
        .await?;
        first.stop().await?;
        second.stop().await?;
    }
    Ok(())
}

/// A status write of a group that is never answered ends, and is made again.
#[tokio::test]
async fn an_answer_that_never_comes_is_not_waited_for() -> Result<()> {
    let (_api, proxy, cluster, running) = behind_a_proxy().await?;
    let stalled = proxy.inject(Fault::stalled().on_writes().of("servicegroups/status").times(1));
    cluster.service("shop/s0", &[]).await?;
    cluster.has_some("shop/s0").await?;
    cluster.group_status("default", "counts what was given", |s| s["allocatedIPv4"] == 1).await?;
    assert_eq!(stalled.hits(), 1);
    running.stop().await
}

/// A leader that cannot list everything does not sit on the Lease for ever.
#[tokio::test]
async fn who_cannot_list_everything_leaves_it_to_another() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    let blind = proxy.inject(Fault::answer(403).of("servicegroups"));
    let cluster = Cluster::new(api.client("user")?);
    cluster.namespace("shop").await?;
    let pool = json!({"v4pool": {"pool": "192.0.2.10-192.0.2.11", "subnet": "192.0.2.0/24"}});
    cluster.group("default", local(pool)).await?;
    let first = Running::start(proxy.client("first")?, settings()).await?;
    purelb_kit::wait::eventually("it leads, and is blind", Duration::from_secs(30), || async {
        let seen = (first.health.leads(), first.health.ready(), blind.hits() > 0);
        if seen == (true, false, true) { Ok(()) } else { Err(seen) }
    })
    .await?;
    let second = Running::start(api.client("second")?, settings()).await?;
    second.leads().await?;
    cluster.service("shop/s0", &[]).await?;
    cluster.has_some("shop/s0").await?;
    first.stop().await?;
    second.stop().await
}
