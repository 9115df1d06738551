//! What the shipped daemon does and costs, by size: figures for `make bench`.
//!
//! Release builds of the daemon in the lab, on a real API server. Nothing is asserted
//! but that it works: times depend on the machine, and the lines name the sizes.
//!
//!   figures [announce] [drain] [rest]      default: all

#![allow(clippy::print_stdout, reason = "the tables are what this program is for")]

use std::time::Duration;

use anyhow::{Context, Result, bail};
use purelb_core::Mono;
use purelb_e2e::{Cluster, Served, Trial, Usage, Wish, own_plane, vip};
use purelb_kit::controlplane::ControlPlane;
use purelb_kit::lab::{Change, Lab, LabBuilder, now};
use purelb_kit::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(120);
/// How many Services the latency is taken from.
const SAMPLES: usize = 200;
/// How long a cluster at rest is looked at.
const REST: Duration = Duration::from_secs(30);
/// Repeated announcements and slots are over by then.
const CALM: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if wanted.is_empty() {
        wanted = ["announce", "drain", "rest"].map(str::to_owned).to_vec();
    }
    for part in wanted {
        match part.as_str() {
            "announce" => announce().await?,
            "drain" => drain().await?,
            "rest" => rest().await?,
            other => bail!("there is no '{other}': use announce, drain or rest"),
        }
    }
    Ok(())
}

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("n{n}")).collect()
}

fn lab(nodes: &[String]) -> LabBuilder {
    let lab = Lab::builder().segment("lan", ["10.10.0.0/16", "2001:db8:1::/64"]).router("r", ["lan"]);
    let lab = lab.client("x", ["lan"]);
    nodes.iter().fold(lab, |lab, name| lab.node(name, ["lan"]))
}

/// A cluster of release builds, all of them ready.
async fn cluster<'p>(plane: &'p ControlPlane, nodes: &[String]) -> Result<Cluster<'p>> {
    let mut cluster = Cluster::new(plane, lab(nodes)).await?;
    for name in nodes {
        cluster.join(name).await?;
    }
    for name in nodes {
        cluster.daemon(name).ready(PATIENCE).await?;
    }
    Ok(cluster)
}

async fn until(at: Mono) -> Result<()> {
    eventually("time passes", 2 * PATIENCE, || async move { if now() >= at { Ok(()) } else { Err(()) } })
        .await
}

/// The middle, and the one that 99 of 100 are below.
fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |q: usize| times[(times.len() * q / 100).min(times.len() - 1)].as_secs_f64() * 1000.0;
    format!("p50 {:6.1} ms  p99 {:6.1} ms", at(50), at(99))
}

/// From the moment the status is sent to the API server until a kernel has the address,
/// and until the wire hears of it.
async fn announce() -> Result<()> {
    println!("Service's status sent -> address on the interface -> first GARP or NA, {SAMPLES} Services");
    let plane = own_plane().await?;
    for count in [1, 3, 6] {
        let nodes = names(count);
        let cluster = cluster(&plane, &nodes).await?;
        let (kernel, wire) = (cluster.lab.watch_addresses()?, cluster.lab.observe()?);
        let mut times: [Vec<Duration>; 5] = Default::default();
        for n in 0..SAMPLES {
            let v4 = vip(&format!("10.10.{}.{}", 1 + n / 200, 1 + n % 200));
            let v6 = vip(&format!("2001:db8:1::1:{n:x}"));
            let (sent, set) = cluster.serve(Wish::new(&format!("web{n}"), [v4, v6])).await?;
            times[0].push(set.since(sent));
            for (i, ip) in [v4, v6].into_iter().enumerate() {
                let (there, said) = eventually(&format!("{ip} is announced"), PATIENCE, || {
                    let events = kernel.events(ip);
                    let there = events.iter().find(|e| e.change == Change::Set).map(|e| e.at.since(sent));
                    let said = wire.announcements(ip).first().map(|c| c.at.since(sent));
                    async move { there.zip(said).ok_or((there, said)) }
                })
                .await?;
                times[1 + 2 * i].push(there);
                times[2 + 2 * i].push(said);
            }
        }
        let [write, there4, said4, there6, said6] = times.map(quantiles);
        println!("  {count:>2} nodes  the write itself      {write}");
        println!("            IPv4 on the interface {there4}   announced {said4}");
        println!("            IPv6 on the interface {there6}   announced {said6}");
    }
    Ok(())
}

/// A stop of a node that holds many.
async fn drain() -> Result<()> {
    println!("a node that holds so many addresses is stopped; a client asks 1,000 times a second");
    let plane = own_plane().await?;
    for count in [10, 100, 1000] {
        let nodes = names(2);
        let cluster = cluster(&plane, &nodes).await?;
        let vips = cluster.won_by("n1", &["n1", "n2"], count / 2, 0)?;
        for (i, some) in vips.chunks(20).enumerate() {
            cluster.serve(Wish::new(&format!("web{i}"), some.to_vec())).await?;
        }
        for ip in &vips {
            cluster.holder_where(*ip, "on n1", |n| n == "n1").await?;
        }
        let mut trial = Trial::start(&cluster, "x", &vips).await?;
        let began = trial.begin();
        let ended = cluster.daemon("n1").terminate(PATIENCE).await?;
        trial.until_answered_by(|n| n == "n2").await?;
        let last = vips.iter().filter_map(|v| trial.timeline(*v).ok()?.first_held_by("n2")).max();
        let taken = last.context("n2 holds them")?.since(began);
        let (report, _) = trial.finish();
        println!(
            "  {count:>5} addresses  all taken after {:7.1} ms  ended after {:7.1} ms  {} of {} probes lost",
            taken.as_secs_f64() * 1000.0,
            ended.as_secs_f64() * 1000.0,
            report.lost(),
            report.sent()
        );
    }
    Ok(())
}

/// Memory, processor and requests of a cluster in which nothing happens.
async fn rest() -> Result<()> {
    println!(
        "at rest for {} s, per node (the largest; requests as the API server counts them)",
        REST.as_secs()
    );
    for (count, services) in [(3, 0), (3, 100), (3, 1000), (1, 100), (10, 100), (30, 100)] {
        let plane = own_plane().await?;
        until(now() + CALM).await?;
        let idle = per_minute(&plane, CALM).await?;
        let nodes = names(count);
        let cluster = cluster(&plane, &nodes).await?;
        for n in 0..services {
            let ip = vip(&format!("10.10.{}.{}", 1 + n / 200, 1 + n % 200));
            cluster.serve(Wish::new(&format!("web{n}"), [ip])).await?;
        }
        for n in 0..services {
            cluster.one_holder(vip(&format!("10.10.{}.{}", 1 + n / 200, 1 + n % 200))).await?;
        }
        until(now() + CALM).await?;
        let usage = |nodes: &[String]| -> Result<Vec<Usage>> {
            nodes.iter().map(|n| Usage::of(cluster.daemon(n).pid())).collect()
        };
        let said = |nodes: &[String]| -> Result<u64> {
            nodes.iter().map(|n| cluster.node(n).frames_sent("eth0")).sum()
        };
        let (before, spoken, began) = (usage(&nodes)?, said(&nodes)?, now());
        let served = per_minute(&plane, REST).await?;
        let seconds = now().since(began).as_secs_f64();
        let (after, spoken) = (usage(&nodes)?, said(&nodes)? - spoken);
        let rss = after.iter().map(|u| u.rss_kib).max().unwrap_or_default();
        let used = before.iter().zip(&after);
        let cpu = used.clone().map(|(b, a)| (a.cpu - b.cpu).as_secs_f64()).fold(0.0, f64::max);
        let wakes = used.map(|(b, a)| a.wakeups - b.wakeups).max().unwrap_or_default();
        let each = |all: f64, without: f64| (all - without).max(0.0) / count as f64;
        println!(
            "  {count:>2} nodes {services:>5} Services  {:5.1} MiB  {:5.2} % of a core  {:5.0} wake-ups/min  \
             {:5.1} requests/min  {:6.1} watch events/min  {:5.0} frames/s on the segment, of all",
            rss as f64 / 1024.0,
            cpu / seconds * 100.0,
            wakes as f64 / seconds * 60.0,
            each(served.requests, idle.requests),
            each(served.events, idle.events),
            spoken as f64 / seconds,
        );
    }
    Ok(())
}

/// What the API server served in a while, per minute.
async fn per_minute(plane: &ControlPlane, time: Duration) -> Result<Served> {
    let client = plane.admin()?;
    let (before, began) = (Served::of(&client).await?, now());
    until(began + time).await?;
    let after = Served::of(&client).await?;
    let minutes = now().since(began).as_secs_f64() / 60.0;
    Ok(Served {
        requests: (after.requests - before.requests) / minutes,
        patches: (after.patches - before.patches) / minutes,
        events: (after.events - before.events) / minutes,
    })
}
