//! The main job, shown: a cluster of three nodes in network namespaces, an API server,
//! the allocator and a daemon per node, all as they are shipped. A client asks for the
//! addresses a thousand times a second while a node is drained and another is lost.

#![allow(clippy::print_stdout, reason = "a demonstration talks")]

mod cluster;
mod screen;
mod words;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use cluster::Cluster;
use purelb_kit::lab::now;
use screen::{Row, Screen};
use words::{Step, together};

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
    screen.say("Three nodes and a client, each a network namespace, joined by a segment. The show takes about 40 seconds.");
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
        "The allocator gave them {} addresses, IPv4 and IPv6. {:.1} s after the first was created each was on one node.",
        cluster.vips().len(),
        began.elapsed().as_secs_f64()
    ));
    cluster.start_probing()?;

    let drained = cluster.busiest()?;
    screen.step(2, &format!("Maintenance: purelbctl drain on {drained}."));
    let from = now();
    let (its, before, began) = (cluster.held_by(&drained)?, cluster.rows()?, Instant::now());
    let said = cluster.purelbctl(&drained, &["drain"]).await?;
    screen.quote(&said);
    watch(&mut screen, &cluster, "nothing left on the drained node", PATIENCE, |c| {
        Ok(c.held_by(&drained)?.is_empty().then_some(()))
    })
    .await?;
    let took = began.elapsed();
    let after = settle(&mut screen, &cluster, Duration::from_secs(2)).await?;
    let timelines = cluster.timelines()?;
    let (before, after, timelines) = (&before[..], &after[..], &timelines[..]);
    let step = Step { node: &drained, its: &its, before, after, timelines, from, took };
    screen.say(&step.drained());

    screen.step(3, &format!("Back to work: purelbctl undrain on {drained}."));
    let (from, before, began) = (now(), cluster.rows()?, Instant::now());
    let said = cluster.purelbctl(&drained, &["undrain"]).await?;
    screen.quote(&said);
    watch(&mut screen, &cluster, "the node has addresses again", PATIENCE, |c| {
        Ok((!c.held_by(&drained)?.is_empty()).then_some(()))
    })
    .await?;
    let took = began.elapsed();
    let after = settle(&mut screen, &cluster, Duration::from_secs(2)).await?;
    let (its, timelines) = (cluster.held_by(&drained)?, cluster.timelines()?);
    let (before, after, timelines) = (&before[..], &after[..], &timelines[..]);
    screen.say(&Step { node: &drained, its: &its, before, after, timelines, from, took }.returned());

    let victim = cluster.busiest()?;
    screen.step(4, &format!("Disaster: {victim} loses power."));
    let lease = cluster.lease_of(&victim).await?;
    let (its, power_lost, before, began) =
        (cluster.held_by(&victim)?, now(), cluster.rows()?, Instant::now());
    cluster.power_off(&victim)?;
    watch(&mut screen, &cluster, "the survivors hold everything", PATIENCE, |c| {
        Ok(c.all_owned()?.then_some(()))
    })
    .await?;
    let took = began.elapsed();
    let after = settle(&mut screen, &cluster, Duration::from_secs(2)).await?;
    let timelines = cluster.timelines()?;
    let (before, after, timelines) = (&before[..], &after[..], &timelines[..]);
    screen.say(
        &Step { node: &victim, its: &its, before, after, timelines, from: power_lost, took }
            .power_lost(lease),
    );

    let report = cluster.stop_probing().context("the prober was running")?;
    screen.say(&format!(
        "\nIn all the client sent {} probes and lost {}; the longest silence of an address was {:.1} s. {}",
        report.sent(),
        report.lost(),
        report.gap().as_secs_f64(),
        together(&cluster.timelines()?, power_lost)
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

/// Lets the client go on for a while, so that what was lost is known to be lost. Answers
/// with the table it drew last, which the words are made from.
async fn settle(screen: &mut Screen, cluster: &Cluster, time: Duration) -> Result<Vec<Row>> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        screen.live(&cluster.rows()?);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let rows = cluster.rows()?;
    screen.table(&rows);
    Ok(rows)
}
