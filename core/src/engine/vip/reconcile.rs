//! From what the kernel shows to what it should: the changes, removals first.

use crate::detector::DuplicateCheck;
use crate::facts::AddrFacts;
use crate::handoff::VipStance;
use crate::ids::{Family, Vip};
use crate::messages::{Effect, KernelChange};
use crate::time::Mono;

use super::{DUPLICATE_RETRY, Engine, InFlight, KERNEL_PATIENCE, VipFindings, VipState};

#[derive(Default)]
pub(super) struct KernelPlan {
    pub(super) removals: Vec<(Vip, KernelChange)>,
    pub(super) additions: Vec<(Vip, KernelChange)>,
}

impl Engine {
    pub(super) fn emit(&mut self, now: Mono, vip: Vip, op: KernelChange) {
        let dummy = matches!(op, KernelChange::EnsureDummy { .. } | KernelChange::RemoveDummy { .. });
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

    /// Compares what is desired with the kernel and plans the step towards it.
    pub(super) fn plan_changes(&mut self, found: &VipFindings, state: &mut VipState, plan: &mut KernelPlan) {
        let (now, vip, stance, ours) = (found.now, found.vip, found.stance, &found.ours);
        let (wanted, remote) = (found.place(), found.is_remote());
        let misplaced = |a: &&AddrFacts| match stance {
            VipStance::Absent => true,
            VipStance::Keep => a.dad_failed,
            VipStance::Have => wanted.is_none_or(|p| (p.index, p.net) != (a.index, a.net)) || a.dad_failed,
        };
        // The duplicate that detection found may be the peer we take over from (R7).
        let rival = self.rival(vip);
        if rival {
            state.duplicate_until = None;
        } else if ours.iter().any(|a| a.dad_failed) && stance == VipStance::Have {
            if state.duplicate_until.is_none_or(|at| now >= at) {
                state.declining.duplicate_found();
            }
            state.duplicate_until = Some(now + DUPLICATE_RETRY);
        }
        // An addition under way is taken back too: the applier keeps the order.
        let under_way = state.changing.and_then(|id| match self.in_flight.get(&id) {
            Some(InFlight::Change { op: KernelChange::Put(spec), .. }) => Some((spec.index, spec.net)),
            _ => None,
        });
        let removing = state.changing.is_some() && under_way.is_none();
        let mut removals: Vec<KernelChange> = Vec::new();
        if !removing {
            removals.extend(
                ours.iter().filter(misplaced).map(|a| KernelChange::Remove { index: a.index, net: a.net }),
            );
            if stance == VipStance::Absent
                && let Some((index, net)) = under_way
            {
                removals.push(KernelChange::Remove { index, net });
            }
        }
        let patient = |op: &KernelChange| {
            state.accepted.as_ref().is_some_and(|(done, at)| done == op && now < *at + KERNEL_PATIENCE)
        };
        removals.retain(|op| !patient(op));
        // A refused addition does not put off a removal.
        if state
            .failure
            .as_ref()
            .is_some_and(|f| now < f.retry_at && (f.removal || stance != VipStance::Absent))
        {
            return;
        }
        if !removals.is_empty() {
            state.had = false;
            plan.removals.extend(removals.into_iter().map(|op| (vip, op)));
            return;
        }
        let Some(place) = wanted else {
            if stance == VipStance::Have && remote {
                self.want_dummy(now, vip, plan);
            }
            state.had &= stance != VipStance::Absent;
            return;
        };
        if let Some(there) = found.at(place) {
            state.had = true;
            self.detector.forget_duplicate(vip);
            state.failure = None;
            if remote {
                self.keep_remote(now, there);
            }
            return;
        }
        if state.changing.is_some() || state.duplicate_until.is_some_and(|at| now < at) {
            return;
        }
        let mut no_dad = found.skips_dad() || rival || remote || self.is_early(vip);
        state.asking = false;
        if !no_dad && vip.family() == Family::V6 {
            // Asked by ourselves it takes a tenth of a second, and the kernel takes one or two.
            match self.detector.check_duplicate(now, vip, place.index) {
                DuplicateCheck::Nobody => no_dad = true,
                DuplicateCheck::Impossible => {}
                DuplicateCheck::Asking => {
                    state.asking = true;
                    return;
                }
                DuplicateCheck::Somebody => {
                    self.detector.forget_duplicate(vip);
                    state.declining.duplicate_found();
                    state.duplicate_until = Some(now + DUPLICATE_RETRY);
                    return;
                }
            }
        }
        let Some(spec) = self.spec(now, vip, place.index, place.net, no_dad, remote) else {
            return;
        };
        let recent = state.accepted.as_ref().is_some_and(|(done, at)| {
            matches!(done, KernelChange::Put(s) if (s.index, s.net) == (spec.index, spec.net))
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
        plan.additions.push((vip, KernelChange::Put(spec)));
    }

    fn want_dummy(&mut self, now: Mono, vip: Vip, plan: &mut KernelPlan) {
        if self.dummy_requested || now < self.dummy_again {
            return;
        }
        if let Some(config) = self.agents.current() {
            self.dummy_requested = true;
            plan.additions.push((vip, KernelChange::EnsureDummy { name: config.dummy.clone() }));
        }
    }
}
