//! The engine: owns the state, takes one input at a time, says what to do.
//!
//! Each step applies the input, then settles: liveness and own Lease first, then the
//! winners, then every address that any of it concerns, removals before additions,
//! announcements, and last the Lease that tells the others.

mod lease;
mod stop;
mod view;
mod vip;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::agents::{Agents, Standing};
use crate::announce::Announcer;
use crate::config::EngineConfig;
use crate::election::{Candidacy, Election, MemberChange};
use crate::facts::{LeaseFacts, NodeFacts};
use crate::fence::Fence;
use crate::ids::{NodeName, Vip};
use crate::io::{Command, Effect, Event, Input, Op, Source, Update};
use crate::kernel::Kernel;
use crate::membership::{Member, Membership};
use crate::own_lease::OwnLease;
use crate::placement::Demands;
use crate::reason::{Missing, Reason};
use crate::snapshot::{Counters, Times};
use crate::subnets::Subnets;
use crate::time::Mono;
use crate::wake::Wake;

use stop::Stop;
use vip::VipState;

#[derive(Debug)]
struct Drain {
    since: String,
    /// Also what nobody else can take.
    force: bool,
}

/// What an answer will be about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum InFlight {
    Change {
        vip: Vip,
        op: Op,
    },
    /// Longer life for an address that is there; a failure shows as its absence.
    Refresh {
        vip: Vip,
    },
    Dummy,
    Announce {
        vip: Vip,
        first: bool,
    },
}

#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    unsynced: BTreeSet<Source>,
    members: Membership,
    nodes: BTreeMap<NodeName, NodeFacts>,
    agents: Agents,
    demands: Demands,
    kernel: Kernel,
    subnets: Subnets,
    fence: Fence,
    lease: OwnLease,
    election: Election,
    /// What the election was last told, so that only changes reach it.
    candidacies: BTreeMap<NodeName, Candidacy>,
    /// Who lists an address in its Lease.
    announced_by: BTreeMap<Vip, BTreeSet<NodeName>>,
    announcer: Announcer,
    vips: BTreeMap<Vip, VipState>,
    /// Local addresses that we hold and have announced: what the Lease says.
    announced: BTreeSet<Vip>,
    wake: Wake,
    dirty: BTreeSet<Vip>,
    members_dirty: BTreeSet<NodeName>,
    /// Expired, while we cannot tell whether it is them or our watch.
    doubtful: BTreeSet<NodeName>,
    links_dirty: bool,
    healthy: bool,
    dummy_requested: bool,
    drain: Option<Drain>,
    stop: Option<Stop>,
    in_flight: BTreeMap<u64, InFlight>,
    next_id: u64,
    counters: Counters,
    times: Times,
    out: Vec<Effect>,
}

impl Engine {
    pub fn new(config: EngineConfig) -> Self {
        Self {
            unsynced: Source::ALL.into_iter().collect(),
            members: Membership::default(),
            nodes: BTreeMap::new(),
            agents: Agents::default(),
            demands: Demands::default(),
            kernel: Kernel::default(),
            subnets: Subnets::new(config.gain_delay),
            fence: Fence::new(config.timers, config.fence),
            lease: OwnLease::new(config.node.clone(), config.instance.clone(), config.timers),
            election: Election::new(),
            candidacies: BTreeMap::new(),
            announced_by: BTreeMap::new(),
            announcer: Announcer::new(config.announce_rate),
            vips: BTreeMap::new(),
            announced: BTreeSet::new(),
            wake: Wake::default(),
            dirty: BTreeSet::new(),
            members_dirty: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            links_dirty: false,
            healthy: false,
            dummy_requested: false,
            drain: config.draining.clone().map(|since| Drain { since, force: false }),
            stop: None,
            in_flight: BTreeMap::new(),
            next_id: 0,
            counters: Counters::default(),
            times: Times::default(),
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
            self.take_in(now, input);
        }
        self.settle(now);
        std::mem::take(&mut self.out)
    }

    /// Everything listed and our Lease written: the daemon is ready (R5).
    pub fn ready(&self) -> bool {
        self.unsynced.is_empty() && self.lease.is_ours()
    }

    fn take_in(&mut self, now: Mono, input: Input) {
        match input {
            Input::Services(update) => {
                self.listed(Source::Services, &update);
                let touched = self.demands.update_services(update);
                self.dirty.extend(touched);
            }
            Input::Groups(update) => {
                self.listed(Source::ServiceGroups, &update);
                let touched = self.demands.update_groups(update);
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
                self.reconfigure();
            }
            Input::Nodes(update) => {
                self.listed(Source::Nodes, &update);
                self.update_nodes(update);
            }
            Input::Leases(update) => {
                self.listed(Source::Leases, &update);
                self.update_leases(now, update);
            }
            Input::Kernel(dump) => {
                self.unsynced.remove(&Source::Kernel);
                self.dirty.extend(self.kernel.ours().map(|a| a.vip()));
                self.kernel.replace(dump);
                self.vips.values_mut().for_each(VipState::kernel_spoke);
                self.touch_all();
                self.links_dirty = true;
                self.kernel_was_dumped();
            }
            Input::Link(update) => {
                match update {
                    Update::All(links) => self.kernel.replace_links(links),
                    Update::Set(link) => self.kernel.set_link(link),
                    Update::Gone(index) => self.kernel.remove_link(index),
                }
                self.links_dirty = true;
                self.touch_all();
            }
            Input::AddressSet(address) => {
                let vip = address.vip();
                self.links_dirty |= !address.ours;
                self.kernel.set_address(address);
                self.kernel_spoke(vip);
            }
            Input::AddressGone { index, net } => {
                if let Some(address) = self.kernel.remove_address((index, net)) {
                    self.links_dirty |= !address.ours;
                    self.kernel_spoke(address.vip());
                }
            }
            Input::DefaultRoutes(routes) => {
                self.kernel.set_default_routes(routes);
                self.links_dirty = true;
            }
            Input::LeaseWritten { seq, sent_at, result } => self.lease_answered(now, seq, sent_at, result),
            Input::LeaseDeleted(_) => self.lease_was_deleted(),
            Input::Applied { id, result } => self.applied(now, id, result),
            Input::Announced { id, result } => self.announced(now, id, result),
            Input::Command(command) => self.command(now, command),
            Input::Tick => {}
        }
    }

    fn listed<T, K>(&mut self, source: Source, update: &Update<T, K>) {
        if matches!(update, Update::All(_)) && self.unsynced.remove(&source) && self.unsynced.is_empty() {
            self.touch_all();
        }
    }

    /// Everything that is asked for, and everything we have, is looked at again.
    fn touch_all(&mut self) {
        self.dirty.extend(self.demands.vips());
        self.dirty.extend(self.kernel.ours().map(|a| a.vip()));
        self.dirty.extend(self.vips.keys());
    }

    /// What should be in the kernel and is not: a fence about to fall left it no time,
    /// and a renewal has given it some.
    fn touch_missing(&mut self) {
        let missing = Reason::Pending { missing: Missing::Kernel };
        self.dirty.extend(self.vips.iter().filter(|(_, s)| s.reason() == Some(&missing)).map(|(v, _)| *v));
    }

    fn announce_everything_again(&mut self) {
        for (vip, state) in &mut self.vips {
            state.announce_again(*vip, &mut self.announcer);
        }
        self.touch_all();
    }

    fn kernel_spoke(&mut self, vip: Vip) {
        if let Some(state) = self.vips.get_mut(&vip) {
            state.kernel_spoke();
        }
        self.dirty.insert(vip);
    }

    fn reconfigure(&mut self) {
        let before = self.agents.standing().clone();
        self.agents.decide(self.nodes.get(&self.config.node));
        if let Standing::Rejected(problem) = self.agents.standing()
            && before != *self.agents.standing()
        {
            self.out.push(Effect::Event(Event::config_error(problem)));
        }
        self.links_dirty = true;
        self.touch_all();
    }

    fn update_nodes(&mut self, update: Update<NodeFacts, NodeName>) {
        let me = self.config.node.clone();
        let own_before = self.nodes.get(&me).cloned();
        match update {
            Update::All(all) => {
                let fresh: BTreeMap<NodeName, NodeFacts> =
                    all.into_iter().map(|n| (n.name.clone(), n)).collect();
                self.members_dirty.extend(self.nodes.keys().chain(fresh.keys()).cloned());
                self.nodes = fresh;
            }
            Update::Set(node) => {
                // A Node's status changes every few seconds; we look at three fields.
                if self.nodes.get(&node.name) != Some(&node) {
                    self.members_dirty.insert(node.name.clone());
                    self.nodes.insert(node.name.clone(), node);
                }
            }
            Update::Gone(name) => {
                self.nodes.remove(&name);
                self.members_dirty.insert(name);
            }
        }
        if self.nodes.get(&me) != own_before.as_ref() || self.unsynced.contains(&Source::NodeAgents) {
            self.reconfigure();
        }
    }

    fn update_leases(&mut self, now: Mono, update: Update<LeaseFacts, NodeName>) {
        let me = self.config.node.clone();
        match update {
            Update::All(all) => {
                let known: Vec<NodeName> = self.members.iter().map(|(n, _)| n.clone()).collect();
                for node in known.into_iter().chain(all.iter().map(|l| l.node.clone())) {
                    let facts = all.iter().find(|l| l.node == node);
                    self.index_announced(&node, facts);
                    self.members_dirty.insert(node);
                }
                let own = all.iter().find(|l| l.node == me).cloned();
                self.members.replace(now, all);
                // Somebody may have had an address of ours and let go of it, and we
                // saw neither: its claim is what clients remember.
                if self.unsynced.is_empty() {
                    self.announce_everything_again();
                }
                self.own_lease_seen(now, own.as_ref());
            }
            Update::Set(facts) => {
                let node = facts.node.clone();
                self.index_announced(&node, Some(&facts));
                if node == me {
                    self.own_lease_seen(now, Some(&facts));
                }
                let heard = |e: &Self| e.members.get(&node).is_some_and(Member::heard);
                let heard_before = heard(self);
                self.members.observe(now, facts);
                // What waited for a sign of life from it can go on.
                if heard(self) != heard_before {
                    self.touch_all();
                }
                self.members_dirty.insert(node);
            }
            Update::Gone(node) => {
                self.index_announced(&node, None);
                if node == me {
                    self.own_lease_seen(now, None);
                }
                self.members.remove(&node);
                self.members_dirty.insert(node);
            }
        }
    }

    /// Keeps the index of who lists what, and looks again at what changed.
    fn index_announced(&mut self, node: &NodeName, facts: Option<&LeaseFacts>) {
        let before = self.members.get(node).and_then(|m| m.facts().announced.clone()).unwrap_or_default();
        let after = facts.and_then(|f| f.announced.clone()).unwrap_or_default();
        for vip in before.difference(&after) {
            if let Some(nodes) = self.announced_by.get_mut(vip) {
                nodes.remove(node);
                if nodes.is_empty() {
                    self.announced_by.remove(vip);
                }
            }
            self.dirty.insert(*vip);
        }
        for vip in after.difference(&before) {
            self.announced_by.entry(*vip).or_default().insert(node.clone());
            self.dirty.insert(*vip);
        }
    }

    fn command(&mut self, now: Mono, command: Command) {
        match command {
            Command::Drain { since, force } => {
                let since = self.drain.take().map_or(since, |d| d.since);
                self.drain = Some(Drain { since, force });
            }
            Command::Undrain => self.drain = None,
            Command::Resync => self.announce_everything_again(),
            Command::Shutdown { mode, since } => self.begin_stop(now, mode, since),
        }
        let me = self.config.node.clone();
        self.members_dirty.insert(me);
        self.touch_all();
    }

    fn settle(&mut self, now: Mono) {
        if self.stop.as_ref().is_some_and(Stop::is_over) {
            return;
        }
        self.check_lease(now);
        self.check_links(now);
        self.check_members(now);
        self.dirty.append(&mut self.wake.due(now));
        self.decide_vips(now);
        self.send_announcements(now);
        self.write_lease(now);
        self.progress_stop(now);
    }

    fn check_links(&mut self, now: Mono) {
        let known = [Source::Kernel, Source::NodeAgents, Source::Nodes];
        if known.iter().any(|s| self.unsynced.contains(s)) {
            return;
        }
        let before = self.subnets.stable(now);
        if self.links_dirty {
            self.links_dirty = false;
            self.subnets.update(now, &self.kernel, self.agents.current());
        }
        // Time alone makes a gain count: that is what the links' deadline is for.
        if before != self.subnets.stable(now) || self.wake.links_due(now) {
            let me = self.config.node.clone();
            self.members_dirty.insert(me);
            self.touch_all();
        }
        self.wake.set_links(self.subnets.deadline(now));
    }

    /// Is this Node there, and not vouched to be down?
    fn in_service(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|n| !n.out_of_service)
    }

    /// Tells the election what changed of who takes part.
    fn check_members(&mut self, now: Mono) {
        let mut changed = std::mem::take(&mut self.members_dirty);
        changed.extend(self.members.take_expired(now));
        let doubted = std::mem::take(&mut self.doubtful);
        changed.extend(doubted.iter().cloned());
        let mut changes = Vec::new();
        for node in changed {
            let candidacy = self.candidacy(now, &node);
            if node != self.config.node
                && candidacy.is_some()
                && self.members.get(&node).is_some_and(|m| !m.live(now))
            {
                // A write of ours that comes back tells: not only when it is due.
                if !doubted.contains(&node) {
                    self.lease.hurry(now);
                }
                self.doubtful.insert(node.clone());
            }
            if self.candidacies.get(&node) == candidacy.as_ref() {
                continue;
            }
            match candidacy {
                Some(candidacy) => {
                    self.candidacies.insert(node.clone(), candidacy.clone());
                    changes.push(MemberChange::Upsert(node, candidacy));
                }
                None => {
                    self.candidacies.remove(&node);
                    // Its word about what it holds counts no more.
                    self.dirty
                        .extend(self.announced_by.iter().filter(|(_, n)| n.contains(&node)).map(|(v, _)| *v));
                    changes.push(MemberChange::Remove(node));
                }
            }
        }
        if changes.is_empty() {
            return;
        }
        self.election.apply(changes);
    }

    fn candidacy(&self, now: Mono, node: &NodeName) -> Option<Candidacy> {
        // Whether we live is for the fence to say, not for our own Lease as we see it.
        if *node == self.config.node {
            return self.own_candidacy(now);
        }
        let member = self.members.get(node).filter(|m| self.lives(now, m))?;
        let facts = member.facts();
        let eligible = facts.draining.is_none() && self.in_service(node);
        Some(Candidacy { subnets: facts.subnets.iter().copied().collect(), eligible })
    }

    /// A peer that we have not seen renew is dead only if we would have seen it: by the
    /// time it must have fenced itself a write of ours had come back through the same
    /// watch. Otherwise the silence may be our own, after a partition or a stalled
    /// watch, and it may well hold its addresses.
    fn lives(&self, now: Mono, member: &Member) -> bool {
        let timers = self.config.timers;
        let fenced = member.expires() - timers.duration.saturating_sub(timers.renew_deadline);
        member.live(now) || (!member.absurd() && self.lease.looked().is_none_or(|at| at < fenced))
    }

    /// Of our own subnets count those that the others know of and that are still
    /// there: a gain counts once it is written and came back to us, a loss at once (R8).
    fn own_candidacy(&self, now: Mono) -> Option<Candidacy> {
        let written = self.lease.written()?;
        let confirmed = self.lease.confirmed()?;
        let advertised = self.subnets.advertised(now);
        let known = |s: &&IpNet| written.subnets.contains(s) && confirmed.subnets.contains(s);
        let subnets = advertised.iter().filter(known).copied().collect();
        // So with a drain that ended: until the Lease says so the others keep out
        // nobody but us, and we would be a second owner.
        let drained = written.draining.is_some() || confirmed.draining.is_some();
        let eligible = !self.leaving() && !drained && self.in_service(&self.config.node);
        Some(Candidacy { subnets, eligible })
    }

    /// We are on our way out: draining or stopping.
    fn leaving(&self) -> bool {
        self.drain.is_some() || self.stop.is_some()
    }

    fn id(&mut self, about: InFlight) -> u64 {
        self.next_id += 1;
        self.in_flight.insert(self.next_id, about);
        self.next_id
    }

    /// When to be called again at the latest.
    pub fn deadline(&self, now: Mono) -> Option<Mono> {
        if self.stop.as_ref().is_some_and(Stop::is_over) {
            return None;
        }
        let lease =
            if self.may_write_lease() { self.lease.deadline(now) } else { self.lease.write_gives_up() };
        [
            self.members.next_expiry(),
            self.fence.deadline().filter(|d| *d > now),
            lease,
            self.announcer.deadline(),
            self.wake.next(),
            self.stop.as_ref().and_then(Stop::deadline),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

#[cfg(test)]
mod tests;
