//! What one step of the engine costs, by size of the cluster; beside it, for the
//! steps that decide winners anew, the plain way: every candidate of every address
//! sorted by a comparator that hashes both sides.

#![allow(clippy::print_stdout, reason = "the table is what this program is for")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use purelb_core::config::EngineConfig;
use purelb_core::election::score;
use purelb_core::facts::*;
use purelb_core::messages::*;
use purelb_core::{Engine, Family, IfIndex, IfName, InstanceId, Mono, NodeName, ObjectKey, Vip};

const SUBNET: &str = "10.0.0.0/16";
const RUNS: usize = 11;

fn node(n: usize) -> NodeName {
    NodeName::new(&format!("node-{n:04}")).expect("a node name")
}

fn vip(n: usize) -> Vip {
    format!("10.0.{}.{}", 1 + n / 250, 1 + n % 250).parse().expect("an address")
}

fn lease(n: usize, renewal: u64, draining: bool) -> LeaseFacts {
    LeaseFacts {
        node: node(n),
        instance: InstanceId::new(&format!("run-{n}")).ok(),
        duration_seconds: 10,
        renewal: renewal.to_string(),
        subnets: BTreeSet::from([SUBNET.parse().expect("a prefix")]),
        draining: draining.then(|| "2026-01-01T00:00:00Z".to_owned()),
        announced: Some(BTreeSet::new()),
        declined: Some(BTreeSet::new()),
        rank: Some(Rank::First),
        macs: Some(BTreeSet::new()),
        control_endpoint: None,
    }
}

fn service(n: usize) -> ServiceFacts {
    ServiceFacts {
        key: ObjectKey::of("bench", &format!("service-{n}")).expect("a key"),
        vips: BTreeSet::from([vip(n)]),
        group: None,
        only_local_endpoints: false,
        prefer_endpoints: false,
        slots: BTreeMap::new(),
    }
}

/// A node that has listed everything but Services, and written its Lease.
fn started(nodes: usize) -> (Engine, Mono) {
    let now = Mono::from_millis(1_000);
    let mut engine = Engine::new(EngineConfig::new(node(0), InstanceId::new("me").expect("an id")));
    let eth0 = IfIndex(2);
    let address = AddrFacts {
        index: eth0,
        net: "10.0.0.5/16".parse().expect("a prefix"),
        ours: false,
        link_local: false,
        tentative: false,
        dad_failed: false,
        deprecated: false,
        permanent: true,
        no_prefix_route: false,
    };
    let name = IfName::new("eth0").expect("a name");
    let dump = KernelDump {
        links: vec![LinkFacts {
            index: eth0,
            name,
            loopback: false,
            up: true,
            carrier: true,
            mac: None,
            ours: false,
        }],
        addresses: vec![address],
        default_routes: vec![DefaultRoute { family: Family::V4, metric: 0, index: eth0, gateway: None }],
    };
    let facts = |n| NodeFacts {
        name: node(n),
        uid: n.to_string(),
        labels: BTreeMap::new(),
        out_of_service: false,
        excluded: false,
        impaired: None,
        addresses: BTreeSet::new(),
    };
    let agent = AgentFacts {
        key: ObjectKey::of("purelb-system", "default").expect("a key"),
        selector: Selector::default(),
        config: Ok(AgentConfig::default()),
    };
    let ranges = vec![RangeFacts::whole(SUBNET.parse().expect("a prefix"), None)];
    let group = GroupFacts::of_ranges("default", PoolType::Local, ranges);
    let inputs = [
        Input::Groups(FactsUpdate::All(vec![group])),
        Input::Endpoints(FactsUpdate::All(vec![])),
        Input::Agents(FactsUpdate::All(vec![agent])),
        Input::Nodes(FactsUpdate::All((0..nodes).map(facts).collect())),
        Input::Kernel(dump),
        Input::Leases(FactsUpdate::All((1..nodes).map(|n| lease(n, 0, false)).collect())),
    ];
    for input in inputs {
        for effect in engine.step(now, input) {
            if let Effect::WriteLease(write) = effect {
                let result = Ok(LeaseRenewal { renewal: "own".to_owned() });
                engine.step(now, Input::LeaseWritten { seq: write.seq, sent_at: now, result });
            }
        }
    }
    (engine, now)
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The plain way for all addresses: measured on some, scaled to all.
fn plain(nodes: usize, vips: usize) -> Duration {
    let names: Vec<String> = (0..nodes).map(|n| node(n).to_string()).collect();
    let subnets: Vec<&str> = vec![SUBNET; nodes];
    let sample = vips.min(20_000 / nodes);
    let taken = timed(|| {
        for n in 0..sample {
            let ip = vip(n);
            let contains = |net: &str| net.parse::<ipnet::IpNet>().is_ok_and(|net| net.contains(&ip.ip()));
            let both = names.iter().zip(&subnets);
            let mut candidates: Vec<&String> = both.filter(|(_, s)| contains(s)).map(|(n, _)| n).collect();
            let bid = |node: &str| score(node, &ip.to_string());
            #[allow(clippy::unnecessary_sort_by, reason = "hashing both sides is the plain way")]
            candidates.sort_by(|a, b| bid(a).cmp(&bid(b)));
            black_box(candidates.first());
        }
    });
    taken.mul_f64(vips as f64 / sample as f64)
}

fn show(time: Duration) -> String {
    let ns = time.as_secs_f64() * 1e9;
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} us", ns / 1e3),
        ..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

fn row(what: &str, ours: Duration, plain: Option<Duration>) {
    let (beside, ratio) = plain.map_or((String::new(), String::new()), |p| {
        (show(p), format!("{:.0}x", p.as_secs_f64() / ours.as_secs_f64()))
    });
    println!("  {what:<44} {:>10} {beside:>10} {ratio:>9}", show(ours));
}

fn size(nodes: usize, vips: usize) {
    println!("{nodes} nodes x {vips} addresses{:>38} {:>10} {:>9}", "ours", "plain way", "ratio");
    let (mut engine, now) = started(nodes);
    let services: Vec<ServiceFacts> = (0..vips).map(service).collect();
    let anew = timed(|| {
        black_box(engine.step(now, Input::Services(FactsUpdate::All(services))));
    });
    let by_hand = plain(nodes, vips);
    row("all decided from nothing, addresses planned", anew, Some(by_hand));

    let mut renewal = 1;
    let mut step = |make: &mut dyn FnMut(u64) -> Input| {
        let times = (0..RUNS).map(|_| {
            renewal += 1;
            let input = make(renewal);
            timed(|| {
                black_box(engine.step(now, input));
            })
        });
        median(times.collect())
    };
    let again = step(&mut |_| Input::Command(Command::Resync));
    row("all planned again, nothing changed", again, Some(by_hand));
    let changed = step(&mut |r| Input::Leases(FactsUpdate::Set(lease(nodes - 1, r, r % 2 == 0))));
    row("one Lease changes: a node drains, or comes back", changed, Some(by_hand));
    let renewed = step(&mut |r| Input::Leases(FactsUpdate::Set(lease(nodes / 2, r, false))));
    row("one Lease is renewed, nothing else", renewed, None);
    let created = step(&mut |r| {
        Input::Services(FactsUpdate::Set(ServiceFacts { prefer_endpoints: r % 2 == 0, ..service(vips / 2) }))
    });
    row("one Service changes", created, None);
}

fn main() {
    println!("A step of the engine (median of {RUNS}; the plain way is measured on a sample and scaled)");
    for nodes in [10, 100, 1_000] {
        for vips in [100, 10_000] {
            size(nodes, vips);
        }
    }
}
