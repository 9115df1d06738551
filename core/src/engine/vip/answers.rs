//! What came of changes and announcements, and the longer life that renewals give.

use crate::facts::AddrFacts;
use crate::io::{Effect, Op, Source};
use crate::reason::{Missing, Reason};
use crate::time::Mono;

use super::{Engine, Failure, InFlight, RETRY_FIRST, RETRY_MOST, VipState};

impl Engine {
    pub(in crate::engine) fn applied(&mut self, now: Mono, id: u64, result: Result<(), String>) {
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

    pub(in crate::engine) fn announced(&mut self, now: Mono, id: u64, result: Result<(), String>) {
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

    pub(in crate::engine) fn send_announcements(&mut self, now: Mono) {
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
    pub(in crate::engine) fn extend_lifetimes(&mut self, now: Mono) {
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

    pub(in crate::engine) fn missing_sources(&self) -> Vec<Source> {
        self.unsynced.iter().copied().collect()
    }
}
