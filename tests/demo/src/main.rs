//! The main job, shown: a cluster of three nodes in network namespaces, an API server,
//! the allocator and a daemon per node, all as they are shipped. A client asks for the
//! addresses a thousand times a second while a node is drained and another is lost.

#![allow(clippy::print_stdout, reason = "a demonstration talks")]

mod cluster;
mod screen;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use cluster::Cluster;
use screen::Screen;

/// A lost node's addresses move when its Lease has run out; this is what we wait at
/// most, with room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let keep = std::env::var("KEEP").is_ok_and(|v| !v.is_empty() && v != "0");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(show(keep))
}

async fn show(keep: bool) -> Result<()> {
    let mut screen = Screen::new(std::io::stdout().is_terminal());
    screen.say("Building three nodes and a client, each a network namespace, joined by a segment …");
    let mut cluster = Cluster::start().await?;
    screen.say(&cluster.describe());

    screen.step(1, "Four LoadBalancer Services are created.");
    let began = Instant::now();
    cluster.create_services(4).await?;
    watch(&mut screen, &cluster, "every address has one owner", PATIENCE, |c| {
        Ok(c.all_owned()?.then_some(()))
    })
    .await?;
    screen.say(&format!(
        "The allocator gave them {} addresses, IPv4 and IPv6. For each, the nodes whose subnet contains it \
         elected one owner, which put it on eth0 and told the segment; all of it took {:.1} s.",
        cluster.vips().len(),
        began.elapsed().as_secs_f64()
    ));
    cluster.start_probing()?;

    let drained = cluster.busiest()?;
    screen.step(2, &format!("Maintenance: purelbctl drain on {drained}."));
    let before = cluster.lost();
    let began = Instant::now();
    let said = cluster.purelbctl(&drained, &["drain"]).await?;
    screen.quote(&said);
    watch(&mut screen, &cluster, "nothing left on the drained node", PATIENCE, |c| {
        Ok(c.held_by(&drained)?.is_empty().then_some(()))
    })
    .await?;
    let took = began.elapsed();
    settle(&mut screen, &cluster, Duration::from_secs(2)).await?;
    screen.say(&format!(
        "{drained} handed each address to the next in line and let go only after that one had said it has it: \
         {} probes lost, done in {:.2} s.",
        cluster.lost() - before,
        took.as_secs_f64()
    ));

    screen.step(3, &format!("Back to work: purelbctl undrain on {drained}."));
    let before = cluster.lost();
    let said = cluster.purelbctl(&drained, &["undrain"]).await?;
    screen.quote(&said);
    watch(&mut screen, &cluster, "the node has addresses again", PATIENCE, |c| {
        Ok((!c.held_by(&drained)?.is_empty()).then_some(()))
    })
    .await?;
    settle(&mut screen, &cluster, Duration::from_secs(2)).await?;
    screen.say(&format!("It got back what it wins, the same way: {} probes lost.", cluster.lost() - before));

    let victim = cluster.busiest()?;
    let orphans = cluster.held_by(&victim)?;
    screen.step(4, &format!("Disaster: {victim} loses power."));
    let before = cluster.lost();
    let began = Instant::now();
    cluster.power_off(&victim)?;
    watch(&mut screen, &cluster, "the survivors hold everything", PATIENCE, |c| {
        Ok(c.all_owned()?.then_some(()))
    })
    .await?;
    let took = began.elapsed();
    settle(&mut screen, &cluster, Duration::from_secs(2)).await?;
    screen.say(&format!(
        "Nobody could be asked, so the others waited until its Lease had run out (10 s), and then took over its \
         {} address(es) at once: {:.1} s after the plug was pulled. In between {} probes went unanswered; \
         the addresses of the other nodes lost none.",
        orphans.len(),
        took.as_secs_f64(),
        cluster.lost() - before
    ));

    let report = cluster.stop_probing().context("the prober was running")?;
    screen.say(&format!(
        "\nIn all the client sent {} probes; the longest silence of an address was {:.1} s. No address was ever on two \
         nodes outside a handover: {:.0} ms of overlap in the longest one.",
        report.sent(),
        report.gap().as_secs_f64(),
        cluster.longest_overlap()?.as_secs_f64() * 1e3
    ));
    if keep {
        screen.say(&cluster.hands_on());
        tokio::signal::ctrl_c().await?;
    }
    screen.say("Cleaning up.");
    Ok(())
}

/// Redraws until the condition holds.
async fn watch<T>(
    screen: &mut Screen,
    cluster: &Cluster,
    what: &str,
    within: Duration,
    condition: impl Fn(&Cluster) -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    let mut drawn = Instant::now();
    loop {
        if let Some(found) = condition(cluster)? {
            screen.table(&cluster.rows()?);
            return Ok(found);
        }
        if began.elapsed() > within {
            anyhow::bail!("{what}: not within {within:?}\n{}", cluster.logs());
        }
        if drawn.elapsed() > Duration::from_millis(250) {
            screen.live(&cluster.rows()?);
            drawn = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Lets the client go on for a while, so that what was lost is known to be lost.
async fn settle(screen: &mut Screen, cluster: &Cluster, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        screen.live(&cluster.rows()?);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    screen.table(&cluster.rows()?);
    Ok(())
}
