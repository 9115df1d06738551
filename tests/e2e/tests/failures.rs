//! Nodes that fail: the kernel fences, another takes over, never two at a time.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use purelb_e2e::{Cluster, Trial, Wish, losses, millis, row, shared_plane};
use purelb_kit::lab::{Cut, Lab, LabBuilder, now};
use purelb_kit::wait::eventually;

const LEASE: Duration = Duration::from_secs(10);
const RENEW_DEADLINE: Duration = Duration::from_secs(7);
const PATIENCE: Duration = Duration::from_secs(20);

fn three_nodes() -> LabBuilder {
    Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .node("c", ["lan"])
        .client("x", ["lan"])
}

/// Three nodes; `a` holds one address of each family.
async fn held_by_a() -> Result<(Cluster<'static>, Vec<std::net::IpAddr>)> {
    let cluster = Cluster::start(shared_plane().await?, three_nodes()).await?;
    let vips = cluster.won_by("a", &["a", "b", "c"], 1, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    Ok((cluster, vips))
}

async fn wait_for(time: Duration) -> Result<()> {
    let until = now() + time;
    eventually(
        "time passes",
        time + PATIENCE,
        || async move { if now() >= until { Ok(()) } else { Err(()) } },
    )
    .await
}

#[tokio::test]
async fn a_killed_and_a_stopped_daemon_never_make_two_owners() -> Result<()> {
    let (mut cluster, vips) = held_by_a().await?;
    for (case, signal) in [("SIGKILL for good", Signal::SIGKILL), ("SIGSTOP", Signal::SIGSTOP)] {
        let mut trial = Trial::start(&cluster, "x", &vips).await?;
        trial.begin();
        cluster.daemon("a").process().signal(signal)?;
        let mut worst = Duration::ZERO;
        for vip in &vips {
            let gone = trial.withdrawn(*vip, "a").await?;
            let (by, taken) = trial.taken_over(*vip, "a").await?;
            assert!(gone <= taken, "{vip} left a after {gone:?}, and {by} had it after {taken:?}");
            worst = worst.max(taken);
        }
        trial.until_answered_by(|n| n != "a").await?;
        // It comes back: what it wins it gets by a handoff, and until then it has nothing.
        let seen_until = trial.timeline(vips[0])?;
        if signal == Signal::SIGSTOP {
            cluster.daemon("a").process().resume()?;
        } else {
            cluster.daemon_mut("a").restart()?;
        }
        for vip in &vips {
            cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
        }
        let (report, seen) = trial.finish();
        row(
            case,
            "off the NIC before another takes it; new owner < lease + 1 s",
            &format!("new owner after {}, gap {}; {seen_until}", millis(worst), millis(report.gap())),
            worst < LEASE + Duration::from_secs(1) && seen_until.two_owners().next().is_none(),
        );
        assert_eq!(seen.wire.not_recorded(), 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_node_without_power_is_replaced_when_its_lease_ends() -> Result<()> {
    let (cluster, vips) = held_by_a().await?;
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.node("a").power_off()?;
    let mut worst = Duration::ZERO;
    for vip in &vips {
        let (by, _) = trial.taken_over(*vip, "a").await?;
        worst = worst.max(trial.announced(*vip, &by).await?);
    }
    trial.until_answered_by(|n| n != "a").await?;
    let (report, seen) = trial.finish();
    row(
        "node power loss",
        "new owner announced < lease + 0.5 s",
        &format!("announced after {}, gap {}; {}", millis(worst), millis(report.gap()), seen.timelines()?),
        worst < LEASE + Duration::from_millis(500) && seen.never_two()?,
    );
    Ok(())
}

#[tokio::test]
async fn a_node_cut_off_from_the_api_withdraws_in_time() -> Result<()> {
    let (cluster, vips) = held_by_a().await?;
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.node("a").cut(Cut::Api)?;
    let (mut gone, mut taken) = (Duration::ZERO, Duration::ZERO);
    for vip in &vips {
        gone = gone.max(trial.withdrawn(*vip, "a").await?);
        taken = taken.max(trial.taken_over(*vip, "a").await?.1);
    }
    trial.until_answered_by(|n| n != "a").await?;
    let (report, seen) = trial.finish();
    row(
        "API partition of one node",
        "withdrawn at the renew deadline, never two owners",
        &format!(
            "withdrawn after {}, taken after {}, gap {}; {}",
            millis(gone),
            millis(taken),
            millis(report.gap()),
            seen.timelines()?
        ),
        gone <= RENEW_DEADLINE + Duration::from_millis(500) && seen.never_two()?,
    );
    let status: Vec<String> = cluster.daemon("a").told().into_iter().map(|(_, text)| text).collect();
    assert!(status.iter().any(|s| s.starts_with("STATUS=fenced")), "it says so: {status:?}");

    // The API is back: the address returns, and never nobody has it.
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.node("a").heal(&Cut::Api)?;
    for vip in &vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    let (report, seen) = trial.finish();
    row(
        "API partition healed",
        "never a moment without an owner",
        &format!(
            "{} lost, {} without an owner; {} {}",
            report.lost(),
            millis(seen.no_owner()?),
            losses(&report, seen.at),
            seen.timelines()?
        ),
        report.lost() == 0 && seen.no_owner()? == Duration::ZERO,
    );
    Ok(())
}

#[tokio::test]
async fn a_lost_carrier_moves_the_address_at_once() -> Result<()> {
    let (cluster, vips) = held_by_a().await?;
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.node("a").pull_carrier("lan")?;
    let mut worst = Duration::ZERO;
    for vip in &vips {
        let (by, _) = trial.taken_over(*vip, "a").await?;
        worst = worst.max(trial.announced(*vip, &by).await?);
    }
    trial.until_answered_by(|n| n != "a").await?;
    let (report, seen) = trial.finish();
    row(
        "carrier lost",
        "other node announced < 1 s",
        &format!("announced after {}, gap {}", millis(worst), millis(report.gap())),
        worst < Duration::from_secs(1),
    );
    drop(seen);
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.node("a").restore_carrier("lan")?;
    for vip in &vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    let (report, seen) = trial.finish();
    row(
        "carrier back",
        "no second owner: 0 lost, handed over",
        &format!(
            "{} lost, {} without an owner; {} {}",
            report.lost(),
            millis(seen.no_owner()?),
            losses(&report, seen.at),
            seen.timelines()?
        ),
        report.lost() == 0 && seen.no_owner()? == Duration::ZERO,
    );

    // Ten flaps in five seconds: it leaves once, and comes back when the link is calm.
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    for _ in 0..10 {
        cluster.node("a").pull_carrier("lan")?;
        wait_for(Duration::from_millis(250)).await?;
        cluster.node("a").restore_carrier("lan")?;
        wait_for(Duration::from_millis(250)).await?;
    }
    let moves = |t: &Trial| -> Result<usize> {
        let each = vips.iter().map(|vip| {
            let events = t.kernel.events(*vip);
            let new = events.iter().filter(|e| e.at > t.at && e.change == purelb_kit::lab::Change::Set);
            let mut hosts: Vec<&str> = new.map(|e| e.host.as_str()).collect();
            hosts.dedup();
            hosts.retain(|h| *h != "a");
            hosts.len()
        });
        Ok(each.max().unwrap_or_default())
    };
    let during = moves(&trial)?;
    let (report, seen) = trial.finish();
    row(
        "interface flaps 10 times in 5 s",
        "at most one move",
        &format!("{during} move, gap {}; {}", millis(report.gap()), seen.timelines()?),
        during <= 1,
    );
    for vip in &vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    Ok(())
}
