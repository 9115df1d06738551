//! A node that leaves, or comes, in an orderly way: clients do not notice.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use purelb_e2e::{Cluster, Trial, Wish, losses, millis, print_row, row, shared_plane};
use purelb_kit::lab::{Lab, LabBuilder, Report, now};
use purelb_kit::wait::eventually;

const STOP_WITHIN: Duration = Duration::from_secs(10);

fn three_nodes() -> LabBuilder {
    Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .node("c", ["lan"])
        .client("x", ["lan"])
}

/// When the client had its first answer from another node than `from`, after the fault.
fn moved(report: &Report, from: &str, at: purelb_core::Mono) -> Duration {
    let turns = report.vips.values().map(|v| v.turns.iter().find(|t| t.node != from && t.first >= at));
    turns.map(|t| t.map_or(Duration::MAX, |t| t.first.since(at))).max().unwrap_or(Duration::MAX)
}

#[tokio::test]
async fn a_stop_hands_everything_over() -> Result<()> {
    let mut cluster = Cluster::start(shared_plane().await?, three_nodes()).await?;
    let vips = cluster.won_by("a", &["a", "b", "c"], 2, 0)?;
    // Half of them with the group's default for IPv6, which detects duplicates: a handover
    // does without, since the duplicate is its own peer.
    let (quick, checked): (Vec<_>, Vec<_>) = vips.iter().enumerate().partition(|(n, _)| n % 2 == 0);
    let of = |some: Vec<(usize, &std::net::IpAddr)>| some.into_iter().map(|(_, ip)| *ip).collect::<Vec<_>>();
    cluster.serve(Wish::new("web", of(quick))).await?;
    cluster.serve(Wish::new("default", of(checked)).with_dad()).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    let took = cluster.daemon("a").terminate(STOP_WITHIN).await?;
    trial.until_answered_by(|n| n != "a").await?;
    assert!(cluster.lease("a").await?.is_none(), "the Lease is gone with the daemon");
    let (report, seen) = trial.finish();
    let client = moved(&report, "a", seen.at);
    row(
        "stop (systemctl stop, reboot)",
        "0 lost, client moved < 100 ms",
        &format!(
            "{} of {} lost, client moved after {}, ended after {}; {} {}",
            report.lost(),
            report.sent(),
            millis(client),
            millis(took),
            losses(&report, seen.at),
            seen.timelines()?
        ),
        report.lost() == 0 && client < Duration::from_millis(100),
    );
    assert_eq!(seen.no_owner()?, Duration::ZERO);

    // It comes back and takes what it wins: the same without a loss.
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.daemon_mut("a").restart()?;
    cluster.daemon("a").ready(STOP_WITHIN).await?;
    trial.until_answered_by(|n| n == "a").await?;
    for vip in &vips {
        cluster.holder_where(*vip, "on a alone", |n| n == "a").await?;
    }
    let (report, seen) = trial.finish();
    row(
        "a node joins and wins addresses",
        "0 lost, never without an owner",
        &format!(
            "{} of {} lost, {} without an owner; {}",
            report.lost(),
            report.sent(),
            millis(seen.no_owner()?),
            seen.timelines()?
        ),
        report.lost() == 0 && seen.no_owner()? == Duration::ZERO,
    );

    // The same again, told twice: withdraws at once, and still ends well.
    cluster.daemon("a").process().signal(Signal::SIGTERM)?;
    cluster.daemon("a").process().signal(Signal::SIGTERM)?;
    let status = cluster.daemon("a").ended(STOP_WITHIN).await?;
    assert!(status.success(), "{status}");
    for vip in &vips {
        cluster.holder_where(*vip, "elsewhere", |n| n != "a").await?;
    }
    Ok(())
}

#[tokio::test]
async fn three_hundred_addresses_leave_one_node() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["10.10.0.0/16", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .client("x", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let vips = cluster.won_by("a", &["a", "b"], 150, 0)?;
    assert_eq!(vips.len(), 300);
    for (i, some) in vips.chunks(20).enumerate() {
        cluster.serve(Wish::new(&format!("web{i}"), some.to_vec())).await?;
    }
    for vip in &vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    let began = trial.begin();
    let ended = cluster.daemon("a").terminate(STOP_WITHIN).await?;
    trial.until_answered_by(|n| n == "b").await?;
    let last = vips.iter().filter_map(|v| trial.timeline(*v).ok()?.first_held_by("b")).max();
    let taken = last.map_or(Duration::MAX, |at| at.since(began));
    let (report, seen) = trial.finish();
    row(
        "300 addresses leave one node",
        "0 lost",
        &format!(
            "{} of {} lost, all taken after {}, ended after {}",
            report.lost(),
            report.sent(),
            millis(taken),
            millis(ended)
        ),
        report.lost() == 0 && seen.no_owner()? == Duration::ZERO,
    );
    Ok(())
}

#[tokio::test]
async fn an_upgrade_and_a_crash_move_nothing() -> Result<()> {
    let mut cluster = Cluster::start(shared_plane().await?, three_nodes()).await?;
    let vips = cluster.won_by("a", &["a", "b", "c"], 1, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    for (case, signal) in [("package upgrade", Signal::SIGUSR1), ("SIGKILL, restarted", Signal::SIGKILL)] {
        let mut trial = Trial::start(&cluster, "x", &vips).await?;
        let began = trial.begin();
        cluster.daemon("a").process().signal(signal)?;
        let status = cluster.daemon("a").ended(STOP_WITHIN).await?;
        assert_eq!(status.success(), signal == Signal::SIGUSR1, "{status}");
        cluster.daemon_mut("a").restart()?;
        cluster.daemon("a").ready(STOP_WITHIN).await?;
        let ready = now().since(began);
        // Past the lifetimes that the earlier process gave.
        let beyond = Duration::from_secs(8);
        eventually("the adopted addresses live on", STOP_WITHIN + beyond, || {
            let passed = now().since(began) > beyond;
            async move { if passed { Ok(()) } else { Err("time") } }
        })
        .await?;
        let (report, seen) = trial.finish();
        let stayed = vips.iter().all(|v| seen.kernel.owners_timeline(*v).is_ok_and(|t| t.spans.len() == 1));
        row(
            case,
            "0 lost, no address moves",
            &format!(
                "{} of {} lost, ready again after {}; {}",
                report.lost(),
                report.sent(),
                millis(ready),
                seen.timelines()?
            ),
            report.lost() == 0 && stayed,
        );
    }
    Ok(())
}

/// Settings are read again; what needs a restart is said.
#[tokio::test]
async fn a_reload_takes_over_what_can_change() -> Result<()> {
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let a = cluster.daemon("a");
    std::fs::write(
        a.node.dir().join("purelbd.d/test.toml"),
        "[log]\nlevel = \"debug\"\n[handoff]\nlinger = \"100ms\"\n",
    )?;
    a.process().signal(Signal::SIGHUP)?;
    eventually("the reload is told", STOP_WITHIN, || {
        let told: Vec<String> = a.told().into_iter().map(|(_, text)| text).collect();
        let began = told.iter().position(|t| t.starts_with("RELOADING=1\nMONOTONIC_USEC="));
        let done = began.is_some_and(|b| told[b..].iter().any(|t| t == "READY=1"));
        async move { if done { Ok(()) } else { Err(told) } }
    })
    .await?;
    let log = a.log();
    assert!(log.contains("need a restart") && log.contains("handoff.linger"), "{log}");
    // A broken file changes nothing.
    std::fs::write(a.node.dir().join("purelbd.d/test.toml"), "[log]\nlevle = \"debug\"\n")?;
    a.process().signal(Signal::SIGHUP)?;
    eventually("the mistake is said", STOP_WITHIN, || {
        let log = a.log();
        async move { if log.contains("log.levle") { Ok(()) } else { Err(log) } }
    })
    .await?;
    assert!(a.process().is_running());
    // A second daemon on the node is refused, and the first goes on.
    let second = a.run_flag("--check-config")?;
    assert!(!second.status.success(), "a broken file is refused: {second:?}");
    std::fs::write(a.node.dir().join("purelbd.d/test.toml"), "")?;
    assert!(a.run_flag("--check-config")?.status.success());
    print_row("reload", "no restart", "done");
    Ok(())
}
