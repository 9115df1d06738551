//! What happens all the time, or all at once, at a large node of a large cluster: addresses
//! are held and announced, every change is answered, and a picture is drawn after each step
//! as the daemon does. Beside each figure its bar. Measured is the time that this thread had
//! on a processor, so that what else the machine does counts little.

#![allow(clippy::print_stdout, reason = "the table is what this program is for")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use purelb_core::config::EngineConfig;
use purelb_core::facts::*;
use purelb_core::messages::*;
use purelb_core::{Engine, Family, IfIndex, IfName, InstanceId, Mono, NodeName, ObjectKey, Vip};

const NODES: usize = 1_000;
const VIPS: usize = 10_000;
const VETHS: u32 = 250;
const DUMMY: IfIndex = IfIndex(3);
const REMOTE: &str = "10.99.0.0/16";
const SUBNET: &str = "10.0.0.0/16";
const ETH0: IfIndex = IfIndex(2);
const RUNS: usize = 11;

fn node(n: usize) -> NodeName {
    NodeName::new(&format!("node-{n:04}")).expect("a node name")
}

fn vip(pool: PoolType, n: usize) -> Vip {
    let second = if pool == PoolType::Local { 0 } else { 99 };
    format!("10.{second}.{}.{}", 1 + n / 250, 1 + n % 250).parse().expect("an address")
}

/// How long this thread ran so far.
fn ran() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into()
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

fn service(pool: PoolType, n: usize) -> ServiceFacts {
    ServiceFacts {
        key: ObjectKey::of("bench", &format!("service-{n}")).expect("a key"),
        vips: BTreeSet::from([vip(pool, n)]),
        group: None,
        only_local_endpoints: false,
        prefer_endpoints: false,
        slots: BTreeMap::new(),
    }
}

fn address(index: IfIndex, net: &str, ours: bool) -> AddrFacts {
    AddrFacts {
        index,
        net: net.parse().expect("a prefix"),
        ours,
        link_local: false,
        tentative: false,
        dad_failed: false,
        deprecated: false,
        permanent: !ours || index == DUMMY,
        no_prefix_route: ours,
    }
}

fn link(index: u32, name: &str, carrier: bool) -> LinkFacts {
    let name = IfName::new(name).expect("a name");
    LinkFacts { index: IfIndex(index), name, loopback: false, up: true, carrier, mac: None, ours: false }
}

fn veth(n: u32, carrier: bool) -> LinkFacts {
    link(100 + n, &format!("veth{n:08x}"), carrier)
}

/// One node whose every wish comes true at once.
struct World {
    engine: Engine,
    now: Mono,
    renewals: u64,
    others_drain: bool,
    /// Our Lease as it stands.
    own: LeaseFacts,
}

impl World {
    /// `others_drain`: so that this node has every address of a local pool.
    fn new(pool: PoolType, others_drain: bool) -> Self {
        let engine = Engine::new(EngineConfig::new(node(0), InstanceId::new("me").expect("an id")));
        let mut world = Self {
            engine,
            now: Mono::from_millis(1_000_000),
            renewals: 0,
            others_drain,
            own: lease(0, 0, false),
        };
        let mut links = vec![link(2, "eth0", true), link(DUMMY.0, "kube-lb0", true)];
        links.extend((0..VETHS).map(|n| veth(n, true)));
        let mut addresses = vec![address(ETH0, "10.0.0.5/16", false)];
        // As some networks give every pod's link one.
        addresses.extend((0..VETHS).map(|n| address(IfIndex(100 + n), &format!("10.244.0.{n}/32"), false)));
        let dump = KernelDump {
            links,
            addresses,
            default_routes: vec![DefaultRoute { family: Family::V4, metric: 0, index: ETH0, gateway: None }],
        };
        let facts = |n: usize| NodeFacts {
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
        let subnet = if pool == PoolType::Local { SUBNET } else { REMOTE };
        let ranges = vec![RangeFacts::whole(subnet.parse().expect("a prefix"), None)];
        let group = GroupFacts::of_ranges("default", pool, ranges);
        world.settle(Input::Groups(FactsUpdate::All(vec![group])));
        world.settle(Input::Endpoints(FactsUpdate::All(vec![])));
        world.settle(Input::Agents(FactsUpdate::All(vec![agent])));
        world.settle(Input::Nodes(FactsUpdate::All((0..NODES).map(facts).collect())));
        world.settle(Input::Kernel(dump));
        world
            .settle(Input::Leases(FactsUpdate::All((1..NODES).map(|n| lease(n, 0, others_drain)).collect())));
        world.settle(Input::Services(FactsUpdate::All((0..VIPS).map(|n| service(pool, n)).collect())));
        for _ in 0..4 {
            world.now += Duration::from_millis(500);
            world.settle(Input::Tick);
        }
        world
    }

    fn held(&mut self) -> usize {
        let picture = self.engine.snapshot(self.now);
        picture.vips.iter().filter(|v| v.announced && v.on_interface.is_some()).count()
    }

    /// The step, and the picture after it.
    fn timed(&mut self, input: Input) -> (Duration, Vec<Effect>) {
        let start = ran();
        let effects = self.engine.step(self.now, input);
        black_box(self.engine.snapshot(self.now));
        (ran() - start, effects)
    }

    /// The step, and what follows from it until nothing does, answers taken together as
    /// the daemon takes them.
    fn settle(&mut self, input: Input) -> Duration {
        self.settle_all(vec![input])
    }

    fn settle_all(&mut self, mut inputs: Vec<Input>) -> Duration {
        let mut taken = Duration::ZERO;
        while !inputs.is_empty() {
            let start = ran();
            let effects = self.engine.step_all(self.now, inputs.drain(..));
            black_box(self.engine.snapshot(self.now));
            taken += ran() - start;
            for effect in effects {
                self.answer(effect, &mut inputs);
            }
        }
        taken
    }

    fn answer(&mut self, effect: Effect, inputs: &mut Vec<Input>) {
        match effect {
            Effect::Apply { id, op } => {
                match op {
                    // The monitor passes on what changed, and not that a lifetime did.
                    KernelChange::Put(spec) => {
                        let shown = address(spec.index, &spec.net.to_string(), true);
                        inputs.push(Input::AddressSet(shown));
                    }
                    KernelChange::Remove { index, net } => inputs.push(Input::AddressGone { index, net }),
                    _ => {}
                }
                inputs.push(Input::Applied { id, result: Ok(()) });
            }
            Effect::Announce { id, .. } => inputs.push(Input::Announced { id, result: Ok(()) }),
            Effect::WriteLease(write) => {
                self.renewals += 1;
                let renewal = format!("own-{}", self.renewals);
                let result = Ok(LeaseRenewal { renewal: renewal.clone() });
                inputs.push(Input::LeaseWritten { seq: write.seq, sent_at: self.now, result });
                self.own = LeaseFacts {
                    instance: Some(write.content.instance),
                    renewal,
                    subnets: write.content.subnets,
                    draining: write.content.draining,
                    announced: Some(write.content.announced.iter().copied().collect()),
                    ..lease(0, 0, false)
                };
                inputs.push(Input::Leases(FactsUpdate::Set(self.own.clone())));
            }
            _ => {}
        }
    }

    fn median(&mut self, mut make: impl FnMut(usize, bool) -> Input) -> Duration {
        let draining = self.others_drain;
        let mut times: Vec<Duration> = (1..=RUNS)
            .map(|n| {
                self.now += Duration::from_millis(1);
                let (taken, effects) = self.timed(make(n, draining));
                let mut inputs = Vec::new();
                effects.into_iter().for_each(|effect| self.answer(effect, &mut inputs));
                self.settle_all(inputs);
                taken
            })
            .collect();
        times.sort_unstable();
        times[RUNS / 2]
    }
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

fn row(what: &str, taken: Duration, bar: &str) {
    println!("  {what:<52} {:>10} {bar:>10}", show(taken));
}

fn size(pool: PoolType, others_drain: bool) {
    let mut world = World::new(pool, others_drain);
    let held = world.held();
    println!("{NODES} nodes x {VIPS} {pool:?} addresses, {VETHS} veths; {held} held and announced");
    let first = world.median(|n, d| Input::Leases(FactsUpdate::Set(lease(n, 1, d))));
    row("a peer's first renewal", first, "1 ms");
    let renewed = world.median(|n, d| Input::Leases(FactsUpdate::Set(lease(7, 100 + n as u64, d))));
    row("a peer's renewal that changes nothing", renewed, "100 us");
    let event = world.median(|n, _| Input::Link(FactsUpdate::Set(veth(3, n % 2 == 0))));
    row("a pod's veth is up or down", event, "1 ms");
    let comes = world.median(|n, _| Input::Link(FactsUpdate::Set(veth(VETHS + n as u32, true))));
    row("a pod's veth comes", comes, "1 ms");
    let given = world.median(|n, _| {
        Input::AddressSet(address(IfIndex(100 + VETHS + n as u32), &format!("10.244.1.{n}/32"), false))
    });
    row("it is given an address", given, "1 ms");
    let goes = world.median(|n, _| Input::Link(FactsUpdate::Gone(IfIndex(100 + VETHS + n as u32))));
    row("it goes", goes, "1 ms");
    let own = world.own.clone();
    let relist = world.median(|n, d| {
        let peers = (1..NODES).map(|p| lease(p, 1_000 + n as u64, d));
        Input::Leases(FactsUpdate::All(peers.chain([own.clone()]).collect()))
    });
    row("a listing of all Leases", relist, "50 ms");
    world.now += Duration::from_millis(3_400);
    let own = world.settle(Input::Tick);
    row("our own renewal, lifetimes and all", own, "");
    let since = "2026-01-01T00:00:00Z".to_owned();
    world.settle(Input::Command(Command::Drain { since, force: false }));
    world.now += Duration::from_millis(10);
    world.settle(Input::Tick);
    world.now += Duration::from_millis(3_400);
    row("the same while draining", world.settle(Input::Tick), "");
    let changed = world.median(|n, d| {
        Input::Leases(FactsUpdate::Set(LeaseFacts { subnets: BTreeSet::new(), ..lease(n, 5_000, d) }))
    });
    row("a peer loses its subnet while draining", changed, "");
    world.settle(Input::Command(Command::Undrain));
    world.now += Duration::from_millis(10);
    world.settle(Input::Tick);
    let lost = Input::AddressGone { index: ETH0, net: "10.0.0.5/16".parse().expect("a prefix") };
    let (lost, _) = world.timed(lost);
    row("the subnet of all addresses is lost", lost, "100 ms");
}

fn main() {
    println!("A step of the engine and the picture after it (median of {RUNS})");
    size(PoolType::Local, false);
    size(PoolType::Local, true);
    size(PoolType::Remote, false);
    size(PoolType::Remote, true);
}
