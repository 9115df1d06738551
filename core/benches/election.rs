//! What a decision costs, beside the plain way of taking it, in one run.
//!
//! The plain way keeps nothing: for each VIP it parses every member's subnets from text,
//! and sorts the candidates with a comparator that hashes both sides. Both ways use the
//! same SHA-256, and every winner compared here is asserted to be the same.

#![allow(clippy::print_stdout, reason = "the table is what this program is for")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use purelb_core::election::{Candidacy, Election, RankedCandidate, Restriction, score};
use purelb_core::facts::Rank;
use purelb_core::{NodeName, Vip};

/// How often each kind of lease change is measured.
const CHANGES: usize = 21;

/// A kind of cluster: how nodes are called, where they are, and the n-th VIP.
struct Shape {
    name: &'static str,
    node: fn(usize) -> String,
    subnets: &'static str,
    /// Half of the VIPs' subnet and less: for the node whose subnets change.
    narrowed: &'static str,
    vip: fn(usize) -> String,
}

const SHORT: Shape = Shape {
    name: "IPv4, names like node-0123",
    node: |n| format!("node-{n:04}"),
    subnets: "10.0.0.5/16,fd00::5/64",
    narrowed: "10.0.0.5/20,fd00::5/64",
    vip: |n| format!("10.0.{}.{}", n / 250, n % 250),
};

/// Two blocks per hash instead of one.
const LONG: Shape = Shape {
    name: "IPv6, names like ip-10-0-01-23.eu-central-1.compute.internal",
    node: |n| format!("ip-10-0-{:02}-{:02}.eu-central-1.compute.internal", n / 100, n % 100),
    subnets: "10.0.0.5/16,2001:db8:aaaa:bbbb::5/64",
    narrowed: "10.0.0.5/16,2001:db8:aaaa:bbbb::5/116",
    vip: |n| format!("2001:db8:aaaa:bbbb::{n:x}"),
};

fn candidacy(text: &str) -> Candidacy {
    let parse = |net: &str| net.parse::<IpNet>().expect("a prefix");
    let subnets = text.split(',').map(parse).collect();
    Candidacy { subnets, eligible: true, declined: Default::default(), rank: Rank::First }
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a node name")
}

struct Cluster {
    nodes: Vec<String>,
    vips: Vec<Vip>,
    shape: Shape,
}

impl Cluster {
    fn new(shape: Shape, nodes: usize, vips: usize) -> Self {
        Self {
            nodes: (0..nodes).map(shape.node).collect(),
            vips: (0..vips).map(|n| (shape.vip)(n).parse().expect("an address")).collect(),
            shape,
        }
    }

    fn elected(&self) -> Election {
        let mut election = Election::new();
        for node in &self.nodes {
            election.upsert_member(name(node), candidacy(self.shape.subnets));
        }
        for vip in &self.vips {
            election.track(*vip, &Restriction::None);
        }
        election
    }

    /// The plain way, for one VIP.
    fn plain(&self, vip: Vip) -> Option<&str> {
        let contains = |net: &str| net.parse::<IpNet>().is_ok_and(|net| net.contains(&vip.ip()));
        let mut candidates: Vec<&str> = Vec::new();
        for node in &self.nodes {
            if self.shape.subnets.split(',').any(contains) {
                candidates.push(node);
            }
        }
        let bid = |node: &str| score(node, &vip.to_string());
        #[allow(clippy::unnecessary_sort_by, reason = "hashing both sides is the plain way")]
        candidates.sort_by(|a, b| bid(a).cmp(&bid(b)));
        candidates.first().copied()
    }

    /// VIPs spread over the whole list.
    fn sample(&self, count: usize) -> impl Iterator<Item = Vip> {
        let step = (self.vips.len() / count).max(1);
        self.vips.iter().step_by(step).take(count).copied()
    }
}

/// The median of several runs: one slow run on a busy machine does not show.
fn median(runs: usize, mut run: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..runs).map(|_| run()).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn show(time: Duration) -> String {
    let ns = time.as_secs_f64() * 1e9;
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.2} us", ns / 1e3),
        ..1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// What the bars are about.
struct Measured {
    nothing: Duration,
    cached: Duration,
    worst_change: Duration,
    plain: Duration,
}

fn measure(cluster: &Cluster) -> Measured {
    let (nodes, vips) = (cluster.nodes.len(), cluster.vips.len());
    println!("\n{nodes} nodes x {vips} VIPs, one subnet ({})", cluster.shape.name);
    println!("  {:<34}{:>12}{:>16}{:>12}", "", "ours", "plain way", "ratio");

    // The plain way on a sample of VIPs, about a tenth of a second or all of them.
    let share = (30_000 / nodes).clamp(30, vips);
    let mut agreed = Vec::with_capacity(share);
    let spent = timed(|| agreed.extend(cluster.sample(share).map(|vip| (vip, cluster.plain(vip)))));
    let plain = spent / u32::try_from(agreed.len()).expect("a small sample");
    let plain_all = plain.mul_f64(vips as f64);
    let mark = if agreed.len() < vips { "*" } else { " " };
    let row = |what: &str, ours: Duration, plain: Duration, mark: &str| {
        let ratio = plain.as_secs_f64() / ours.as_secs_f64();
        println!("  {what:<34}{:>12}{:>15}{mark}{ratio:>11.0}x", show(ours), show(plain));
    };

    let mut election = cluster.elected();
    for (vip, winner) in &agreed {
        assert_eq!(election.winner(*vip).map(NodeName::as_str), *winner, "standing, {vip}");
        let ours: Option<RankedCandidate> = election.elect(*vip);
        assert_eq!(ours.as_ref().map(|r| r.node.as_str()), *winner, "from nothing, {vip}");
    }

    let per_vip = |ask: &dyn Fn(Vip)| {
        let few: Vec<Vip> = cluster.sample(100).collect();
        median(9, || timed(|| few.iter().for_each(|vip| ask(*vip)))) / 100
    };
    let nothing = per_vip(&|vip| drop(black_box(election.elect(vip))));
    row("winner, from nothing", nothing, plain, " ");
    let all = || {
        for vip in &cluster.vips {
            black_box(election.winner(*vip));
        }
    };
    let cached = median(9, || timed(all)).div_f64(vips as f64);
    row("winner, from the cache", cached, plain, " ");
    row("full order", per_vip(&|vip| drop(black_box(election.order(vip)))), plain, " ");

    let runs = if nodes * vips > 1_000_000 { 1 } else { 5 };
    let all = median(runs, || timed(|| drop(black_box(cluster.elected()))));
    row("all VIPs, from nothing", all, plain_all, mark);

    let full = candidacy(cluster.shape.subnets);
    let narrow = candidacy(cluster.shape.narrowed);
    let mut step = 0;
    let mut next = || {
        step += 1;
        name(&cluster.nodes[step * 7 % nodes])
    };
    let (mut leave, mut join, mut lose, mut gain) = (vec![], vec![], vec![], vec![]);
    for _ in 0..CHANGES {
        let node = next();
        let fresh = (node.clone(), full.clone());
        leave.push(timed(|| election.remove_member(&node)));
        join.push(timed(|| election.upsert_member(fresh.0, fresh.1)));
        let (less, more) = ((node.clone(), narrow.clone()), (node, full.clone()));
        lose.push(timed(|| election.upsert_member(less.0, less.1)));
        gain.push(timed(|| election.upsert_member(more.0, more.1)));
    }
    let mut worst = Duration::ZERO;
    for (what, mut times) in [
        ("one lease: a node leaves", leave),
        ("one lease: a node joins", join),
        ("one lease: a node loses a subnet", lose),
        ("one lease: a node gains a subnet", gain),
    ] {
        times.sort_unstable();
        worst = worst.max(times[times.len() - 1]);
        row(what, times[times.len() / 2], plain_all, mark);
    }
    for (vip, winner) in &agreed {
        assert_eq!(election.winner(*vip).map(NodeName::as_str), *winner, "after all that, {vip}");
    }
    if mark == "*" {
        println!("  * measured on {} VIPs, scaled to {vips}", agreed.len());
    }
    Measured { nothing, cached, worst_change: worst, plain }
}

fn bar(what: &str, seen: &str, met: bool) {
    println!("  {what:<58}{seen:>10}  {}", if met { "met" } else { "MISSED" });
}

fn main() {
    #[cfg(target_arch = "x86_64")]
    let instructions = std::arch::is_x86_feature_detected!("sha");
    #[cfg(not(target_arch = "x86_64"))]
    let instructions = cfg!(target_feature = "sha2");
    println!("Election. This CPU has SHA-256 instructions: {instructions} (sha2 picks them at run time)");

    for nodes in [10, 100] {
        for vips in [100, 10_000] {
            measure(&Cluster::new(SHORT, nodes, vips));
        }
    }
    measure(&Cluster::new(SHORT, 1_000, 100));
    let large = measure(&Cluster::new(SHORT, 1_000, 10_000));
    let long = measure(&Cluster::new(LONG, 1_000, 10_000));

    println!("\nbars, at 1,000 nodes x 10,000 VIPs");
    let ratio = large.plain.as_secs_f64() / large.nothing.as_secs_f64();
    bar("from nothing, against the plain way: at least 20x", &format!("{ratio:.0}x"), ratio >= 20.0);
    let hash = large.nothing / 1_000;
    bar("per candidate, hash and all: about 100 ns", &show(hash), hash < Duration::from_nanos(150));
    bar("from the cache: under 1 us", &show(large.cached), large.cached < Duration::from_micros(1));
    for (what, worst) in [
        ("one lease change, the slowest of 84 seen: under 10 ms", large.worst_change),
        ("the same with IPv6 and long names: under 10 ms", long.worst_change),
    ] {
        bar(what, &show(worst), worst < Duration::from_millis(10));
    }
}
