//! One address: what it should be here, why, and the steps towards it.

mod answers;
mod arrival;
mod decline;
mod lifetimes;
mod tell;
mod wish;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::announce::Announcer;
use crate::facts::{AddrFacts, PoolType};
use crate::handoff::{Ended, Handoff, Stance, Verdict, View};
use crate::ids::{NodeName, Vip};
use crate::io::{Effect, Op};
use crate::membership::Member;
use crate::reason::{Missing, Reason};
use crate::time::Mono;

use super::{Engine, InFlight};
use arrival::Arrival;
use decline::Declining;
use wish::Wish;

/// The kernel said yes and does not show it: asked again after this long.
const KERNEL_PATIENCE: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(10);
/// What has to go is tried more often.
const REMOVAL_MOST: Duration = Duration::from_secs(1);
/// Another host answered for the address: asked again after this long.
const DUPLICATE_RETRY: Duration = Duration::from_secs(5);
/// A slot that others keep overwriting is written at most this often.
const SLOT_PATIENCE: Duration = Duration::from_secs(1);
/// Endpoints come and go while pods are exchanged: only a lack that lasts is told.
const ENDPOINT_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
struct Failure {
    /// It was a removal.
    removal: bool,
    error: String,
    attempt: u32,
    retry_at: Mono,
}

#[derive(Clone, Debug, Default)]
pub(super) struct VipState {
    handoff: Handoff,
    /// The change now on its way to the kernel, and since when.
    changing: Option<u64>,
    asked: Mono,
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
    /// It stayed here while the node drained, or was kept off, since no other could have it: it is put
    /// back should a fence have taken it.
    kept: bool,
    /// We had it and should have it: if it vanishes, somebody took it away.
    had: bool,
    /// This run put it there; what an earlier run left is nothing new.
    put_here: bool,
    slot_written: Option<Mono>,
    /// It is for the dummy interface, as of the last look.
    remote: bool,
    /// Since when no node can have it, and which reason of that was said last.
    nobody_since: Option<Mono>,
    nobody_told: Option<&'static str>,
    reason: Option<Reason>,
    arrival: Arrival,
    declining: Declining,
}

impl VipState {
    /// The kernel reported something about the address: our expectations are met or void.
    pub(super) fn kernel_spoke(&mut self) {
        self.accepted = None;
    }

    /// Announced, here to stay, and nothing known that would change it.
    pub(super) fn is_settled(&self) -> bool {
        self.announced
            && !self.remote
            && self.handoff.giving_to().is_none()
            && matches!(self.reason, Some(Reason::Announcing { .. }))
    }

    /// It is announced from the beginning; no look at it is needed for that.
    pub(super) fn is_announced_again(&mut self) {
        (self.announcing, self.rival) = (true, false);
    }

    /// Whether there is anything to announce again.
    pub(super) fn announce_again(&mut self, vip: Vip, announcer: &mut Announcer) -> bool {
        let some = self.announced || self.announcing;
        if some {
            announcer.cancel(vip);
            self.announcing = false;
            self.rival = self.announced;
        }
        some
    }

    /// An operator asks for another try.
    pub(super) fn try_again(&mut self) {
        self.declining.forget();
        self.failure = None;
    }

    pub(super) fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    pub(super) fn announced(&self) -> bool {
        self.announced
    }

    pub(super) fn is_remote(&self) -> bool {
        self.remote
    }

    /// Another node's, and nothing of it is on its way to us or from us.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.changing.is_none() && matches!(self.reason, Some(Reason::NotWinner { .. }))
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
            // With the last listing everything is looked at; until then it is shown.
            self.picture.vips.append(&mut self.dirty);
            return;
        }
        self.track_dirty();
        if std::mem::take(&mut self.announce_again) {
            self.announce_everything_again(now);
        }
        let mut plan = Plan::default();
        for vip in std::mem::take(&mut self.dirty) {
            self.decide(now, vip, &mut plan);
        }
        for (vip, op) in plan.removals.into_iter().chain(plan.additions) {
            self.emit(now, vip, op);
        }
    }

    /// Tells the election which addresses matter, and hears which winners changed.
    fn track_dirty(&mut self) {
        for vip in &self.dirty {
            // Others may know the group that we do not: who would win it is of interest all the
            // same, or we could not leave it to them.
            match self.demands.elected(*vip) {
                Some(restriction) => self.election.track(*vip, &restriction),
                None => self.election.untrack(*vip),
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

    fn emit(&mut self, now: Mono, vip: Vip, op: Op) {
        let dummy = matches!(op, Op::EnsureDummy { .. } | Op::RemoveDummy { .. });
        let about = if dummy { InFlight::Dummy } else { InFlight::Change { vip, op: op.clone() } };
        let id = self.id(about);
        if !dummy && let Some(state) = self.vips.get_mut(&vip) {
            state.changing = Some(id);
            state.asked = now;
            // Decided before this was known: without an answer nothing else would wake us.
            if let Some(at) = self.vips.get(&vip).and_then(|state| self.unanswered_at(vip, state)) {
                self.wake.no_later(vip, at);
            }
        }
        self.out.push(Effect::Apply { id, op });
    }

    fn decide(&mut self, now: Mono, vip: Vip, plan: &mut Plan) {
        let demand = self.demands.of(vip);
        let ours: Vec<AddrFacts> = self.kernel.of_vip(vip).filter(|a| a.ours).cloned().collect();
        let idle = ours.is_empty() && self.vips.get(&vip).is_none_or(|s| s.changing.is_none());
        if demand.is_none() && idle && self.demands.slots_of(vip).next().is_none() {
            self.forget(vip);
            return;
        }
        let held = ours.iter().any(|a| !a.dad_failed);
        let mut state = self.vips.remove(&vip).unwrap_or_default();
        let wish = match &demand {
            None => Wish::forbidden(Reason::NoService),
            Some(demand) if demand.group.is_none() => Wish::forbidden(Reason::NotInPool),
            Some(demand) if demand.pool == PoolType::Remote => self.wish_remote(vip, demand, held),
            Some(demand) => self.wish_local(now, vip, demand, held, state.kept),
        };
        // As long as the others take us for draining, nobody else can have become the winner.
        let leaves = || self.excluded() || self.lease_says_draining();
        let keeps = demand.is_some() && self.drain.as_ref().map_or_else(leaves, |d| !d.force);
        state.kept = keeps
            && match &wish.verdict {
                Verdict::Nobody { keep } => *keep || state.kept,
                // Fenced, or to be put back.
                Verdict::Forbidden | Verdict::Mine => state.kept && self.election.winner(vip).is_none(),
                Verdict::Peer(_) => false,
            };
        let remote = demand.as_ref().is_some_and(|d| d.pool == PoolType::Remote);
        state.remote = if demand.is_some() { remote } else { state.remote };
        self.prefixes.set(vip, demand.as_ref().filter(|_| remote).map(|d| d.net(vip, None)));
        let stance = self.stance(now, vip, &mut state, &wish, held);
        if stance == Stance::Absent {
            // Refusals count in a row: once it is gone, the next time it is to be here begins anew.
            state.failure.take_if(|f| !f.removal || ours.is_empty());
        }
        let skip_dad = demand.as_ref().is_some_and(|d| d.skip_ipv6_dad);
        self.compare(now, vip, &mut state, stance, &wish, &ours, remote, skip_dad, plan);
        self.follow_announcement(now, vip, &mut state, stance, &wish, &ours, remote);
        self.time_arrival(now, &mut state, stance, &wish, &ours);
        let mut reason = self.explain(now, &state, stance, wish, &ours, remote);
        if demand.is_some() && !remote {
            reason = self.consider_declining(now, vip, &mut state, reason);
        } else {
            self.take_part_again(vip);
        }
        if let Some(demand) = &demand {
            self.tell(now, vip, demand, &mut state, &reason, remote);
            self.tell_of_nobody(now, vip, demand, &mut state, &reason, remote);
        } else {
            (state.nobody_since, state.nobody_told) = (None, None);
        }
        self.say_announced(vip, state.announced && demand.is_some() && !remote);
        self.picture.vips.insert(vip);
        self.clear_slots(now, vip, &mut state, held);
        self.note(vip, &state, &reason);
        state.reason = Some(reason);
        let wake = [
            state.handoff.deadline(),
            state.handoff.giving_to().and_then(|to| self.finds_its_way(now, to)),
            state.failure.as_ref().map(|f| f.retry_at).filter(|at| *at > now),
            state.duplicate_until.filter(|at| *at > now),
            state.declining.deadline().filter(|at| *at > now),
            self.unanswered_at(vip, &state).filter(|at| *at > now),
            state.accepted.as_ref().map(|(_, at)| *at + KERNEL_PATIENCE).filter(|at| *at > now),
            state.slot_written.map(|at| at + SLOT_PATIENCE).filter(|at| *at > now),
            state.nobody_since.map(|at| at + ENDPOINT_PATIENCE).filter(|at| *at > now),
            Some(self.dummy_again).filter(|at| remote && *at > now),
            self.passes_on_until().filter(|at| held && !remote && *at > now),
        ];
        self.wake.set(vip, wake.into_iter().flatten().min());
        self.awaiting.set(vip, state.handoff.waits_for());
        self.vips.insert(vip, state);
    }

    /// What the Lease says is shared with the writes of it: touched only if it changes.
    fn say_announced(&mut self, vip: Vip, announced: bool) {
        if self.announced.contains(&vip) != announced {
            let all = Arc::make_mut(&mut self.announced);
            if announced {
                all.insert(vip);
            } else {
                all.remove(&vip);
            }
        }
    }

    fn forget(&mut self, vip: Vip) {
        self.picture.vips.insert(vip);
        self.vips.remove(&vip);
        self.say_announced(vip, false);
        self.take_part_again(vip);
        self.missing.remove(&vip);
        self.nobodys.remove(&vip);
        self.troubled.remove(&vip);
        self.wake.set(vip, None);
        self.awaiting.set(vip, None);
        self.prefixes.set(vip, None);
        self.announcer.cancel(vip);
    }

    /// Keeps the lists of addresses that wait for something.
    fn note(&mut self, vip: Vip, state: &VipState, reason: &Reason) {
        fn keep(list: &mut BTreeSet<Vip>, vip: Vip, holds: bool) {
            if holds {
                list.insert(vip);
            } else {
                list.remove(&vip);
            }
        }
        keep(&mut self.missing, vip, *reason == Reason::Pending { missing: Missing::Kernel });
        let left_over = self.demands.slots_of(vip).any(|(_, _, has)| !has);
        // Nobody's as long as we are the only one, and the others have yet to read of us.
        let not_yet = *reason == Reason::Pending { missing: Missing::Lease };
        keep(&mut self.nobodys, vip, state.nobody_since.is_some() || left_over || not_yet);
        let troubled = matches!(
            reason,
            Reason::NotInPool
                | Reason::ApplyFailed { .. }
                | Reason::Duplicate { .. }
                | Reason::ForeignAddress { .. }
                | Reason::Declined { .. }
        );
        keep(&mut self.troubled, vip, troubled || self.declined.contains(&vip));
    }

    fn stance(&mut self, now: Mono, vip: Vip, state: &mut VipState, wish: &Wish, held: bool) -> Stance {
        // A Lease from the first listing may be a dead node's: nothing is given to one
        // that was not heard of since. It is soon, or it expires.
        let heard = |node: &NodeName| self.members.get(node).and_then(Member::heard);
        let announces = |node: &NodeName| {
            heard(node).is_some()
                && self.candidacies.contains_key(node)
                && self.announced_by.get(&vip).is_some_and(|n| n.contains(node))
        };
        // Nobody is served by an address under detection: there is nothing to hand
        // over, and keeping it would make the winner's own detection fail.
        let serves = self.kernel.of_vip(vip).any(|a| a.ours && !a.tentative && !a.dad_failed);
        let held = held && (serves || !matches!(wish.verdict, Verdict::Peer(_)));
        let to = match &wish.verdict {
            Verdict::Peer(to) => Some(to),
            _ => None,
        };
        let view = View {
            now,
            verdict: wish.verdict.clone(),
            held,
            // Of no interest but for what another shall have.
            published: held
                && to.is_some_and(|to| {
                    self.loss_is_published(now, vip) && self.finds_its_way(now, to).is_none()
                }),
            heard: to.and_then(heard),
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
            if state.duplicate_until.is_none_or(|at| now >= at) {
                state.declining.duplicate_found();
            }
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
        // A refused addition does not put off a removal.
        if state.failure.as_ref().is_some_and(|f| now < f.retry_at && (f.removal || stance != Stance::Absent))
        {
            return;
        }
        if !removals.is_empty() {
            state.had = false;
            plan.removals.extend(removals.into_iter().map(|op| (vip, op)));
            return;
        }
        let Some(place) = wanted else {
            if stance == Stance::Have && remote {
                self.want_dummy(now, vip, plan);
            }
            state.had &= stance != Stance::Absent;
            return;
        };
        if let Some(there) = ours.iter().find(|a| (a.index, a.net) == (place.index, place.net)) {
            state.had = true;
            state.failure = None;
            if remote {
                self.keep_remote(now, there);
            }
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
        state.put_here = true;
        plan.additions.push((vip, Op::Put(spec)));
    }

    fn want_dummy(&mut self, now: Mono, vip: Vip, plan: &mut Plan) {
        if self.dummy_requested || now < self.dummy_again {
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
            state.announcing = false;
            self.announcer.cancel(vip);
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
        // Not announced at all, or held since before announcements were switched on.
        let unsaid = wish.verdict == Verdict::Mine && !rival;
        let first = !state.announcing && (!state.announced || unsaid);
        // Whether what an earlier run left is ours is not known yet.
        if first && self.confirmed().is_none() {
            return;
        }
        if (first || again)
            && let Some(interface) = self.kernel.name_of(shown.index).cloned()
        {
            state.announcing = true;
            self.announcer.start(now, vip, shown.index, interface, &garp);
        } else if state.announced
            && wish.verdict == Verdict::Mine
            && let Some(interface) = self.kernel.name_of(shown.index)
        {
            self.announcer.refresh_every(now, vip, shown.index, interface, garp.refresh);
        }
    }
}
