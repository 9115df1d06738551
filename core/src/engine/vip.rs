//! One address: what it should be here, why, and the steps towards it.

mod answers;
mod arrival;
mod tell;
mod wish;

use std::time::Duration;

use crate::announce::Announcer;
use crate::facts::{AddrFacts, AgentConfig, PoolType};
use crate::handoff::{Ended, Handoff, Stance, Verdict, View};
use crate::ids::{Family, IfIndex, NodeName, Vip};
use crate::io::{AddressSpec, Effect, Op};
use crate::membership::Member;
use crate::reason::Reason;
use crate::time::Mono;

use super::{Engine, InFlight};
use arrival::Arrival;
use wish::Wish;

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
    arrival: Arrival,
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

    pub(super) fn announced(&self) -> bool {
        self.announced
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
        self.time_arrival(now, &mut state, stance, &wish, &ours);
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
        let giving = state.handoff.giving_to().is_some();
        let began = state.handoff.began();
        let (stance, ended) = state.handoff.look(&view, self.config.handoff);
        let took = now.since(began.unwrap_or(now));
        // Ours again midway: the other may have announced it, whether it says so or not.
        if giving && wish.verdict == Verdict::Mine {
            state.rival = true;
        }
        match ended {
            Some(Ended::Confirmed) => {
                self.counters.handoffs_confirmed += 1;
                self.times.handoff_confirmed.time(took);
            }
            Some(Ended::TimedOut) => {
                self.counters.handoffs_timed_out += 1;
                self.times.handoff_timed_out.time(took);
            }
            None if began.is_some() && state.handoff.began().is_none() => {
                self.times.handoff_abandoned.time(took);
            }
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
        // That we have it is said in the Lease all the same: for its duplicate detection,
        // and so that it announces once more when we let go. Should it be ours after
        // all, what was never announced counts as contested, and is announced then.
        if state.handoff.giving_to().is_some() {
            state.rival |= rival || !state.announced;
            state.announced = true;
            state.announcing = false;
            self.announcer.cancel(vip);
            return;
        }
        let released = std::mem::replace(&mut state.rival, rival) && !rival;
        let again = released && state.announced && wish.verdict == Verdict::Mine;
        let first = !state.announced && !state.announcing;
        // Whether what an earlier run left is ours is not known yet.
        if first && self.lease.confirmed().is_none() {
            return;
        }
        if (first || again)
            && let Some(interface) = self.kernel.name_of(shown.index).cloned()
        {
            state.announcing = true;
            self.announcer.start(now, vip, shown.index, interface, &garp);
        }
    }
}
