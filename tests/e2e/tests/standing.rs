//! What a Node says about itself, and what its network forgets: with daemons as they are
//! shipped.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use purelb_e2e::{Cluster, Trial, Wish, losses, millis, row, shared_plane, vip};
use purelb_kit::lab::{Lab, LabBuilder, now};
use purelb_kit::wait::eventually;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

fn two_nodes() -> LabBuilder {
    Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .client("x", ["lan"])
}

/// Neither allocator nor certificates: the daemon heeds the label, unless it is told not to.
#[tokio::test]
async fn a_labelled_node_hands_over_and_says_so() -> Result<()> {
    let cluster = Cluster::start(shared_plane().await?, two_nodes()).await?;
    let vips = cluster.won_by("a", &["a", "b"], 2, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    cluster.announced_by("a", &vips).await?;
    let name = cluster.node_name("a");
    let label = |value: Value| Patch::Merge(json!({"metadata": {"labels": {EXCLUDE: value}}}));
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.nodes().patch(&name, &PatchParams::default(), &label(json!(""))).await?;
    for vip in &vips {
        trial.withdrawn(*vip, "a").await?;
    }
    let took = now().since(trial.at);
    trial.until_answered_by(|n| n == "b").await?;
    let (report, seen) = trial.finish();
    row(
        "Node labelled exclude-from-external-load-balancers",
        "0 lost, never without an owner",
        &format!(
            "{} of {} lost, done after {}; {}",
            report.lost(),
            report.sent(),
            millis(took),
            losses(&report, seen.at)
        ),
        report.lost() == 0 && seen.no_owner()? == Duration::ZERO,
    );
    let status = cluster.daemon("a").ctl("status").await?;
    assert!(status.out.contains(EXCLUDE), "it says why: {status:?}");
    assert!(!status.out.contains("drained since"), "that is no drain: {status:?}");
    // Its LBNodeAgent says otherwise, and the label is still there.
    cluster.agent("default", json!({"local": {"candidacy": {"excludeLabel": false}}})).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "back on a, labelled as it is", |n| n == "a").await?;
    }
    Ok(())
}

/// Runs `ip` on a node.
fn ip(cluster: &Cluster<'_>, node: &str, words: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(words.split_whitespace());
    let done = cluster.node(node).enter(move || command.output())??;
    ensure!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Another hardware address is told at once; what a switch forgets is told again.
#[tokio::test]
async fn a_new_hardware_address_and_a_refresh_are_announced() -> Result<()> {
    let mut cluster = Cluster::new(shared_plane().await?, two_nodes()).await?;
    cluster.agent("default", json!({"local": {"garpConfig": {"count": 1, "refresh": "10s"}}})).await?;
    cluster.join("a").await?.ready(PATIENCE).await?;
    let vips = [vip("192.0.2.100"), vip("2001:db8:1::100")];
    cluster.serve(Wish::new("web", vips)).await?;
    cluster.announced_by("a", &vips).await?;
    let wire = cluster.lab.observe()?;
    let other = "02:00:5e:00:53:01";
    let began = now();
    ip(&cluster, "a", &format!("link set dev eth0 address {other}"))?;
    // When each address was announced with it, since then.
    let told = |ip| -> Vec<_> {
        let with_it = wire.announcements(ip).into_iter().filter(|c| c.mac.to_string() == other);
        with_it.map(|c| c.at.since(began)).collect()
    };
    for vip in vips {
        eventually(&format!("{vip} is announced with the new hardware address"), PATIENCE, || {
            let seen = told(vip);
            async move { if seen.is_empty() { Err("not yet".to_owned()) } else { Ok(()) } }
        })
        .await
        .map_err(|error| error.context(cluster.words()))?;
        let first = told(vip)[0];
        assert!(first < Duration::from_secs(5), "{vip}: by itself, not with the refresh: {first:?}");
    }
    // The next ones come without any reason but time.
    let quiet = now().since(began) + Duration::from_secs(5);
    for vip in vips {
        eventually(&format!("{vip} is announced again"), PATIENCE, || {
            let later = told(vip).into_iter().find(|at| *at > quiet);
            async move { later.ok_or_else(|| "not yet".to_owned()) }
        })
        .await
        .map_err(|error| error.context(cluster.words()))?;
    }
    Ok(())
}

/// How often a thread of the daemon slept and was woken, by the thread's name.
fn wakes(cluster: &Cluster<'_>, node: &str, thread: &str) -> Result<u64> {
    let tasks = format!("/proc/{}/task", cluster.daemon(node).pid());
    for entry in std::fs::read_dir(&tasks)? {
        let dir = entry?.path();
        if std::fs::read_to_string(dir.join("comm"))?.trim() == thread {
            let status = std::fs::read_to_string(dir.join("status"))?;
            let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            return Ok(line.context("a count")?.trim().parse()?);
        }
    }
    anyhow::bail!("no thread {thread} in {tasks}")
}

/// Strangers may read the metrics, as often as they like: that is the control API's thread's
/// time. The engine's renews the Lease meanwhile.
#[tokio::test]
async fn scrapes_cost_the_engines_thread_nothing() -> Result<()> {
    const SCRAPES: u64 = 500;
    let cluster = Cluster::start(shared_plane().await?, two_nodes()).await?;
    let daemon = cluster.daemon("a");
    let engine = std::fs::read_to_string(format!("/proc/{}/comm", daemon.pid()))?;
    let look =
        || Ok::<_, anyhow::Error>((wakes(&cluster, "a", "control")?, wakes(&cluster, "a", engine.trim())?));
    let before = look()?;
    for _ in 0..SCRAPES {
        daemon.metrics()?;
    }
    let after = look()?;
    let (control, own) = (after.0 - before.0, after.1 - before.1);
    assert!(control >= SCRAPES, "{control} wakes of the control API's thread, {own} of the engine's");
    assert!(own < SCRAPES / 2, "{own} wakes of the engine's thread, {control} of the control API's");
    Ok(())
}
