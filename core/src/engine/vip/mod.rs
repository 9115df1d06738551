//! One address: what it should be here, why, and the steps towards it.

mod announce;
mod arrival;
mod decline;
mod desired;
mod presence;
mod reconcile;
mod refresh;
mod report;
mod results;
mod state;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::facts::{AddrFacts, PoolType};
use crate::handoff::{HandoffEnd, HandoffView, OwnerVerdict, VipStance};
use crate::ids::{NodeName, Vip};
use crate::membership::Member;
use crate::placement::Demand;
use crate::reason::{PendingCause, Reason};
use crate::time::Mono;

use super::{Engine, InFlight};
pub(super) use desired::DesiredVip;
use desired::{VipObstacle, VipPlace};
use presence::VipPresence;
use reconcile::KernelPlan;
pub(super) use state::VipState;

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

/// What one look at an address found.
struct VipFindings {
    now: Mono,
    vip: Vip,
    /// `None`: no Service asks for it any more.
    demand: Option<Demand>,
    /// Where the kernel shows it with our mark.
    ours: Vec<AddrFacts>,
    desired: DesiredVip,
    stance: VipStance,
}

impl VipFindings {
    /// It is for the dummy interface.
    fn is_remote(&self) -> bool {
        self.demand.as_ref().is_some_and(|d| d.pool == PoolType::Remote)
    }

    fn skips_dad(&self) -> bool {
        self.demand.as_ref().is_some_and(|d| d.skip_ipv6_dad)
    }

    /// Where it is to be put, if it is to be here.
    fn place(&self) -> Option<&VipPlace> {
        self.desired.place.as_ref().filter(|_| self.stance == VipStance::Have)
    }

    /// The kernel shows it at that place.
    fn at(&self, place: &VipPlace) -> Option<&AddrFacts> {
        self.ours.iter().find(|a| (a.index, a.net) == (place.index, place.net))
    }
}

impl Engine {
    /// Decides every address that something touched, removals first (R6).
    pub(super) fn decide_vips(&mut self, now: Mono) {
        if !self.unsynced.is_empty() {
            // With the last listing everything is looked at; until then it is shown.
            self.snapshot_cache.vips.append(&mut self.dirty);
            return;
        }
        self.track_dirty_vips();
        if std::mem::take(&mut self.announce_again) {
            self.announce_everything_again(now);
        }
        let mut plan = KernelPlan::default();
        for vip in std::mem::take(&mut self.dirty) {
            self.decide(now, vip, &mut plan);
        }
        for (vip, op) in plan.removals.into_iter().chain(plan.additions) {
            self.emit(now, vip, op);
        }
    }

    /// Tells the election which addresses matter, and hears which winners changed.
    fn track_dirty_vips(&mut self) {
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
            let fallback = self
                .election
                .standing(change.vip)
                .is_some_and(|s| s.tier == crate::election::CandidateTier::Fallback);
            self.counters.affinity_fallbacks += u64::from(fallback);
            self.dirty.insert(change.vip);
        }
    }

    fn decide(&mut self, now: Mono, vip: Vip, plan: &mut KernelPlan) {
        let demand = self.demands.of(vip);
        let ours: Vec<AddrFacts> = self.kernel.of_vip(vip).filter(|a| a.ours).cloned().collect();
        let idle = ours.is_empty() && self.vips.get(&vip).is_none_or(|s| s.changing.is_none());
        if demand.is_none() && idle && self.demands.slots_of(vip).next().is_none() {
            self.forget(vip);
            return;
        }
        let held = ours.iter().any(|a| !a.dad_failed);
        let mut state = self.vips.remove(&vip).unwrap_or_default();
        self.consider_early(now, vip, &mut state.handoff);
        let desired = match &demand {
            None => DesiredVip::forbidden(Reason::NoService),
            Some(demand) if demand.group.is_none() => DesiredVip::not_in_pool(),
            Some(demand) if demand.pool == PoolType::Remote => self.desired_remote(vip, demand, held),
            Some(demand) => match self.ride_of(now, vip, demand, &ours, &mut state) {
                Some(rides) => rides,
                None => self.desired_local(now, vip, demand, held, state.kept),
            },
        };
        // As long as the others take us for draining, nobody else can have become the winner.
        let leaves = || self.excluded() || self.lease_says_draining();
        let keeps = demand.is_some() && self.drain.as_ref().map_or_else(leaves, |d| !d.force);
        state.kept = keeps
            && match &desired.verdict {
                OwnerVerdict::Nobody { keep } => *keep || state.kept,
                // Fenced, or to be put back.
                OwnerVerdict::Forbidden | OwnerVerdict::Mine => {
                    state.kept && self.election.winner(vip).is_none()
                }
                OwnerVerdict::Peer(_) => false,
            };
        let remote = demand.as_ref().is_some_and(|d| d.pool == PoolType::Remote);
        state.remote = if demand.is_some() { remote } else { state.remote };
        self.prefixes.set(vip, demand.as_ref().filter(|_| remote).map(|d| d.net(vip, None)));
        let stance = self.stance(now, vip, &mut state, &desired, held);
        if stance == VipStance::Absent {
            // Refusals count in a row: once it is gone, the next time it is to be here begins anew.
            state.failure.take_if(|f| !f.removal || ours.is_empty());
        }
        if self.ride.since().is_none() {
            let ours = match &desired.verdict {
                OwnerVerdict::Mine | OwnerVerdict::Nobody { .. } => true,
                OwnerVerdict::Peer(_) => state.handoff.began().is_some(),
                OwnerVerdict::Forbidden => false,
            };
            state.rightful = ours && held && !remote && stance != VipStance::Absent;
        }
        let found = VipFindings { now, vip, demand, ours, desired, stance };
        self.plan_changes(&found, &mut state, plan);
        self.reconcile_announcement(&found, &mut state);
        self.time_arrival(&found, &mut state);
        let presence = VipPresence::find(&found, &state);
        state.presence = Some(presence);
        let mut reason = found.explain(presence, &state);
        if found.demand.is_some() && !remote {
            self.consider_declining(&found, presence, &mut state);
            reason = self.explain_decline(&state, vip, reason);
        } else {
            self.take_part_again(vip);
        }
        if let Some(demand) = &found.demand {
            self.report_change(&found, demand, &mut state, &reason);
            self.report_nobody(&found, demand, &mut state, &reason);
        } else {
            (state.nobody_since, state.nobody_told) = (None, None);
        }
        self.hold_on_segment(vip, &state);
        self.say_announced(vip, state.announced() && found.demand.is_some() && !remote);
        self.snapshot_cache.vips.insert(vip);
        self.clear_slots(now, vip, &mut state, held);
        self.update_lists(&found, presence, &state, &reason);
        state.reason = Some(reason);
        let wake = [
            state.handoff.deadline(),
            state.ride.deadline(),
            state.handoff.giving_to().and_then(|to| self.learns_winners_until(now, to)),
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
        self.snapshot_cache.vips.insert(vip);
        self.vips.remove(&vip);
        self.say_announced(vip, false);
        self.take_part_again(vip);
        self.missing.remove(&vip);
        self.nobodys.remove(&vip);
        self.troubled.remove(&vip);
        self.wake.set(vip, None);
        self.ride.forget(vip);
        self.awaiting.set(vip, None);
        self.prefixes.set(vip, None);
        self.announcer.cancel(vip);
        self.forget_on_segment(vip);
    }

    /// Keeps the lists of addresses that wait for something.
    fn update_lists(
        &mut self,
        found: &VipFindings,
        presence: VipPresence,
        state: &VipState,
        reason: &Reason,
    ) {
        fn keep(list: &mut BTreeSet<Vip>, vip: Vip, holds: bool) {
            if holds {
                list.insert(vip);
            } else {
                list.remove(&vip);
            }
        }
        let vip = found.vip;
        keep(&mut self.missing, vip, presence == VipPresence::Missing);
        let left_over = self.demands.slots_of(vip).any(|(_, _, has)| !has);
        // Nobody's as long as we are the only one, and the others have yet to read of us.
        let not_yet = *reason == Reason::Pending { missing: PendingCause::Lease };
        keep(&mut self.nobodys, vip, state.nobody_since.is_some() || left_over || not_yet);
        let troubled = matches!(presence, VipPresence::Refused | VipPresence::Duplicate)
            || matches!(
                found.desired.obstacle,
                Some(VipObstacle::NotInPool | VipObstacle::ForeignAddress { .. })
            );
        keep(&mut self.troubled, vip, troubled || self.declined.contains(&vip));
    }

    fn stance(
        &mut self,
        now: Mono,
        vip: Vip,
        state: &mut VipState,
        desired: &DesiredVip,
        held: bool,
    ) -> VipStance {
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
        let held = held && (serves || !matches!(desired.verdict, OwnerVerdict::Peer(_)));
        let to = match &desired.verdict {
            OwnerVerdict::Peer(to) => Some(to),
            _ => None,
        };
        let view = HandoffView {
            now,
            verdict: desired.verdict.clone(),
            held,
            // Of no interest but for what another shall have.
            published: held
                && to.is_some_and(|to| {
                    self.loss_is_published(now, vip) && self.learns_winners_until(now, to).is_none()
                }),
            heard: to.and_then(heard),
            announces: &announces,
        };
        let giving = state.handoff.giving_to().is_some();
        let began = state.handoff.began();
        let (stance, ended) = state.handoff.advance(&view, self.config.handoff);
        let took = now.since(began.unwrap_or(now));
        // Ours again midway: the other may have announced it, whether it says so or not.
        if giving && desired.verdict == OwnerVerdict::Mine {
            state.rival = true;
        }
        match ended {
            Some(HandoffEnd::Confirmed) => {
                self.counters.handoffs_confirmed += 1;
                self.times.handoff_confirmed.record_time(took);
            }
            Some(HandoffEnd::TimedOut) => {
                self.counters.handoffs_timed_out += 1;
                self.times.handoff_timed_out.record_time(took);
            }
            None if began.is_some() && state.handoff.began().is_none() => {
                self.times.handoff_abandoned.record_time(took);
            }
            None => {}
        }
        stance
    }

    /// A node that just started may not know yet that it won: it takes those who died
    /// before it looked for alive. Until it knows better the deadline does not run,
    /// or nobody would have the address. Peers without handoffs never answer anyway.
    fn learns_winners_until(&self, now: Mono, node: &NodeName) -> Option<Mono> {
        let member = self.members.get(node).filter(|m| m.facts().announced.is_some())?;
        Some(member.knows_all_from()).filter(|at| now < *at)
    }
}
