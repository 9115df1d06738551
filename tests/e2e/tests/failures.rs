//! Nodes that fail: the kernel fences, another takes over, never two at a time.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use purelb_e2e::{Cluster, Trial, Wish, losses, millis, row, shared_plane};
use purelb_kit::lab::{Cut, Lab, LabBuilder, Report, now};
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

/// Detection of duplicates, as the kernel does it: up to a second of chance, then one
/// solicitation and a second of waiting for who answers.
const DAD: Duration = Duration::from_millis(2_200);

/// Addresses that `a` holds: one of each family whose Service skips duplicate address
/// detection, and one of IPv6 with the group's default, which does it.
struct Held {
    vips: Vec<IpAddr>,
    checked: IpAddr,
}

impl Held {
    fn quick(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.vips.iter().copied().filter(|vip| *vip != self.checked)
    }

    /// The longest silence: with `skip-ipv6-dad`, and with the default.
    fn gaps(&self, report: &Report) -> (Duration, Duration) {
        let quick = self.quick().map(|vip| report.vip(vip).gap()).max().unwrap_or_default();
        (quick, report.vip(self.checked).gap())
    }

    /// When others had announced them after the fault: the last of those that skip
    /// detection, and the one that does it.
    async fn announced(&self, trial: &Trial) -> Result<(Duration, Duration)> {
        let (mut quick, mut checked) = (Duration::ZERO, Duration::ZERO);
        for vip in &self.vips {
            let (by, _) = trial.taken_over(*vip, "a").await?;
            let after = trial.announced(*vip, &by).await?;
            let worst = if *vip == self.checked { &mut checked } else { &mut quick };
            *worst = after.max(*worst);
        }
        Ok((quick, checked))
    }
}

/// Both figures side by side.
fn side_by_side(what: &str, (quick, checked): (Duration, Duration)) -> String {
    format!("{what}: {} with skip-ipv6-dad, {} with DAD (the default)", millis(quick), millis(checked))
}

/// Three nodes; `a` holds them all.
async fn held_by_a() -> Result<(Cluster<'static>, Held)> {
    let cluster = Cluster::start(shared_plane().await?, three_nodes()).await?;
    let quick = cluster.won_by("a", &["a", "b", "c"], 1, 0)?;
    let more = cluster.won_by("a", &["a", "b", "c"], 1, 1)?;
    let checked = more.into_iter().find(IpAddr::is_ipv6).context("an IPv6 address")?;
    cluster.serve(Wish::new("web", quick.clone())).await?;
    cluster.serve(Wish::new("default", [checked]).with_dad()).await?;
    let held = Held { vips: quick.into_iter().chain([checked]).collect(), checked };
    for vip in &held.vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    Ok((cluster, held))
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
    let (mut cluster, held) = held_by_a().await?;
    let vips = &held.vips;
    for (case, signal) in [("SIGKILL for good", Signal::SIGKILL), ("SIGSTOP", Signal::SIGSTOP)] {
        let mut trial = Trial::start(&cluster, "x", vips).await?;
        trial.begin();
        cluster.daemon("a").process().signal(signal)?;
        for vip in vips {
            let gone = trial.withdrawn(*vip, "a").await?;
            let (by, taken) = trial.taken_over(*vip, "a").await?;
            assert!(gone <= taken, "{vip} left a after {gone:?}, and {by} had it after {taken:?}");
        }
        let announced = held.announced(&trial).await?;
        trial.until_answered_by(|n| n != "a").await?;
        // It comes back: what it wins it gets by a handoff, and until then it has nothing.
        let until = vips.iter().map(|vip| trial.timeline(*vip)).collect::<Result<Vec<_>>>()?;
        let never_two = until.iter().all(|timeline| timeline.two_owners().next().is_none());
        if signal == Signal::SIGSTOP {
            cluster.daemon("a").process().resume()?;
        } else {
            cluster.daemon_mut("a").restart()?;
        }
        for vip in vips {
            cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
        }
        let (report, seen) = trial.finish();
        let bar = LEASE + Duration::from_secs(1);
        row(
            case,
            "off the NIC before another takes it; new owner announced < lease + 1 s, with DAD + 2.2 s",
            &format!(
                "{}; {}; {}",
                side_by_side("announced", announced),
                side_by_side("gap", held.gaps(&report)),
                until.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            ),
            announced.0 < bar && announced.1 < bar + DAD && never_two,
        );
        assert_eq!(seen.wire.not_recorded(), 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_node_without_power_is_replaced_when_its_lease_ends() -> Result<()> {
    let (cluster, held) = held_by_a().await?;
    let mut trial = Trial::start(&cluster, "x", &held.vips).await?;
    trial.begin();
    cluster.node("a").power_off()?;
    let announced = held.announced(&trial).await?;
    trial.until_answered_by(|n| n != "a").await?;
    let (report, seen) = trial.finish();
    let bar = LEASE + Duration::from_millis(500);
    row(
        "node power loss",
        "new owner announced < lease + 0.5 s, with DAD + 2.2 s",
        &format!(
            "{}; {}; {}",
            side_by_side("announced", announced),
            side_by_side("gap", held.gaps(&report)),
            seen.timelines()?
        ),
        announced.0 < bar && announced.1 < bar + DAD && seen.never_two()?,
    );
    Ok(())
}

#[tokio::test]
async fn a_node_cut_off_from_the_api_withdraws_in_time() -> Result<()> {
    let (cluster, held) = held_by_a().await?;
    let vips = &held.vips;
    let mut trial = Trial::start(&cluster, "x", vips).await?;
    trial.begin();
    cluster.node("a").cut(Cut::Api)?;
    let mut gone = Duration::ZERO;
    for vip in vips {
        gone = gone.max(trial.withdrawn(*vip, "a").await?);
    }
    let announced = held.announced(&trial).await?;
    trial.until_answered_by(|n| n != "a").await?;
    let (report, seen) = trial.finish();
    row(
        "API partition of one node",
        "withdrawn at the renew deadline, never two owners",
        &format!(
            "withdrawn after {}; {}; {}; {}",
            millis(gone),
            side_by_side("announced by another", announced),
            side_by_side("gap", held.gaps(&report)),
            seen.timelines()?
        ),
        gone <= RENEW_DEADLINE + Duration::from_millis(500) && seen.never_two()?,
    );
    let status: Vec<String> = cluster.daemon("a").told().into_iter().map(|(_, text)| text).collect();
    assert!(status.iter().any(|s| s.starts_with("STATUS=fenced")), "it says so: {status:?}");

    // The API is back: the address returns, and never nobody has it.
    let mut trial = Trial::start(&cluster, "x", vips).await?;
    trial.begin();
    cluster.node("a").heal(&Cut::Api)?;
    for vip in vips {
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
    let (cluster, held) = held_by_a().await?;
    let vips = &held.vips;
    let mut trial = Trial::start(&cluster, "x", vips).await?;
    trial.begin();
    cluster.node("a").pull_carrier("lan")?;
    let announced = held.announced(&trial).await?;
    trial.until_answered_by(|n| n != "a").await?;
    let (report, seen) = trial.finish();
    let bar = Duration::from_secs(1);
    row(
        "carrier lost",
        "other node announced < 1 s, with DAD + 2.2 s",
        &format!("{}; {}", side_by_side("announced", announced), side_by_side("gap", held.gaps(&report))),
        announced.0 < bar && announced.1 < bar + DAD,
    );
    drop(seen);
    let mut trial = Trial::start(&cluster, "x", vips).await?;
    trial.begin();
    cluster.node("a").restore_carrier("lan")?;
    for vip in vips {
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
    let mut trial = Trial::start(&cluster, "x", vips).await?;
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
        &format!("{during} move; {}; {}", side_by_side("gap", held.gaps(&report)), seen.timelines()?),
        during <= 1,
    );
    for vip in vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    Ok(())
}
