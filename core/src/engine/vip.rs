//! One address: what it should be here, why, and the steps towards it.

use std::time::Duration;

use crate::agents::Standing;
use crate::announce::Announcer;
use crate::facts::{AddrFacts, AgentConfig, LinkFacts, PoolType};
use crate::handoff::{Ended, Handoff, Stance, Verdict, View};
use crate::ids::{Family, IfIndex, IfName, NodeName, ObjectKey, Vip};
use crate::io::{AddressSpec, Effect, Event, EventKind, EventObject, Op, Source};
use crate::membership::Member;
use crate::placement::Demand;
use crate::reason::{FenceCause, Missing, Reason};
use crate::time::Mono;

use super::{Engine, InFlight};

/// The kernel said yes and does not show it: asked again after this long.
const KERNEL_PATIENCE: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(10);
/// Another host answered for the address: asked again after this long.
const DUPLICATE_RETRY: Duration = Duration::from_secs(5);
/// A slot that others keep overwriting is written at most this often.
const SLOT_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Failure {
    error: String,
    attempt: u32,
    retry_at: Mono,
}

#[derive(Debug, Default)]
pub(super) struct VipState {
    handoff: Handoff,
    /// The change now on its way to the kernel.
    changing: Option<u64>,
    /// The last change the kernel accepted and has not shown yet.
    accepted: Option<(Op, Mono)>,
    failure: Option<Failure>,
    duplicate_until: Option<Mono>,
    /// The first announcement since the address is there has gone out.
    announced: bool,
    /// It is on its way.
    announcing: bool,
    /// A live peer listed the address too when we last looked.
    rival: bool,
    /// We had it and should have it: if it vanishes, somebody took it away.
    had: bool,
    slot_written: Option<Mono>,
    reason: Option<Reason>,
    winner: Option<NodeName>,
}

impl VipState {
    /// The kernel reported something about the address: our expectations are met or void.
    pub(super) fn kernel_spoke(&mut self) {
        self.accepted = None;
    }

    pub(super) fn announce_again(&mut self, vip: Vip, announcer: &mut Announcer) {
        announcer.cancel(vip);
        self.announcing = false;
        self.rival = self.announced;
    }

    pub(super) fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }
}

/// What is to be done about one address, before it is compared with the kernel.
struct Wish {
    verdict: Verdict,
    reason: Reason,
    place: Option<Place>,
}

/// Where an address goes.
#[derive(Clone, Debug)]
struct Place {
    index: IfIndex,
    interface: IfName,
    net: ipnet::IpNet,
}

impl Wish {
    fn forbidden(reason: Reason) -> Self {
        Self { verdict: Verdict::Forbidden, reason, place: None }
    }
}

#[derive(Default)]
struct Plan {
    removals: Vec<(Vip, Op)>,
    additions: Vec<(Vip, Op)>,
}

impl Engine {
    /// Decides every address that something touched, removals first (R6).
    pub(super) fn decide_vips(&mut self, now: Mono) {
        if !self.unsynced.is_empty() {
            return;
        }
        self.track_dirty();
        let mut plan = Plan::default();
        for vip in std::mem::take(&mut self.dirty) {
            self.decide(now, vip, &mut plan);
        }
        for (vip, op) in plan.removals.into_iter().chain(plan.additions) {
            self.emit(vip, op);
        }
    }

    /// Tells the election which addresses matter, and hears which winners changed.
    fn track_dirty(&mut self) {
        for vip in self.dirty.clone() {
            match self.demands.of(vip).filter(|d| d.pool == PoolType::Local) {
                Some(demand) => self.election.track(vip, &demand.restriction),
                None => self.election.untrack(vip),
            }
        }
        for change in self.election.take_changes() {
            self.counters.winner_changes += 1;
            self.counters.wins += u64::from(change.after.as_ref() == Some(&self.config.node));
            self.counters.losses += u64::from(change.before.as_ref() == Some(&self.config.node));
            let fallback =
                self.election.standing(change.vip).is_some_and(|s| s.tier == crate::election::Tier::Fallback);
            self.counters.affinity_fallbacks += u64::from(fallback);
            self.dirty.insert(change.vip);
        }
    }

    fn emit(&mut self, vip: Vip, op: Op) {
        let dummy = matches!(op, Op::EnsureDummy { .. } | Op::RemoveDummy { .. });
        let about = if dummy { InFlight::Dummy } else { InFlight::Change { vip, op: op.clone() } };
        let id = self.id(about);
        if !dummy && let Some(state) = self.vips.get_mut(&vip) {
            state.changing = Some(id);
        }
        self.out.push(Effect::Apply { id, op });
    }

    fn decide(&mut self, now: Mono, vip: Vip, plan: &mut Plan) {
        let demand = self.demands.of(vip);
        let ours: Vec<AddrFacts> = self.kernel.of_vip(vip).filter(|a| a.ours).cloned().collect();
        if demand.is_none() && ours.is_empty() && self.vips.get(&vip).is_none_or(|s| s.changing.is_none()) {
            self.vips.remove(&vip);
            self.announced.remove(&vip);
            self.wake.set(vip, None);
            self.announcer.cancel(vip);
            return;
        }
        let held = ours.iter().any(|a| !a.dad_failed);
        let wish = match &demand {
            None => Wish::forbidden(Reason::Stopping),
            Some(demand) if demand.pool == PoolType::Remote => self.wish_remote(vip, demand, held),
            Some(demand) => self.wish_local(now, vip, demand, held),
        };
        let mut state = self.vips.remove(&vip).unwrap_or_default();
        let remote = demand.as_ref().is_some_and(|d| d.pool == PoolType::Remote);
        let stance = self.stance(now, vip, &mut state, &wish, held);
        let skip_dad = demand.as_ref().is_some_and(|d| d.skip_ipv6_dad);
        self.compare(now, vip, &mut state, stance, &wish, &ours, remote, skip_dad, plan);
        self.follow_announcement(now, vip, &mut state, stance, &wish, &ours, remote);
        let reason = self.explain(now, &state, stance, wish, &ours, remote);
        if let Some(demand) = &demand {
            self.tell(now, vip, demand, &mut state, &reason, remote);
        }
        if state.announced && demand.is_some() && !remote {
            self.announced.insert(vip);
        } else {
            self.announced.remove(&vip);
        }
        state.reason = Some(reason);
        state.winner = self.election.winner(vip).cloned();
        let wake = [
            state.handoff.deadline(),
            state.handoff.giving_to().and_then(|to| self.finds_its_way(now, to)),
            state.failure.as_ref().map(|f| f.retry_at).filter(|at| *at > now),
            state.duplicate_until.filter(|at| *at > now),
            state.accepted.as_ref().map(|(_, at)| *at + KERNEL_PATIENCE).filter(|at| *at > now),
            state.slot_written.map(|at| at + SLOT_PATIENCE).filter(|at| *at > now),
        ];
        self.wake.set(vip, wake.into_iter().flatten().min());
        self.vips.insert(vip, state);
    }

    fn wish_local(&self, now: Mono, vip: Vip, demand: &Demand, held: bool) -> Wish {
        if self.stopping_now() {
            return Wish::forbidden(Reason::Stopping);
        }
        if !self.in_service(&self.config.node) {
            return Wish::forbidden(Reason::OutOfService);
        }
        if let Some(interface) = self.foreign(vip) {
            return Wish::forbidden(Reason::ForeignAddress { interface });
        }
        let cause = self.fence_cause(now);
        let first = self.lease.written().is_none() && cause == Some(FenceCause::NeverRenewed);
        if let Some(cause) = cause.filter(|_| !first) {
            return Wish::forbidden(Reason::Fenced { cause });
        }
        if first || self.lease.confirmed().is_none() {
            // An earlier run's Lease still stands, so what it left in the kernel is
            // fenced by its lifetime: kept until we know whether it is ours (R3).
            // Without that Lease, or once we lost ours, others may have it already.
            let keep = held && self.lease.seen().is_some() && self.lease.looked().is_none();
            return Wish {
                verdict: Verdict::Nobody { keep },
                reason: Reason::Pending { missing: Missing::Lease },
                place: None,
            };
        }
        let configured = self.agents.current().is_some();
        let place = self.subnets.locate(now, vip).and_then(|(name, subnet)| {
            let link = self.kernel.link_named(name)?;
            Some(Place { index: link.index, interface: name.clone(), net: demand.net(vip, Some(subnet)) })
        });
        match self.election.winner(vip) {
            Some(winner) if *winner == self.config.node => match place {
                Some(place) => Wish {
                    verdict: Verdict::Mine,
                    reason: Reason::Pending { missing: Missing::Kernel },
                    place: Some(place),
                },
                None => Wish::forbidden(Reason::NoLocalSubnet),
            },
            Some(winner) => {
                let reason = if configured {
                    Reason::NotWinner { winner: winner.clone() }
                } else {
                    self.unconfigured()
                };
                // Without the subnet we cannot serve a moment longer, and need not wait.
                // If only the configuration took it from us, we can: until the
                // winner has it.
                if place.is_none() && !self.still_serves(vip) {
                    return Wish::forbidden(reason);
                }
                Wish { verdict: Verdict::Peer(winner.clone()), reason, place }
            }
            None if !configured => Wish::forbidden(self.unconfigured()),
            None => self.wish_unwon(vip, demand, held, place),
        }
    }

    /// The address is here, on a link that works and has its subnet, whatever the
    /// configuration says by now.
    fn still_serves(&self, vip: Vip) -> bool {
        let ours = self.kernel.of_vip(vip).filter(|a| a.ours && !a.tentative && !a.dad_failed);
        ours.filter(|a| self.kernel.link(a.index).is_some_and(LinkFacts::usable)).any(|held| {
            let mut addresses = self.kernel.addresses();
            addresses.any(|a| !a.ours && a.index == held.index && a.net.contains(&vip.ip()))
        })
    }

    fn wish_unwon(&self, vip: Vip, demand: &Demand, held: bool, place: Option<Place>) -> Wish {
        let forced = self.drain.as_ref().is_some_and(|d| d.force);
        let keep = self.drain.is_some()
            && !forced
            && self.stop.is_none()
            && held
            && place.is_some()
            && demand.permits(&self.config.node);
        let reason = if self.stop.is_some() {
            Reason::Stopping
        } else if keep || (self.drain.is_some() && held) {
            Reason::Draining { held: keep }
        } else if self.election.order_under(vip, &crate::election::Restriction::None).is_empty() {
            Reason::NoEligibleNode
        } else {
            Reason::NoEndpoints
        };
        Wish { verdict: Verdict::Nobody { keep }, reason, place }
    }

    /// Remote addresses live on every node; no election, no handoff, no fence: a
    /// router takes away the path to a node that is gone.
    fn wish_remote(&self, vip: Vip, demand: &Demand, held: bool) -> Wish {
        if self.stop.is_some() {
            return Wish::forbidden(Reason::Stopping);
        }
        if !self.in_service(&self.config.node) {
            return Wish::forbidden(Reason::OutOfService);
        }
        let Some(config) = self.agents.current() else {
            return Wish::forbidden(self.unconfigured());
        };
        if let Some(interface) = self.foreign(vip) {
            return Wish::forbidden(Reason::ForeignAddress { interface });
        }
        if !demand.permits(&self.config.node) {
            return Wish::forbidden(Reason::NoEndpoints);
        }
        if let Some(drain) = &self.drain {
            let me = &self.config.node;
            let others = self.candidacies.iter().any(|(n, c)| n != me && c.eligible && demand.permits(n));
            if others || drain.force || !held {
                return Wish::forbidden(Reason::Draining { held: false });
            }
        }
        let place = self.kernel.link_named(&config.dummy).map(|link| Place {
            index: link.index,
            interface: link.name.clone(),
            net: demand.net(vip, None),
        });
        Wish { verdict: Verdict::Mine, reason: Reason::Pending { missing: Missing::DummyInterface }, place }
    }

    fn unconfigured(&self) -> Reason {
        match self.agents.standing() {
            Standing::Rejected(p) => Reason::ConfigRejected {
                object: p.object.to_string(),
                field: p.field.clone(),
                message: p.message.clone(),
            },
            Standing::NotSelected | Standing::Configured => Reason::NotSelected,
        }
    }

    /// Somebody else's address equal to the VIP, where it is not there by design (R4).
    fn foreign(&self, vip: Vip) -> Option<IfName> {
        self.kernel
            .of_vip(vip)
            .filter(|a| !a.ours)
            .filter_map(|a| self.kernel.name_of(a.index))
            .find(|name| !self.config.shadow_interfaces.contains(*name))
            .cloned()
    }

    fn stance(&mut self, now: Mono, vip: Vip, state: &mut VipState, wish: &Wish, held: bool) -> Stance {
        // A Lease from the first listing may be a dead node's: nothing is given to one
        // that was not heard of since. It is soon, or it expires.
        let heard = |node: &NodeName| self.members.get(node).is_some_and(Member::heard);
        let announces = |node: &NodeName| {
            heard(node)
                && self.candidacies.contains_key(node)
                && self.announced_by.get(&vip).is_some_and(|n| n.contains(node))
        };
        // Nobody is served by an address under detection: there is nothing to hand
        // over, and keeping it would make the winner's own detection fail.
        let serves = self.kernel.of_vip(vip).any(|a| a.ours && !a.tentative && !a.dad_failed);
        let held = held && (serves || !matches!(wish.verdict, Verdict::Peer(_)));
        let view = View {
            now,
            verdict: wish.verdict.clone(),
            held,
            published: self.loss_is_published(now, vip)
                && !matches!(&wish.verdict, Verdict::Peer(to) if !heard(to) || self.finds_its_way(now, to).is_some()),
            announces: &announces,
        };
        let (stance, ended) = state.handoff.look(&view, self.config.handoff);
        match ended {
            Some(Ended::Confirmed) => self.counters.handoffs_confirmed += 1,
            Some(Ended::TimedOut) => self.counters.handoffs_timed_out += 1,
            None => {}
        }
        stance
    }

    /// A node that just started may not know yet that it won: it takes those who died
    /// before it looked for alive. Until it knows better the deadline does not run,
    /// or nobody would have the address. Peers without handoffs never answer anyway.
    fn finds_its_way(&self, now: Mono, node: &NodeName) -> Option<Mono> {
        let member = self.members.get(node).filter(|m| m.facts().announced.is_some())?;
        Some(member.knows_all_from()).filter(|at| now < *at)
    }

    /// Compares the wish with the kernel and plans the step towards it.
    #[allow(clippy::too_many_arguments, reason = "one look at one address, split from `decide` for reading")]
    fn compare(
        &mut self,
        now: Mono,
        vip: Vip,
        state: &mut VipState,
        stance: Stance,
        wish: &Wish,
        ours: &[AddrFacts],
        remote: bool,
        skip_dad: bool,
        plan: &mut Plan,
    ) {
        let wanted = match (stance, &wish.place) {
            (Stance::Have, Some(place)) => Some(place),
            _ => None,
        };
        let misplaced = |a: &&AddrFacts| match stance {
            Stance::Absent => true,
            Stance::Keep => a.dad_failed,
            Stance::Have => wanted.is_none_or(|p| (p.index, p.net) != (a.index, a.net)) || a.dad_failed,
        };
        // The duplicate that detection found may be the peer we take over from (R7).
        let rival = self.rival(vip);
        if rival {
            state.duplicate_until = None;
        } else if ours.iter().any(|a| a.dad_failed) && stance == Stance::Have {
            state.duplicate_until = Some(now + DUPLICATE_RETRY);
        }
        // An addition under way is taken back too: the applier keeps the order.
        let under_way = state.changing.and_then(|id| match self.in_flight.get(&id) {
            Some(InFlight::Change { op: Op::Put(spec), .. }) => Some((spec.index, spec.net)),
            _ => None,
        });
        let removing = state.changing.is_some() && under_way.is_none();
        let mut removals: Vec<Op> = Vec::new();
        if !removing {
            removals.extend(ours.iter().filter(misplaced).map(|a| Op::Remove { index: a.index, net: a.net }));
            if stance == Stance::Absent
                && let Some((index, net)) = under_way
            {
                removals.push(Op::Remove { index, net });
            }
        }
        let patient = |op: &Op| {
            state.accepted.as_ref().is_some_and(|(done, at)| done == op && now < *at + KERNEL_PATIENCE)
        };
        removals.retain(|op| !patient(op));
        if state.failure.as_ref().is_some_and(|f| now < f.retry_at) && stance != Stance::Absent {
            return;
        }
        if !removals.is_empty() {
            state.had = false;
            plan.removals.extend(removals.into_iter().map(|op| (vip, op)));
            return;
        }
        let Some(place) = wanted else {
            if stance == Stance::Have && remote {
                self.want_dummy(vip, plan);
            }
            state.had &= stance != Stance::Absent;
            return;
        };
        if ours.iter().any(|a| (a.index, a.net) == (place.index, place.net)) {
            state.had = true;
            state.failure = None;
            return;
        }
        if state.changing.is_some() || state.duplicate_until.is_some_and(|at| now < at) {
            return;
        }
        let no_dad = skip_dad || rival || remote;
        let Some(spec) = self.spec(now, vip, place.index, place.net, no_dad, remote) else {
            return;
        };
        let recent = state.accepted.as_ref().is_some_and(|(done, at)| {
            matches!(done, Op::Put(s) if (s.index, s.net) == (spec.index, spec.net))
                && now < *at + KERNEL_PATIENCE
        });
        if recent {
            return;
        }
        if state.had {
            self.counters.recoveries += 1;
            state.had = false;
        }
        plan.additions.push((vip, Op::Put(spec)));
    }

    fn want_dummy(&mut self, vip: Vip, plan: &mut Plan) {
        if self.dummy_requested {
            return;
        }
        if let Some(config) = self.agents.current() {
            self.dummy_requested = true;
            plan.additions.push((vip, Op::EnsureDummy { name: config.dummy.clone() }));
        }
    }

    /// A live peer says that it has the address as well.
    fn rival(&self, vip: Vip) -> bool {
        let me = &self.config.node;
        self.announced_by
            .get(&vip)
            .is_some_and(|n| n.iter().any(|n| n != me && self.candidacies.contains_key(n)))
    }

    /// The address as the kernel shall have it. `None`: the fence leaves it no time.
    pub(super) fn spec(
        &self,
        now: Mono,
        vip: Vip,
        index: IfIndex,
        net: ipnet::IpNet,
        no_dad: bool,
        remote: bool,
    ) -> Option<AddressSpec> {
        let default = AgentConfig::default();
        let config = self.agents.current().unwrap_or(&default);
        let options = if remote { &config.dummy_address } else { &config.local_address };
        let valid = if remote || !self.config.kernel_fence {
            options.valid
        } else {
            let fence = self.fence.kernel_seconds(now)?;
            Some(options.valid.map_or(fence, |v| v.min(fence)))
        };
        let preferred = match vip.family() {
            // Never a source address by itself: replies come from it, nothing else does.
            Family::V6 if !remote => Some(0),
            Family::V4 | Family::V6 => match (options.preferred, valid) {
                (Some(p), Some(v)) => Some(p.min(v)),
                (preferred, valid) => preferred.or(valid),
            },
        };
        Some(AddressSpec { index, net, valid, preferred, no_prefix_route: options.no_prefix_route, no_dad })
    }

    /// R9: the first announcement once the kernel shows the address; once more when
    /// a rival has let go.
    #[allow(clippy::too_many_arguments, reason = "one look at one address, split from `decide` for reading")]
    fn follow_announcement(
        &mut self,
        now: Mono,
        vip: Vip,
        state: &mut VipState,
        stance: Stance,
        wish: &Wish,
        ours: &[AddrFacts],
        remote: bool,
    ) {
        let shown = ours.iter().find(|a| !a.tentative && !a.dad_failed);
        let Some(shown) = shown.filter(|_| stance != Stance::Absent) else {
            state.announced = false;
            state.announcing = false;
            self.announcer.cancel(vip);
            return;
        };
        let garp = self.agents.current().map(|c| c.garp.clone()).unwrap_or_default();
        if remote || !garp.enabled {
            state.announced = true;
            return;
        }
        let rival = self.rival(vip);
        // A repeat now would call back clients that the next owner has just called to
        // itself, a moment before we let go of the address.
        if state.handoff.giving_to().is_some() {
            state.rival |= rival;
            state.announcing = false;
            self.announcer.cancel(vip);
            return;
        }
        let released = std::mem::replace(&mut state.rival, rival) && !rival;
        let again = released && state.announced && wish.verdict == Verdict::Mine;
        let first = !state.announced && !state.announcing;
        if (first || again)
            && let Some(interface) = self.kernel.name_of(shown.index).cloned()
        {
            state.announcing = true;
            self.announcer.start(now, vip, shown.index, interface, &garp);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one look at one address, split from `decide` for reading")]
    fn explain(
        &self,
        now: Mono,
        state: &VipState,
        stance: Stance,
        wish: Wish,
        ours: &[AddrFacts],
        remote: bool,
    ) -> Reason {
        match stance {
            Stance::Absent => return wish.reason,
            Stance::Keep => {
                return match state.handoff.giving_to() {
                    Some(to) => Reason::HandingOver { to: to.clone() },
                    None => wish.reason,
                };
            }
            Stance::Have => {}
        }
        if let Some(retry_at) = state.duplicate_until.filter(|at| now < *at)
            && let Some(place) = wish.place
        {
            return Reason::Duplicate { interface: place.interface, retry_at };
        }
        if let Some(failure) = &state.failure {
            return Reason::ApplyFailed {
                error: failure.error.clone(),
                attempt: failure.attempt,
                retry_at: failure.retry_at,
            };
        }
        let Some(place) = wish.place else {
            return wish.reason;
        };
        let pending = |missing| Reason::Pending { missing };
        match ours.iter().find(|a| (a.index, a.net) == (place.index, place.net)) {
            None => pending(Missing::Kernel),
            Some(a) if a.tentative => pending(Missing::DuplicateDetection),
            Some(_) if !remote && !state.announced => pending(Missing::Announcement),
            Some(_) => Reason::Announcing { interface: place.interface },
        }
    }

    /// Events and slots follow the fact, once per change.
    fn tell(
        &mut self,
        now: Mono,
        vip: Vip,
        demand: &Demand,
        state: &mut VipState,
        reason: &Reason,
        remote: bool,
    ) {
        let me = self.config.node.clone();
        let before = state.reason.as_ref();
        let is_new = before.is_none_or(|b| b.name() != reason.name());
        let mut event = |kind: EventKind, message: String| {
            for service in &demand.services {
                let object = EventObject::Service(service.clone());
                self.out.push(Effect::Event(Event { object, kind, message: message.clone() }));
            }
        };
        match reason {
            Reason::Announcing { interface } => {
                if before != Some(reason) {
                    let kind =
                        if remote { EventKind::AnnouncingNonLocal } else { EventKind::AnnouncingLocal };
                    event(kind, format!("Node {me} announcing {vip} on interface {interface}"));
                }
                if !remote {
                    self.claim_slots(now, vip, demand, state, interface);
                }
            }
            Reason::ApplyFailed { error, .. } if is_new => {
                event(EventKind::AnnouncementFailed, format!("Node {me} cannot announce {vip}: {error}"));
            }
            Reason::ForeignAddress { .. } | Reason::Duplicate { .. } if is_new => {
                event(EventKind::AnnouncementFailed, format!("Node {me} cannot announce {vip}: {reason}"));
            }
            Reason::NoEligibleNode if is_new && self.speaks_for(vip) => {
                let message = format!("No node can announce {vip}: {reason}");
                for service in &demand.services {
                    let object = EventObject::Service(service.clone());
                    let kind = EventKind::NoEligibleNodes;
                    self.out.push(Effect::Event(Event { object, kind, message: message.clone() }));
                }
            }
            _ => {}
        }
    }

    /// What concerns all nodes alike is said by one of them.
    fn speaks_for(&self, vip: Vip) -> bool {
        let key = vip.to_string();
        let others = self.candidacies.keys();
        let speaker = others.min_by_key(|n| crate::election::score(n.as_str(), &key));
        speaker.is_none_or(|n| *n == self.config.node)
    }

    fn claim_slots(
        &mut self,
        now: Mono,
        vip: Vip,
        demand: &Demand,
        state: &mut VipState,
        interface: &IfName,
    ) {
        if state.slot_written.is_some_and(|at| now < at + SLOT_PATIENCE) {
            return;
        }
        let missing: Vec<ObjectKey> = demand
            .services
            .iter()
            .filter(|key| {
                let slot = self.demands.service(key).and_then(|s| s.slots.get(&vip));
                slot.is_none_or(|s| s.node != self.config.node || s.interface != *interface)
            })
            .cloned()
            .collect();
        for service in missing {
            let stolen = self
                .demands
                .service(&service)
                .and_then(|s| s.slots.get(&vip))
                .is_some_and(|s| s.node != self.config.node);
            self.counters.slot_steals += u64::from(stolen);
            state.slot_written = Some(now);
            self.out.push(Effect::WriteSlot { service, vip, interface: interface.clone() });
        }
    }

    pub(super) fn applied(&mut self, now: Mono, id: u64, result: Result<(), String>) {
        match self.in_flight.remove(&id) {
            Some(InFlight::Change { vip, op }) => {
                self.dirty.insert(vip);
                let Some(state) = self.vips.get_mut(&vip) else {
                    return;
                };
                if state.changing == Some(id) {
                    state.changing = None;
                }
                match result {
                    Ok(()) => {
                        match op {
                            Op::Put(_) => self.counters.additions += 1,
                            _ => self.counters.withdrawals += 1,
                        }
                        let shown = match &op {
                            Op::Put(s) => self.kernel.address((s.index, s.net)).is_some(),
                            Op::Remove { index, net } => self.kernel.address((*index, *net)).is_none(),
                            Op::EnsureDummy { .. } | Op::RemoveDummy { .. } => true,
                        };
                        state.accepted = (!shown).then_some((op, now));
                        state.failure = None;
                    }
                    Err(error) => {
                        self.counters.apply_errors += 1;
                        let attempt = state.failure.as_ref().map_or(1, |f| f.attempt.saturating_add(1));
                        let wait = RETRY_FIRST.saturating_mul(1 << (attempt - 1).min(10)).min(RETRY_MOST);
                        state.failure = Some(Failure { error, attempt, retry_at: now + wait });
                    }
                }
            }
            Some(InFlight::Refresh { vip }) => {
                match result {
                    Ok(()) => self.counters.refreshes += 1,
                    Err(_) => self.counters.apply_errors += 1,
                }
                self.dirty.insert(vip);
            }
            Some(InFlight::Dummy) => {
                self.dummy_requested = false;
                if result.is_err() {
                    self.counters.apply_errors += 1;
                }
            }
            Some(InFlight::Announce { .. }) | None => {}
        }
    }

    pub(super) fn announced(&mut self, now: Mono, id: u64, result: Result<(), String>) {
        let Some(InFlight::Announce { vip, first }) = self.in_flight.remove(&id) else {
            return;
        };
        match result {
            Ok(()) => {
                self.counters.announcements += 1;
                if let Some(state) = self.vips.get_mut(&vip).filter(|s| s.announcing) {
                    state.announced = true;
                }
            }
            Err(_) => {
                self.counters.announcement_errors += 1;
                let shown = self.kernel.of_vip(vip).find(|a| a.ours);
                let name = shown.and_then(|a| Some((a.index, self.kernel.name_of(a.index)?.clone())));
                let garp = self.agents.current().map(|c| c.garp.clone()).unwrap_or_default();
                if let Some((index, interface)) = name.filter(|_| first) {
                    self.announcer.failed(now, vip, index, interface, &garp);
                }
            }
        }
        self.dirty.insert(vip);
    }

    pub(super) fn send_announcements(&mut self, now: Mono) {
        let kernel = &self.kernel;
        let vips = &self.vips;
        let due = self.announcer.due(now, |vip| {
            let shown = kernel.of_vip(vip).any(|a| a.ours && !a.tentative && !a.dad_failed);
            shown && vips.get(&vip).is_some_and(|s| s.announcing)
        });
        for due in due {
            let id = self.id(InFlight::Announce { vip: due.vip, first: due.first });
            self.out.push(Effect::Announce { id, vip: due.vip, index: due.index, interface: due.interface });
        }
        self.counters.announcements_dropped = self.announcer.dropped();
    }

    /// A renewal succeeded: the addresses we hold live as long as it allows (R3).
    /// Before the picture is whole, what an earlier run left is kept alive as well:
    /// our Lease never lapsed, or the kernel would have removed it.
    pub(super) fn extend_lifetimes(&mut self, now: Mono) {
        let whole = self.unsynced.is_empty();
        let held: Vec<AddrFacts> = self
            .kernel
            .ours()
            .filter(|a| !a.permanent && !a.dad_failed)
            .filter(|a| match self.vips.get(&a.vip()).and_then(VipState::reason) {
                Some(reason) => matches!(
                    reason,
                    Reason::Announcing { .. }
                        | Reason::Pending {
                            missing: Missing::Lease | Missing::Announcement | Missing::DuplicateDetection,
                        }
                        | Reason::HandingOver { .. }
                        | Reason::Draining { held: true }
                ),
                None => !whole,
            })
            .cloned()
            .collect();
        for address in held {
            let vip = address.vip();
            if let Some(spec) = self.spec(now, vip, address.index, address.net, true, false) {
                let id = self.id(InFlight::Refresh { vip });
                self.out.push(Effect::Apply { id, op: Op::Put(spec) });
            }
        }
    }

    pub(super) fn missing_sources(&self) -> Vec<Source> {
        self.unsynced.iter().copied().collect()
    }
}
