//! What came of changes and announcements.

use crate::announce::Due;
use crate::ids::Vip;
use crate::io::{Effect, Op, Source};
use crate::reason::{Missing, Reason};
use crate::time::Mono;

use super::lifetimes::seconds;
use super::{Engine, Failure, InFlight, KERNEL_PATIENCE, REMOVAL_MOST, RETRY_FIRST, RETRY_MOST};

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
                            Op::Put(s) => {
                                if state.remote
                                    && let Some(valid) = s.valid
                                {
                                    self.upkeep.given(now, (s.index, s.net), seconds(valid));
                                }
                                self.kernel.address((s.index, s.net)).is_some()
                            }
                            Op::Remove { index, net } => self.kernel.address((*index, *net)).is_none(),
                            Op::EnsureDummy { .. } | Op::RemoveDummy { .. } => true,
                        };
                        state.accepted = (!shown).then_some((op, now));
                        state.failure = None;
                    }
                    Err(error) => {
                        self.counters.apply_errors += 1;
                        let removal = matches!(op, Op::Remove { .. });
                        let before = state.failure.as_ref().filter(|f| f.removal == removal);
                        let attempt = before.map_or(1, |f| f.attempt.saturating_add(1));
                        let most = if removal { REMOVAL_MOST } else { RETRY_MOST };
                        let wait = RETRY_FIRST.saturating_mul(1 << (attempt - 1).min(10)).min(most);
                        state.failure = Some(Failure { removal, error, attempt, retry_at: now + wait });
                    }
                }
            }
            Some(InFlight::Refresh { key, remote, valid }) => {
                match result {
                    Ok(()) => self.counters.refreshes += 1,
                    Err(_) => self.counters.apply_errors += 1,
                }
                self.refreshed(now, key, remote, valid, result.is_ok());
                // Of a fenced one the kernel tells should it be gone; there are thousands
                // of these with every renewal.
                if remote {
                    self.dirty.insert(Vip::new(key.1.addr()));
                }
            }
            Some(InFlight::Dummy) => {
                self.dummy_requested = false;
                self.dummy_again = now + KERNEL_PATIENCE;
                self.counters.apply_errors += u64::from(result.is_err());
                let missing = Reason::Pending { missing: Missing::DummyInterface };
                self.dirty.extend(
                    self.vips.iter().filter(|(_, s)| s.reason == Some(missing.clone())).map(|(v, _)| *v),
                );
            }
            Some(InFlight::OldDummy) => self.counters.apply_errors += u64::from(result.is_err()),
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
                if let Some(state) = self.vips.get_mut(&vip).filter(|s| s.announcing && !s.announced) {
                    state.announced = true;
                    self.dirty.insert(vip);
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
                self.dirty.insert(vip);
            }
        }
    }

    pub(in crate::engine) fn send_announcements(&mut self, now: Mono) {
        let kernel = &self.kernel;
        let vips = &self.vips;
        let due = self.announcer.due(now, |vip| {
            let shown = kernel.of_vip(vip).any(|a| a.ours && !a.tentative && !a.dad_failed);
            shown && vips.get(&vip).is_some_and(|s| s.announcing)
        });
        for Due { vip, index, interface, first, until } in due {
            let id = self.id(InFlight::Announce { vip, first });
            // Past the fence others may have it, however soon that is.
            let until = self.fence.deadline().map_or(until, |fence| until.min(fence));
            self.out.push(Effect::Announce { id, vip, index, interface, until });
        }
        self.counters.announcements_dropped = self.announcer.dropped();
    }

    pub(in crate::engine) fn missing_sources(&self) -> Vec<Source> {
        self.unsynced.iter().copied().collect()
    }
}
