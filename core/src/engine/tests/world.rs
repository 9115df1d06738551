//! A world of one engine: carries out its effects at once, unless told otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;

use crate::Engine;
use crate::config::EngineConfig;
use crate::facts::*;
use crate::ids::*;
use crate::messages::*;
use crate::reason::Reason;
use crate::segment::*;
use crate::time::Mono;

pub(super) const ETH0: IfIndex = IfIndex(2);
pub(super) const DUMMY: IfIndex = IfIndex(9);
pub(super) const OTHER_DUMMY: IfIndex = IfIndex(10);

pub(super) fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

pub(super) fn passing(words: &str) -> Option<KernelRefusal> {
    Some(KernelRefusal::Passing(words.to_owned()))
}

pub(super) fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub(super) fn ifname(name: &str) -> IfName {
    IfName::new(name).unwrap()
}

pub(super) fn mk_service(name: &str, vips: &[&str]) -> ServiceFacts {
    ServiceFacts {
        key: ObjectKey::of("web", name).unwrap(),
        vips: vips.iter().map(|v| vip(v)).collect(),
        group: Some("default".to_owned()),
        only_local_endpoints: false,
        prefer_endpoints: false,
        slots: BTreeMap::new(),
    }
}

/// A local group that has every address.
pub(super) fn mk_local_group() -> GroupFacts {
    let ranges = ["0.0.0.0/0", "::/0"].map(|net| RangeFacts::whole(net.parse().unwrap(), None)).to_vec();
    GroupFacts::of_ranges("default", PoolType::Local, ranges)
}

pub(super) fn mk_address(index: IfIndex, net: &str) -> AddrFacts {
    AddrFacts {
        index,
        net: net.parse().unwrap(),
        ours: false,
        link_local: false,
        tentative: false,
        dad_failed: false,
        deprecated: false,
        permanent: true,
        no_prefix_route: false,
    }
}

pub(super) fn mk_link(index: IfIndex, name: &str) -> LinkFacts {
    LinkFacts { index, name: ifname(name), loopback: false, up: true, carrier: true, mac: None, ours: false }
}

pub(super) fn mk_peer(name: &str, renewal: u64, announced: &[&str]) -> LeaseFacts {
    LeaseFacts {
        node: node(name),
        instance: Some(InstanceId::new(name).unwrap()),
        duration_seconds: 10,
        renewal: renewal.to_string(),
        subnets: BTreeSet::from(["192.168.1.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap()]),
        draining: None,
        announced: Some(announced.iter().map(|v| vip(v)).collect()),
        declined: Some(BTreeSet::new()),
        rank: Some(Rank::First),
        macs: Some(BTreeSet::new()),
        control_endpoint: None,
    }
}

pub(super) fn mk_node(name: &str) -> NodeFacts {
    NodeFacts {
        name: node(name),
        uid: format!("uid-{name}"),
        labels: BTreeMap::new(),
        out_of_service: false,
        excluded: false,
        impaired: None,
        addresses: BTreeSet::new(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dad {
    Passed,
    Running,
    Failed,
}

pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) now: Mono,
    pub(super) kernel: BTreeMap<(IfIndex, IpNet), AddressSpec>,
    /// When the kernel ends each, in the whole seconds it was given.
    ends: BTreeMap<(IfIndex, IpNet), Mono>,
    pub(super) lease: Option<LeaseContent>,
    /// Everything the engine asked for, in order.
    pub(super) log: Vec<Effect>,
    /// Answers to Lease writes; `None` = no answer at all.
    pub(super) api: Option<Result<(), LeaseError>>,
    pub(super) apply_error: Option<KernelRefusal>,
    /// The kernel carries out nothing and answers nothing.
    pub(super) busy: bool,
    pub(super) exited: bool,
    /// Does the watch show our own writes?
    pub(super) echo: bool,
    /// Are listings answered?
    pub(super) lists: bool,
    /// What each kind was last told to be, for the next listing.
    objects: Objects,
    /// The state that IPv6 addresses are shown in.
    pub(super) dad: Dad,
    /// Listed with everything else.
    groups: Vec<GroupFacts>,
    agent: AgentConfig,
    renewals: u64,
    inbox: Vec<Input>,
    /// Who answers there; `None`: nothing is listened on.
    pub(super) segment: Option<TestSegment>,
}

/// Hosts on eth0's segment, by the addresses they answer for.
#[derive(Clone, Default)]
pub(super) struct TestSegment {
    pub(super) hosts: BTreeMap<Vip, HardwareAddr>,
    /// Frames were lost with every read.
    pub(super) overrun: bool,
    pub(super) asked: Vec<SegmentQuestion>,
}

impl World {
    /// The node `me` on eth0 with both families; nothing listed yet.
    pub(super) fn new() -> Self {
        Self::with(EngineConfig::new(node("me"), InstanceId::new("one").unwrap()))
    }

    /// With these groups instead of the local one for everything.
    pub(super) fn of_groups(groups: Vec<GroupFacts>) -> Self {
        Self { groups, ..Self::new() }
    }

    pub(super) fn with(config: EngineConfig) -> Self {
        Self {
            engine: Engine::new(config),
            now: Mono::from_millis(1_000_000),
            kernel: BTreeMap::new(),
            ends: BTreeMap::new(),
            lease: None,
            log: Vec::new(),
            api: Some(Ok(())),
            apply_error: None,
            busy: false,
            exited: false,
            echo: true,
            lists: true,
            objects: Objects::default(),
            dad: Dad::Passed,
            groups: vec![mk_local_group()],
            agent: AgentConfig { auto: AutoInterface::Pattern("eth0".to_owned()), ..AgentConfig::default() },
            renewals: 0,
            inbox: Vec::new(),
            segment: None,
        }
    }

    /// Everything listed: no peers, one LBNodeAgent for all, the given Services.
    pub(super) fn listed(mut self, services: Vec<ServiceFacts>, peers: Vec<LeaseFacts>) -> Self {
        self.list_all_but_services(peers);
        self.feed(Input::Services(FactsUpdate::All(services)));
        self
    }

    pub(super) fn list_all_but_services(&mut self, peers: Vec<LeaseFacts>) {
        let mut nodes = vec![mk_node("me")];
        nodes.extend(peers.iter().map(|p| mk_node(p.node.as_str())));
        let agent = AgentFacts {
            key: ObjectKey::of("purelb-system", "default").unwrap(),
            selector: Selector::default(),
            config: Ok(self.agent.clone()),
        };
        self.feed(Input::Groups(FactsUpdate::All(self.groups.clone())));
        self.feed(Input::Endpoints(FactsUpdate::All(vec![])));
        self.feed(Input::Agents(FactsUpdate::All(vec![agent])));
        self.feed(Input::Nodes(FactsUpdate::All(nodes)));
        self.feed(Input::Kernel(self.dump()));
        self.feed(Input::Leases(FactsUpdate::All(peers)));
    }

    /// The LBNodeAgent in force.
    pub(super) fn agent(&self) -> AgentConfig {
        self.agent.clone()
    }

    pub(super) fn configure(&mut self, config: AgentConfig) {
        self.agent = config.clone();
        let key = ObjectKey::of("purelb-system", "default").unwrap();
        let agent = AgentFacts { key, selector: Selector::default(), config: Ok(config) };
        self.feed(Input::Agents(FactsUpdate::Set(agent)));
    }

    pub(super) fn dump(&self) -> KernelDump {
        let mut addresses = vec![mk_address(ETH0, "192.168.1.10/24"), mk_address(ETH0, "fd00:1::10/64")];
        addresses.extend(self.kernel.values().map(|s| self.shown(s)));
        let mut links = vec![mk_link(ETH0, "eth0")];
        if self.kernel.keys().any(|(index, _)| *index == DUMMY) {
            links.push(mk_link(DUMMY, "kube-lb0"));
        }
        KernelDump { links, addresses, default_routes: vec![] }
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.inbox.push(input);
        while !self.inbox.is_empty() {
            let input = self.inbox.remove(0);
            self.objects.note(&input);
            let told = format!("{input:?}");
            let effects = self.engine.step(self.now, input);
            // As the driver does: what is drawn anew next is what changed since.
            self.engine.snapshot(self.now);
            if let Some(overlooked) = self.engine.overlooked(self.now) {
                panic!("after {told}, overlooked: {overlooked}");
            }
            for effect in effects {
                self.log.push(effect.clone());
                self.carry_out(effect);
            }
        }
    }

    /// What would be looked at if this was told now.
    pub(super) fn looked_at(&self, input: Input) -> BTreeSet<Vip> {
        let mut engine = self.engine.clone();
        engine.snapshot(self.now);
        engine.step(self.now, input);
        // Every look leaves a mark there, until the next picture.
        std::mem::take(&mut engine.snapshot_cache.vips)
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Listen(interfaces) if self.segment.is_some() => {
                let heard = |index| Input::Listening { index, result: Ok(()) };
                self.inbox.extend(interfaces.into_keys().map(heard));
            }
            Effect::Ask(question) => self.ask(question),
            Effect::WriteLease(write) => self.write_lease(write),
            Effect::Apply { id, op } => self.apply(id, op),
            Effect::Announce { id, .. } => self.inbox.push(Input::Announced { id, result: Ok(()) }),
            Effect::DeleteLease => {
                self.lease = None;
                self.inbox.push(Input::LeaseDeleted(Ok(())));
            }
            Effect::Relist(Source::Kernel) => {
                let dump = self.dump();
                self.inbox.push(Input::Kernel(dump));
            }
            Effect::Exit => self.exited = true,
            Effect::Relist(source) if self.lists => self.inbox.extend(self.objects.listing(source)),
            Effect::Relist(_)
            | Effect::WriteSlot { .. }
            | Effect::ClearSlot { .. }
            | Effect::LeftBehind(_)
            | Effect::Listen(_)
            | Effect::Event(_) => {}
        }
    }

    /// Every kind that was asked for and not listed meanwhile.
    pub(super) fn answer_listings(&mut self, sources: &[Source]) {
        for source in sources {
            if let Some(input) = self.objects.listing(*source) {
                self.feed(input);
            }
        }
    }

    fn ask(&mut self, question: SegmentQuestion) {
        let Some(segment) = &mut self.segment else { return };
        self.inbox.push(Input::Asked { id: question.id, result: Ok(self.now) });
        if let Some(mac) = segment.hosts.get(&question.target) {
            let kind = match question.kind {
                QuestionKind::Echo => SightingKind::EchoReply,
                QuestionKind::Resolve => SightingKind::ResolveReply,
            };
            let sighting = SegmentSighting {
                index: question.index,
                address: question.target,
                mac: *mac,
                kind,
                at: self.now,
            };
            self.inbox.push(Input::Heard(SegmentReport {
                sightings: vec![sighting],
                listened_until: self.now,
                overrun: vec![],
            }));
        }
        segment.asked.push(question);
    }

    /// A frame that nobody asked for.
    pub(super) fn sees(&mut self, text: &str, mac: HardwareAddr, kind: SightingKind) {
        let sighting = SegmentSighting { index: ETH0, address: vip(text), mac, kind, at: self.now };
        let report = SegmentReport { sightings: vec![sighting], listened_until: self.now, overrun: vec![] };
        self.feed(Input::Heard(report));
    }

    fn write_lease(&mut self, write: LeaseWrite) {
        let sent_at = self.now;
        let Some(answer) = self.api.clone() else { return };
        self.renewals += 1;
        let renewal = format!("own-{}", self.renewals);
        let result = answer.map(|()| {
            self.lease = Some(write.content.clone());
            LeaseRenewal { renewal: renewal.clone() }
        });
        let ok = result.is_ok();
        self.inbox.push(Input::LeaseWritten { seq: write.seq, sent_at, result });
        if ok {
            let c = write.content;
            let seen = Input::Leases(FactsUpdate::Set(LeaseFacts {
                node: node("me"),
                instance: Some(c.instance),
                duration_seconds: 10,
                renewal,
                subnets: c.subnets,
                draining: c.draining,
                announced: Some((*c.announced).clone()),
                declined: Some(c.declined),
                rank: Some(c.rank),
                macs: Some(c.macs),
                control_endpoint: None,
            }));
            self.objects.note(&seen);
            if self.echo {
                self.inbox.push(seen);
            }
        }
    }

    fn apply(&mut self, id: u64, op: KernelChange) {
        if self.busy {
            return;
        }
        if let Some(error) = &self.apply_error {
            self.inbox.push(Input::Applied { id, result: Err(error.clone()) });
            return;
        }
        match op {
            KernelChange::Put(spec) => {
                self.inbox.push(Input::AddressSet(self.shown(&spec)));
                let valid = spec.lifetimes(self.now).and_then(|l| l.valid);
                let key = (spec.index, spec.net);
                self.ends.remove(&key);
                if let Some(seconds) = valid {
                    self.ends.insert(key, self.now + Duration::from_secs(seconds.into()));
                }
                self.kernel.insert(key, spec);
            }
            KernelChange::Remove { index, net } => {
                self.kernel.remove(&(index, net));
                self.inbox.push(Input::AddressGone { index, net });
            }
            KernelChange::EnsureDummy { name } => {
                let index = if name == ifname("kube-lb0") { DUMMY } else { OTHER_DUMMY };
                let link = LinkFacts { name, ..mk_link(index, "x") };
                self.inbox.push(Input::Link(FactsUpdate::Set(link)));
            }
            KernelChange::RemoveDummy { .. } => {}
        }
        self.inbox.push(Input::Applied { id, result: Ok(()) });
    }

    /// The kernel ends what was given no longer life.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        let over: Vec<_> = self.kernel.extract_if(.., |_, s| s.until.is_some_and(|at| at <= now)).collect();
        for ((index, net), _) in over {
            self.feed(Input::AddressGone { index, net });
        }
    }

    /// Lets time pass beside a kernel that ends addresses by the whole seconds it was given.
    pub(super) fn live(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while self.now < end {
            self.ms(50);
            let now = self.now;
            let over: Vec<_> = self.ends.extract_if(.., |_, at| *at <= now).map(|(key, _)| key).collect();
            for (index, net) in over {
                if self.kernel.remove(&(index, net)).is_some() {
                    self.feed(Input::AddressGone { index, net });
                }
            }
        }
    }

    /// Time passes for the kernel, and the process stands still.
    pub(super) fn stop_for(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        let now = self.now;
        for (key, _) in self.ends.extract_if(.., |_, at| *at <= now) {
            self.kernel.remove(&key);
        }
    }

    /// The daemon hears and asks eth0.
    pub(super) fn listens(&mut self, result: Result<(), String>) {
        self.feed(Input::Listening { index: ETH0, result });
    }

    /// Lets time pass, calling the engine at each of its deadlines.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut ticks = 0;
        while let Some(next) = self.engine.deadline(self.now).filter(|d| *d <= end) {
            self.now = self.now.max(next);
            if let Some(segment) = &self.segment {
                let overrun = if segment.overrun { vec![ETH0] } else { vec![] };
                let report = SegmentReport { sightings: vec![], listened_until: self.now, overrun };
                self.feed(Input::Heard(report));
            }
            self.feed(Input::Tick);
            ticks += 1;
            assert!(ticks < 10_000, "the engine spins: deadline {next} at {}", self.now);
        }
        self.now = end;
    }

    pub(super) fn ms(&mut self, millis: u64) {
        self.pass(Duration::from_millis(millis));
    }

    pub(super) fn reason(&self, text: &str) -> Reason {
        let snapshot = self.engine.clone().snapshot(self.now);
        snapshot.vips.get(&vip(text)).expect("the address is asked for").reason.clone()
    }

    pub(super) fn holds(&self, text: &str) -> bool {
        self.kernel.keys().any(|(_, net)| net.addr() == vip(text).ip())
    }

    pub(super) fn spec(&self, text: &str) -> &AddressSpec {
        self.kernel.values().find(|s| s.net.addr() == vip(text).ip()).expect("the address is in the kernel")
    }

    pub(super) fn announcements(&self, text: &str) -> usize {
        self.log.iter().filter(|e| matches!(e, Effect::Announce { vip: v, .. } if *v == vip(text))).count()
    }

    pub(super) fn events(&self, kind: EventKind) -> usize {
        self.log.iter().filter(|e| matches!(e, Effect::Event(e) if e.kind == kind)).count()
    }

    pub(super) fn shown(&self, spec: &AddressSpec) -> AddrFacts {
        let detects = spec.net.addr().is_ipv6();
        AddrFacts {
            ours: true,
            permanent: spec.until.is_none() && spec.valid.is_none(),
            no_prefix_route: spec.no_prefix_route,
            tentative: detects && self.dad != Dad::Passed,
            dad_failed: detects && self.dad == Dad::Failed,
            ..mk_address(spec.index, &spec.net.to_string())
        }
    }

    /// The peer renews, and lists these addresses.
    pub(super) fn peer(&mut self, name: &str, announced: &[&str]) {
        let renewal = self.now.as_nanos();
        self.feed(Input::Leases(FactsUpdate::Set(mk_peer(name, renewal, announced))));
    }

    /// This node, rather than the other, is the winner of the address.
    pub(super) fn address_is_won_by(&self, winner: &str, other: &str, ip: &str) -> bool {
        crate::election::score(winner, ip) < crate::election::score(other, ip)
    }

    /// An address that `me` wins, or loses, against `peer`.
    pub(super) fn address_won_by(&self, winner: &str, peer: &str) -> String {
        (1..255)
            .map(|last| format!("192.168.1.{last}"))
            .find(|ip| {
                let best = ["me", peer].into_iter().min_by_key(|n| crate::election::score(n, ip));
                best == Some(winner)
            })
            .expect("one of 254 addresses")
    }
}

/// What the API server has, as far as the engine was told of it or wrote it.
#[derive(Default)]
struct Objects {
    services: BTreeMap<ObjectKey, ServiceFacts>,
    groups: BTreeMap<String, GroupFacts>,
    endpoints: BTreeMap<ObjectKey, EndpointFacts>,
    agents: BTreeMap<ObjectKey, AgentFacts>,
    nodes: BTreeMap<NodeName, NodeFacts>,
    leases: BTreeMap<NodeName, LeaseFacts>,
}

fn note<K: Ord, T: Clone>(known: &mut BTreeMap<K, T>, update: &FactsUpdate<T, K>, key: impl Fn(&T) -> K) {
    match update {
        FactsUpdate::All(all) => *known = all.iter().map(|t| (key(t), t.clone())).collect(),
        FactsUpdate::Set(one) => {
            known.insert(key(one), one.clone());
        }
        FactsUpdate::Gone(gone) => {
            known.remove(gone);
        }
    }
}

fn all<K, T: Clone>(known: &BTreeMap<K, T>) -> FactsUpdate<T, K> {
    FactsUpdate::All(known.values().cloned().collect())
}

impl Objects {
    fn note(&mut self, input: &Input) {
        match input {
            Input::Services(u) => note(&mut self.services, u, |s| s.key.clone()),
            Input::Groups(u) => note(&mut self.groups, u, |g| g.name.clone()),
            Input::Endpoints(u) => note(&mut self.endpoints, u, |e| e.slice.clone()),
            Input::Agents(u) => note(&mut self.agents, u, |a| a.key.clone()),
            Input::Nodes(u) => note(&mut self.nodes, u, |n| n.name.clone()),
            Input::Leases(u) => note(&mut self.leases, u, |l| l.node.clone()),
            _ => {}
        }
    }

    fn listing(&self, source: Source) -> Option<Input> {
        Some(match source {
            Source::Services => Input::Services(all(&self.services)),
            Source::ServiceGroups => Input::Groups(all(&self.groups)),
            Source::EndpointSlices => Input::Endpoints(all(&self.endpoints)),
            Source::NodeAgents => Input::Agents(all(&self.agents)),
            Source::Nodes => Input::Nodes(all(&self.nodes)),
            Source::Leases => Input::Leases(all(&self.leases)),
            Source::Kernel => return None,
        })
    }
}
