//! The operator at work on real daemons: drains in every situation, and a client that
//! does not read.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use purelb_e2e::{Cluster, Trial, Wish, losses, millis, row, shared_plane};
use purelb_kit::lab::{Cut, Lab, LabBuilder};
use purelb_kit::wait::eventually;

const WITHIN: Duration = Duration::from_secs(30);

fn lab(nodes: &[&str]) -> LabBuilder {
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"]);
    nodes.iter().fold(lab, |lab, node| lab.node(node, ["lan"])).client("x", ["lan"])
}

async fn held_by_a<'p>(nodes: &[&str], count: usize) -> Result<(Cluster<'p>, Vec<std::net::IpAddr>)> {
    let cluster = Cluster::start(shared_plane().await?, lab(nodes)).await?;
    let vips = cluster.won_by("a", nodes, count, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    cluster.announced_by("a", &vips).await?;
    Ok((cluster, vips))
}

/// A drain, from the dry run to the undrain, with clients that must not notice.
#[tokio::test]
async fn a_drain_moves_everything_and_an_undrain_brings_it_back() -> Result<()> {
    let (cluster, vips) = held_by_a(&["a", "b", "c"], 3).await?;
    let a = cluster.daemon("a");
    let status = a.ctl("status -o json").await?;
    assert_eq!((status.code, &status.json()?["held"]), (0, &serde_json::json!(vips.len())), "{status:?}");

    let dry = a.ctl("drain --dry-run -o json").await?;
    assert_eq!((dry.code, &dry.json()?["result"]), (0, &serde_json::json!("dry-run")), "{dry:?}");
    let told = dry.json()?["remaining"].as_array().cloned().unwrap_or_default();
    assert_eq!(told.len(), vips.len());
    assert_eq!(a.ctl("status -o json").await?.json()?["drainingSince"], "", "a dry run changes nothing");

    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    let began = trial.begin();
    let drained = a.ctl("drain -o json").await?;
    let took = purelb_kit::lab::now().since(began);
    assert_eq!((drained.code, &drained.json()?["result"]), (0, &serde_json::json!("drained")), "{drained:?}");
    assert_eq!(drained.json()?["moved"], vips.len());
    trial.until_answered_by(|n| n != "a").await?;
    // Each went where the dry run said.
    for entry in told {
        let vip = entry["ip"].as_str().unwrap_or_default().parse()?;
        let holder = cluster.holder_where(vip, "elsewhere", |n| n != "a").await?;
        assert_eq!(entry["successor"], cluster.node_name(&holder), "{vip}");
    }
    let status = a.ctl("status -o json").await?;
    assert_eq!(
        (status.code, &status.json()?["held"]),
        (1, &serde_json::json!(0)),
        "drained is worth a warning"
    );
    let log = a.log();
    assert!(log.contains("audit: Drain by uid 0 "), "who did it is on record:\n{log}");

    let undrained = a.ctl("undrain").await?;
    assert_eq!(undrained.code, 0, "{undrained:?}");
    trial.until_answered_by(|n| n == "a").await?;
    for vip in &vips {
        cluster.holder_where(*vip, "back on a alone", |n| n == "a").await?;
    }
    let (report, seen) = trial.finish();
    row(
        "purelbctl drain and undrain",
        "0 lost",
        &format!(
            "{} of {} lost, drained in {}; {}",
            report.lost(),
            report.sent(),
            millis(took),
            losses(&report, seen.at)
        ),
        report.lost() == 0 && seen.no_owner()? == Duration::ZERO,
    );
    Ok(())
}

#[tokio::test]
async fn what_nobody_can_take_stays_unless_forced() -> Result<()> {
    let (cluster, vips) = held_by_a(&["a"], 1).await?;
    let a = cluster.daemon("a");
    let dry = a.ctl("drain --dry-run").await?;
    assert!(
        dry.code == 0 && dry.out.contains("(nobody)") && dry.out.contains("0 addresses would move"),
        "{dry:?}"
    );
    let left = a.ctl("drain").await?;
    assert_eq!(left.code, 3, "{left:?}");
    assert!(left.out.contains("stay") && left.err.contains("--force"), "{left:?}");
    for vip in &vips {
        cluster.holder_where(*vip, "still on a", |n| n == "a").await?;
    }
    let explained = a.ctl(&format!("explain {}", vips[0])).await?;
    assert!(explained.out.contains("draining; kept, since no other node can take it"), "{explained:?}");
    let forced = a.ctl("drain --force -o json").await?;
    assert_eq!((forced.code, &forced.json()?["result"]), (0, &serde_json::json!("drained")), "{forced:?}");
    for vip in &vips {
        assert!(cluster.holders(*vip)?.is_empty(), "withdrawn");
    }
    assert_eq!(a.ctl("undrain").await?.code, 0);
    for vip in &vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    Ok(())
}

/// Two at once follow the same drain; one that is interrupted leaves it running; a
/// daemon that restarts goes on with it.
#[tokio::test]
async fn a_drain_belongs_to_the_node_not_to_the_caller() -> Result<()> {
    let (mut cluster, vips) = held_by_a(&["a", "b"], 2).await?;
    let (first, second) = {
        let a = cluster.daemon("a");
        (a.ctl_start("drain -o json")?, a.ctl_start("drain -o json")?)
    };
    for one in [first.finish(WITHIN).await?, second.finish(WITHIN).await?] {
        assert_eq!((one.code, &one.json()?["result"]), (0, &serde_json::json!("drained")), "{one:?}");
    }
    cluster.daemon_mut("a").crash_and_restart()?;
    cluster.daemon("a").ready(WITHIN).await?;
    let status = cluster.daemon("a").ctl("status -o json").await?;
    assert_ne!(status.json()?["drainingSince"], "", "a restart does not end the drain");
    for vip in &vips {
        cluster.holder_where(*vip, "still on b", |n| n == "b").await?;
    }
    assert_eq!(cluster.daemon("a").ctl("drain").await?.code, 0, "done already");
    let again = cluster.daemon("a").ctl("undrain").await?;
    assert!(again.out.contains("undrained"), "{again:?}");
    assert!(cluster.daemon("a").ctl("undrain").await?.out.contains("was not draining"));
    Ok(())
}

#[tokio::test]
async fn an_interrupted_drain_goes_on() -> Result<()> {
    // b is cut off from the API, so that the handoff lasts until its deadline.
    let (cluster, vips) = held_by_a(&["a", "b"], 1).await?;
    let a = cluster.daemon("a");
    cluster.node("b").cut(Cut::Api)?;
    let caller = a.ctl_start("drain")?;
    eventually("the drain has begun", WITHIN, || async {
        match a.ctl("status -o json").await.and_then(|s| s.json()) {
            Ok(status) if status["drainingSince"] != "" => Ok(()),
            other => Err(other),
        }
    })
    .await?;
    caller.signal(Signal::SIGINT)?;
    let interrupted = caller.finish(WITHIN).await?;
    assert_eq!(interrupted.code, 130, "{interrupted:?}");
    assert!(interrupted.err.contains("the drain goes on"), "{interrupted:?}");
    cluster.node("b").heal(&Cut::Api)?;
    for vip in &vips {
        cluster.holder_where(*vip, "on b", |n| n == "b").await?;
    }
    assert_eq!(a.ctl("drain").await?.code, 0);
    Ok(())
}

#[tokio::test]
async fn a_drain_without_the_api_withdraws_and_says_so() -> Result<()> {
    let (cluster, vips) = held_by_a(&["a", "b"], 1).await?;
    let a = cluster.daemon("a");
    cluster.node("a").cut(Cut::Api)?;
    let drained = a.ctl("drain --timeout 30s").await?;
    assert_eq!(drained.code, 0, "{drained:?}");
    assert!(drained.out.contains("its Lease cannot say that it drains"), "{drained:?}");
    for vip in &vips {
        cluster.holder_where(*vip, "on b", |n| n == "b").await?;
    }
    cluster.node("a").heal(&Cut::Api)?;
    // Back on the API the node is still drained, and its Lease says so.
    eventually("the Lease says that it drains", WITHIN, || async {
        let lease = cluster.lease("a").await.ok().flatten();
        let said = lease.and_then(|l| l.metadata.annotations?.get("purelb.io/draining").cloned());
        said.map(drop).ok_or("no mark")
    })
    .await?;
    for vip in &vips {
        cluster.holder_where(*vip, "still on b", |n| n == "b").await?;
    }
    Ok(())
}

/// Clients that hang hold nobody up: not the engine, not each other.
#[tokio::test]
async fn stuck_clients_cost_nobody_anything() -> Result<()> {
    let (cluster, vips) = held_by_a(&["a", "b"], 2).await?;
    let a = cluster.daemon("a");
    let trial = Trial::start(&cluster, "x", &vips).await?;
    // In the middle of a stream, not on their way to it.
    let file = |n: usize| a.node.dir().join(format!("stuck-{n}"));
    let stuck: Vec<_> = (0..20).map(|n| a.ctl_into("get vips --watch", &file(n))).collect::<Result<_>>()?;
    for (n, one) in stuck.iter().enumerate() {
        eventually("the watch has begun", WITHIN, || async {
            match std::fs::metadata(file(n)).map(|m| m.len()) {
                Ok(0) | Err(_) => Err(n),
                Ok(_) => Ok(()),
            }
        })
        .await?;
        one.signal(Signal::SIGSTOP)?;
    }
    // And some that connect and say nothing at all.
    let path = a.node.dir().join("control.sock");
    let silent: Vec<_> =
        (0..20).map(|_| std::os::unix::net::UnixStream::connect(&path)).collect::<Result<_, _>>()?;
    for round in 0..20 {
        let resynced = a.ctl("resync -o json").await?;
        assert_eq!(resynced.code, 0, "round {round}: {resynced:?}");
    }
    let drained = a.ctl("drain -o json").await?;
    assert_eq!(drained.code, 0, "{drained:?}");
    trial.until_answered_by(|n| n == "b").await?;
    drop((stuck, silent));
    let (report, seen) = trial.finish();
    row(
        "stuck clients of the control API",
        "0 lost",
        &format!("{} of {} lost; {}", report.lost(), report.sent(), losses(&report, seen.at)),
        report.lost() == 0,
    );
    Ok(())
}
