//! The engine: owns the state, takes one input at a time, says what to do.
//!
//! Each step applies the input, then settles: liveness and own Lease first, then the
//! winners, then every address that any of it concerns, removals before additions,
//! announcements, and last the Lease that tells the others.

mod affected;
mod lease;
mod members;
mod ride;
mod segment;
mod shutdown;
mod snapshot;
mod stale_view;
mod vip;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::announcer::Announcer;
use crate::awaited_peers::AwaitedPeers;
use crate::blind_periods::BlindPeriods;
use crate::config::EngineConfig;
use crate::deadline_queue::DeadlineQueue;
use crate::detector::SegmentDetector;
use crate::election::{Candidacy, Election};
use crate::facts::{LeaseFacts, NodeFacts};
use crate::fence::Fence;
use crate::ids::{IfName, NodeName, Vip};
use crate::kernel_state::{AddrKey, KernelState};
use crate::local_subnets::LocalSubnets;
use crate::membership::Membership;
use crate::messages::{Command, Effect, Event, FactsUpdate, Input, KernelChange, Source};
use crate::node_config::{ConfigStatus, NodeConfig};
use crate::own_lease::OwnLease;
use crate::placement::Demands;
use crate::rank::OwnRank;
use crate::reason::FenceCause;
use crate::refresh_queue::RefreshQueue;
use crate::remote_prefixes::RemotePrefixes;
use crate::snapshot::{Counters, EngineTimes};
use crate::time::Mono;

use lease::ClaimBasis;
use ride::Ride;
use segment::SegmentState;
use shutdown::OngoingShutdown;
use snapshot::SnapshotCache;
use stale_view::ViewDoubt;
use vip::VipState;

#[derive(Clone, Debug)]
struct OngoingDrain {
    since: String,
    /// Also what nobody else can take.
    force: bool,
}

/// What an answer will be about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum InFlight {
    Change {
        vip: Vip,
        op: KernelChange,
    },
    /// Longer life for an address that is there.
    Refresh {
        key: AddrKey,
        remote: bool,
        valid: Option<u32>,
    },
    Dummy,
    OldDummy,
    Announce {
        vip: Vip,
        first: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Engine {
    config: EngineConfig,
    unsynced: BTreeSet<Source>,
    members: Membership,
    nodes: BTreeMap<NodeName, NodeFacts>,
    agents: NodeConfig,
    demands: Demands,
    kernel: KernelState,
    subnets: LocalSubnets,
    fence: Fence,
    lease: OwnLease,
    election: Election,
    /// What the election was last told, so that only changes reach it.
    candidacies: BTreeMap<NodeName, Candidacy>,
    rank: OwnRank,
    /// Live members that do not know ranks: while there are any, nobody's counts.
    unranked: BTreeSet<NodeName>,
    /// Who lists an address in its Lease.
    announced_by: BTreeMap<Vip, BTreeSet<NodeName>>,
    announcer: Announcer,
    /// Whatever was announced is to be announced again.
    announce_again: bool,
    /// Boxed: each look takes one out and puts it back, and tables of large things are half empty.
    vips: BTreeMap<Vip, Box<VipState>>,
    /// Local addresses that we hold and have announced: what the Lease says.
    announced: Arc<BTreeSet<Vip>>,
    /// Local addresses that we won and leave to the next: what the Lease says, too.
    declined: BTreeSet<Vip>,
    wake: DeadlineQueue,
    upkeep: RefreshQueue,
    snapshot_cache: SnapshotCache,
    dirty: BTreeSet<Vip>,
    members_dirty: BTreeSet<NodeName>,
    /// Expired, while we cannot tell whether it is them or our watch.
    doubtful: BTreeSet<NodeName>,
    sight: BlindPeriods,
    orphans: BTreeMap<NodeName, Mono>,
    /// Of our Node, or of the one that was: a Lease that names it is collected with it.
    node_uid: String,
    awaiting: AwaitedPeers,
    links_dirty: bool,
    /// What remote addresses would take from the node if it had an address there.
    prefixes: RemotePrefixes,
    detector: SegmentDetector,
    segment: SegmentState,
    doubt: ViewDoubt,
    ride: Ride,
    /// The fence fell by time, and nothing was renewed since.
    ran_out: bool,
    /// No other node that takes part is eligible.
    alone: bool,
    /// Live members that know neither handoffs nor that we leave.
    older: BTreeSet<NodeName>,
    /// Members that understand more, or less, than they did.
    learnt: BTreeSet<NodeName>,
    /// Until then what an earlier run left is kept on half a picture.
    adopting: Option<Mono>,
    /// Subnets that counted at the last look, with the interface of each.
    served: BTreeSet<(IfName, IpNet)>,
    /// When the configuration last changed under what we hold.
    reconfigured: Option<Mono>,
    /// Addresses that should be in the kernel and are not.
    missing: BTreeSet<Vip>,
    /// Addresses that no node can have.
    nobodys: BTreeSet<Vip>,
    /// Addresses that we cannot have: left to others, once there are any.
    troubled: BTreeSet<Vip>,
    /// What concerns all nodes alike is for us to say.
    speaks: bool,
    /// Why we may hold nothing, as of the last look.
    fenced: Option<FenceCause>,
    /// What our Lease lets us claim, as of the last look.
    claim_basis: ClaimBasis,
    /// A renewal succeeded: what is here once everything was taken in lives longer.
    extend: bool,
    /// The duration in the Lease of an earlier run, and until when it counts.
    inherited: Option<(Duration, Mono)>,
    dummy_requested: bool,
    /// Not before then, if it is still not there.
    dummy_again: Mono,
    /// Names that the interface of remote pools had before: to be removed once empty.
    old_dummies: BTreeSet<IfName>,
    drain: Option<OngoingDrain>,
    stop: Option<OngoingShutdown>,
    in_flight: BTreeMap<u64, InFlight>,
    next_id: u64,
    counters: Counters,
    times: EngineTimes,
    out: Vec<Effect>,
}

impl Engine {
    pub fn new(config: EngineConfig) -> Self {
        Self {
            unsynced: Source::ALL.into_iter().collect(),
            members: Membership::new(config.timers.duration),
            nodes: BTreeMap::new(),
            agents: NodeConfig::default(),
            demands: Demands::default(),
            kernel: KernelState::default(),
            subnets: LocalSubnets::new(config.gain_delay),
            fence: Fence::new(config.timers),
            lease: OwnLease::new(config.node.clone(), config.instance.clone(), config.timers),
            election: Election::new(),
            candidacies: BTreeMap::new(),
            rank: OwnRank::default(),
            unranked: BTreeSet::new(),
            announced_by: BTreeMap::new(),
            announcer: Announcer::new(config.announce_rate),
            announce_again: false,
            vips: BTreeMap::new(),
            announced: Arc::default(),
            declined: BTreeSet::new(),
            wake: DeadlineQueue::default(),
            upkeep: RefreshQueue::default(),
            snapshot_cache: SnapshotCache::new(&config),
            dirty: BTreeSet::new(),
            members_dirty: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            sight: BlindPeriods::new(config.timers),
            orphans: BTreeMap::new(),
            node_uid: String::new(),
            awaiting: AwaitedPeers::default(),
            links_dirty: false,
            prefixes: RemotePrefixes::default(),
            detector: SegmentDetector::new(config.detector),
            segment: SegmentState::default(),
            doubt: ViewDoubt::default(),
            ride: Ride::default(),
            ran_out: false,
            alone: true,
            older: BTreeSet::new(),
            learnt: BTreeSet::new(),
            adopting: None,
            served: BTreeSet::new(),
            reconfigured: None,
            missing: BTreeSet::new(),
            nobodys: BTreeSet::new(),
            troubled: BTreeSet::new(),
            speaks: true,
            fenced: Some(FenceCause::NeverRenewed),
            claim_basis: ClaimBasis::default(),
            extend: false,
            inherited: None,
            dummy_requested: false,
            dummy_again: Mono::ZERO,
            old_dummies: BTreeSet::new(),
            drain: config.draining.clone().map(|since| OngoingDrain { since, force: false }),
            stop: None,
            in_flight: BTreeMap::new(),
            next_id: 0,
            counters: Counters::default(),
            times: EngineTimes::default(),
            out: Vec::new(),
            config,
        }
    }

    /// One input, at `now`. Call again by [`Self::deadline`] with [`Input::Tick`].
    pub fn step(&mut self, now: Mono, input: Input) -> Vec<Effect> {
        self.step_all(now, [input])
    }

    /// Inputs that arrived together, decided on once: a hundred answers of the kernel
    /// cost one look at the addresses and one Lease write, not a hundred.
    pub fn step_all(&mut self, now: Mono, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
        for input in inputs {
            self.apply_input(now, input);
        }
        self.settle(now);
        std::mem::take(&mut self.out)
    }

    /// Everything listed and our Lease written: the daemon is ready (R5).
    pub fn ready(&self) -> bool {
        self.unsynced.is_empty() && self.lease.is_ours()
    }

    fn apply_input(&mut self, now: Mono, input: Input) {
        match input {
            Input::Services(update) => {
                self.listed(Source::Services, &update);
                let touched = self.demands.update_services(update);
                self.dirty.extend(touched);
            }
            Input::Groups(update) => {
                self.listed(Source::ServiceGroups, &update);
                let touched = self.demands.update_groups(update);
                self.snapshot_cache.groups = true;
                self.dirty.extend(touched);
            }
            Input::Endpoints(update) => {
                self.listed(Source::EndpointSlices, &update);
                let touched = self.demands.update_endpoints(update);
                self.dirty.extend(touched);
            }
            Input::Agents(update) => {
                self.listed(Source::NodeAgents, &update);
                self.agents.update(update);
                self.snapshot_cache.problems = true;
                self.reconfigure(now);
            }
            Input::Nodes(update) => {
                self.listed(Source::Nodes, &update);
                self.update_nodes(now, update);
            }
            Input::Leases(update) => {
                self.listed(Source::Leases, &update);
                self.update_leases(now, update);
            }
            Input::Kernel(dump) => {
                self.unsynced.remove(&Source::Kernel);
                self.dirty.extend(self.kernel.ours().map(|a| a.vip()));
                dump.links.iter().for_each(|link| self.hardware_may_have_changed(link));
                self.kernel.replace(dump);
                self.vips.values_mut().for_each(|state| state.kernel_reported());
                self.find_old_dummies();
                self.mark_all_vips();
                self.links_dirty = true;
                self.kernel_was_dumped(now);
                self.ride.kernel_was_read(now);
            }
            Input::Link(update) => self.link_changed(update),
            Input::AddressSet(address) => {
                let before = self.kernel.set_address(address.clone());
                if let Some(before) = before.filter(|before| before.ours != address.ours) {
                    self.address_changed(&before);
                }
                self.address_changed(&address);
            }
            Input::AddressGone { index, net } => {
                if let Some(address) = self.kernel.remove_address((index, net)) {
                    self.address_changed(&address);
                }
            }
            Input::DefaultRoutes(routes) => self.default_routes_changed(routes),
            Input::LeaseWritten { seq, sent_at, result } => self.lease_answered(now, seq, sent_at, result),
            Input::LeaseDeleted(_) => self.lease_was_deleted(),
            Input::Applied { id, result } => self.applied(now, id, result),
            Input::Announced { id, result } => self.announced(now, id, result),
            Input::Command(command) => self.command(now, command),
            Input::Listening { index, result } => self.segment_listening(index, result),
            Input::Asked { id, result } => self.detector.asked(now, id, result),
            Input::Heard(report) => {
                self.detector.heard(now, &report);
                self.heard_while_riding(&report);
            }
            Input::LastPicture(_) => {}
            Input::Tick => {}
        }
    }

    fn listed<T, K>(&mut self, source: Source, update: &FactsUpdate<T, K>) {
        if !matches!(update, FactsUpdate::All(_)) {
            return;
        }
        if self.unsynced.remove(&source) && self.unsynced.is_empty() {
            self.mark_all_vips();
        }
        self.was_listed(source);
    }

    fn reconfigure(&mut self, now: Mono) {
        let before = (self.agents.standing().clone(), self.agents.current().cloned());
        self.agents.decide(self.nodes.get(&self.config.node));
        if before == (self.agents.standing().clone(), self.agents.current().cloned()) {
            return;
        }
        if let ConfigStatus::Rejected(problem) = self.agents.standing()
            && before.0 != *self.agents.standing()
        {
            self.out.push(Effect::Event(Event::config_error(problem)));
        }
        self.reconfigured = self.unsynced.is_empty().then_some(now);
        let dummy = self.agents.current().map(|config| config.dummy.clone());
        self.old_dummies
            .extend(before.1.map(|config| config.dummy).filter(|old| Some(old) != dummy.as_ref()));
        if let Some(dummy) = dummy {
            self.old_dummies.remove(&dummy);
        }
        self.find_old_dummies();
        self.links_dirty = true;
        self.members_dirty.insert(self.config.node.clone());
        self.mark_all_vips();
    }

    /// What an earlier run made under another name: it is told by its mark.
    fn find_old_dummies(&mut self) {
        let Some(dummy) = self.agents.current().map(|config| &config.dummy) else { return };
        let old = self.kernel.links().filter(|l| l.ours && l.name != *dummy);
        self.old_dummies.extend(old.map(|l| l.name.clone()));
    }

    /// An interface that remote pools no longer use goes with its last address.
    fn remove_old_dummies(&mut self) {
        if !self.unsynced.is_empty() {
            return;
        }
        let empty = |name: &IfName| {
            let index = self.kernel.link_named(name).map(|link| link.index);
            let on_its_way = |f: &InFlight| match f {
                InFlight::Change { op: KernelChange::Put(s), .. } => Some(s.index) == index,
                InFlight::Refresh { key, .. } => Some(key.0) == index,
                _ => false,
            };
            index.is_none_or(|index| self.kernel.ours_on(index).next().is_none())
                && !self.in_flight.values().any(on_its_way)
        };
        let empty: Vec<IfName> = self.old_dummies.iter().filter(|name| empty(name)).cloned().collect();
        for name in empty {
            self.old_dummies.remove(&name);
            let id = self.id(InFlight::OldDummy);
            self.out.push(Effect::Apply { id, op: KernelChange::RemoveDummy { name } });
        }
    }

    fn update_nodes(&mut self, now: Mono, update: FactsUpdate<NodeFacts, NodeName>) {
        self.segment.outdated = true;
        let me = self.config.node.clone();
        let own_before = self.nodes.get(&me).cloned();
        match update {
            FactsUpdate::All(all) => {
                let fresh: BTreeMap<NodeName, NodeFacts> =
                    all.into_iter().map(|n| (n.name.clone(), n)).collect();
                self.members_dirty.extend(self.nodes.keys().chain(fresh.keys()).cloned());
                let gone: Vec<NodeName> =
                    self.nodes.keys().filter(|n| !fresh.contains_key(*n)).cloned().collect();
                gone.iter().for_each(|name| self.node_is_gone(name));
                self.nodes = fresh;
            }
            FactsUpdate::Set(node) => {
                // A Node's status changes every few seconds; we look at a few fields.
                if self.nodes.get(&node.name) != Some(&node) {
                    self.members_dirty.insert(node.name.clone());
                    self.nodes.insert(node.name.clone(), node);
                }
            }
            FactsUpdate::Gone(name) => {
                self.node_is_gone(&name);
                self.nodes.remove(&name);
                self.members_dirty.insert(name);
            }
        }
        if let Some(own) = self.nodes.get(&me) {
            self.node_uid.clone_from(&own.uid);
        }
        if self.nodes.get(&me) != own_before.as_ref() || self.unsynced.contains(&Source::NodeAgents) {
            self.reconfigure(now);
            self.mark_all_vips();
        }
    }

    fn update_leases(&mut self, now: Mono, update: FactsUpdate<LeaseFacts, NodeName>) {
        let me = self.config.node.clone();
        match update {
            FactsUpdate::All(all) => {
                let listed: BTreeMap<&NodeName, &LeaseFacts> = all.iter().map(|l| (&l.node, l)).collect();
                let known: BTreeSet<NodeName> = self.members.iter().map(|(n, _)| n.clone()).collect();
                for node in known.iter().chain(all.iter().map(|l| &l.node)) {
                    self.index_announced(node, listed.get(node).copied());
                    self.dirty.extend(self.awaiting.for_node(node));
                }
                let own = listed.get(&me).copied().cloned();
                if own.is_none() {
                    self.members.forget(&me);
                }
                self.members_dirty.extend(listed.into_keys().cloned());
                self.members_dirty.extend(known);
                let doubted = self.doubted(now);
                let learnt = self.members.replace(now, all, &doubted);
                self.learnt.extend(learnt);
                // Somebody may have had an address of ours and let go of it, and we
                // saw neither: its claim is what clients remember.
                self.announce_again |= self.unsynced.is_empty();
                self.own_lease_seen(now, own.as_ref());
            }
            FactsUpdate::Set(facts) => {
                let node = facts.node.clone();
                self.index_announced(&node, Some(&facts));
                if node == me {
                    self.own_lease_seen(now, Some(&facts));
                }
                // What waited for a sign of life from it can go on.
                self.dirty.extend(self.awaiting.for_node(&node));
                if self.members.observe(now, facts) {
                    self.learnt.insert(node.clone());
                }
                self.members_dirty.insert(node);
            }
            FactsUpdate::Gone(node) => {
                self.index_announced(&node, None);
                if node == me {
                    self.own_lease_seen(now, None);
                    self.members.forget(&node);
                } else {
                    let doubted = self.doubted(now).contains(&node);
                    self.members.deleted(now, &node, doubted);
                }
                self.dirty.extend(self.awaiting.for_node(&node));
                self.members_dirty.insert(node);
            }
        }
    }

    /// Keeps the index of who lists what, and looks again at what changed.
    fn index_announced(&mut self, node: &NodeName, facts: Option<&LeaseFacts>) {
        let nothing = BTreeSet::new();
        let before = self.members.get(node).and_then(|m| m.facts().announced.as_ref()).unwrap_or(&nothing);
        let after = facts.and_then(|f| f.announced.as_ref()).unwrap_or(&nothing);
        if before == after {
            return;
        }
        for vip in before.difference(after) {
            if let Some(nodes) = self.announced_by.get_mut(vip) {
                nodes.remove(node);
                if nodes.is_empty() {
                    self.announced_by.remove(vip);
                }
            }
            self.dirty.insert(*vip);
        }
        for vip in after.difference(before) {
            self.announced_by.entry(*vip).or_default().insert(node.clone());
            self.dirty.insert(*vip);
        }
    }

    fn command(&mut self, now: Mono, command: Command) {
        match command {
            Command::Drain { since, force } => {
                let since = self.drain.take().map_or(since, |d| d.since);
                self.drain = Some(OngoingDrain { since, force });
            }
            Command::Undrain => self.drain = None,
            Command::Resync => {
                self.vips.values_mut().for_each(|state| state.try_again());
                self.announce_again = true;
            }
            Command::Shutdown { mode, since } => self.begin_shutdown(now, mode, since),
        }
        let me = self.config.node.clone();
        self.members_dirty.insert(me);
        self.mark_all_vips();
    }

    fn settle(&mut self, now: Mono) {
        if self.stop.as_ref().is_some_and(OngoingShutdown::is_over) {
            // Nothing is decided any more; what is seen is shown.
            self.snapshot_cache.vips.append(&mut self.dirty);
            self.snapshot_cache.members.append(&mut self.members_dirty);
            return;
        }
        self.check_lease(now);
        self.check_segments(now);
        self.check_ridden_segments();
        self.check_links(now);
        self.check_members(now);
        // Whether another is well is known now, and our rank has a say in who wins.
        self.check_rank(now);
        if !self.members_dirty.is_empty() {
            self.check_members(now);
        }
        self.dirty.append(&mut self.wake.due(now));
        self.decide_vips(now);
        // What was declined, or taken back, has another winner at once.
        if !self.members_dirty.is_empty() {
            self.check_members(now);
            self.decide_vips(now);
        }
        if std::mem::take(&mut self.extend) && self.fence_cause(now).is_none() {
            self.extend_lifetimes(now);
        }
        self.keep_riders(now);
        self.keep_alive(now);
        self.remove_old_dummies();
        self.send_announcements(now);
        self.ask_segments(now);
        self.write_lease(now);
        self.advance_shutdown(now);
        // What goes with the next phase of a stop goes at once, and so does its last word.
        if self.stop.is_some() {
            self.decide_vips(now);
            self.write_lease(now);
        }
    }

    fn check_links(&mut self, now: Mono) {
        if self.unsynced.contains(&Source::Kernel) {
            return;
        }
        // What we may serve is not known yet; whether a link is steady is watched from the
        // first dump on, or one that flaps would count once the API server answers.
        if [Source::NodeAgents, Source::Nodes].iter().any(|s| self.unsynced.contains(s)) {
            if self.links_dirty {
                self.subnets.update(now, &self.kernel, None);
            }
            return;
        }
        // Time alone makes a gain count: that is what the links' deadline is for.
        if !self.links_dirty && !self.wake.links_due(now) {
            return;
        }
        if std::mem::take(&mut self.links_dirty) {
            self.segment.outdated = true;
            self.subnets.update(now, &self.kernel, self.agents.current());
        }
        let served = self.subnets.counted(now);
        if served != self.served {
            let me = self.config.node.clone();
            self.members_dirty.insert(me);
            let changed = served.symmetric_difference(&self.served).map(|(_, net)| *net).collect();
            self.mark_vips_inside(&changed);
            self.served = served;
        }
        self.wake.set_links(self.subnets.deadline(now));
    }

    fn id(&mut self, about: InFlight) -> u64 {
        self.next_id += 1;
        self.in_flight.insert(self.next_id, about);
        self.next_id
    }

    /// When to be called again at the latest.
    pub fn deadline(&self, now: Mono) -> Option<Mono> {
        if self.stop.as_ref().is_some_and(OngoingShutdown::is_over) {
            return None;
        }
        let lease =
            if self.may_write_lease() { self.lease.deadline(now) } else { self.lease.write_gives_up() };
        let adopting = self.adopting.filter(|at| *at > now && !self.unsynced.is_empty());
        [
            self.doubt_deadline(now),
            self.ride_deadline(now),
            adopting,
            self.members.next_expiry(),
            self.members_deadline(now),
            // One that has passed counts until a step has acted on it: whoever asks may
            // have been busy since the last.
            self.fence.deadline().filter(|d| *d > now || self.fenced.is_none()),
            self.lease.stale_at().filter(|at| *at > now || self.fenced.is_none()),
            lease,
            self.announcer.deadline(),
            self.rank.deadline(),
            self.wake.next(),
            self.upkeep.next(),
            self.segment_deadline(now),
            self.stop.as_ref().and_then(OngoingShutdown::deadline),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

#[cfg(test)]
mod tests;
