//! What came of changes in the kernel.

use crate::ids::Vip;
use crate::messages::{KernelChange, KernelRefusal, Source};
use crate::time::Mono;

use super::presence::VipPresence;
use super::refresh::seconds;
use super::state::ChangeFailure;
use super::{Engine, InFlight, KERNEL_PATIENCE, REMOVAL_MOST, RETRY_FIRST, RETRY_MOST};

impl Engine {
    pub(in crate::engine) fn applied(&mut self, now: Mono, id: u64, result: Result<(), KernelRefusal>) {
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
                            KernelChange::Put(_) => self.counters.additions += 1,
                            _ => self.counters.withdrawals += 1,
                        }
                        let shown = match &op {
                            KernelChange::Put(s) => {
                                if state.remote
                                    && let Some(valid) = s.valid
                                {
                                    self.upkeep.given(now, (s.index, s.net), seconds(valid));
                                }
                                self.kernel.address((s.index, s.net)).is_some()
                            }
                            KernelChange::Remove { index, net } => {
                                self.kernel.address((*index, *net)).is_none()
                            }
                            KernelChange::EnsureDummy { .. } | KernelChange::RemoveDummy { .. } => true,
                        };
                        state.accepted = (!shown).then_some((op, now));
                        state.failure = None;
                    }
                    Err(refusal) => {
                        self.counters.apply_errors += 1;
                        let removal = matches!(op, KernelChange::Remove { .. });
                        let before = state.failure.as_ref().filter(|f| f.removal == removal);
                        let attempt = before.map_or(1, |f| f.attempt.saturating_add(1));
                        let most = if removal { REMOVAL_MOST } else { RETRY_MOST };
                        let wait = RETRY_FIRST.saturating_mul(1 << (attempt - 1).min(10)).min(most);
                        state.failure =
                            Some(ChangeFailure { removal, refusal, attempt, retry_at: now + wait });
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
                let homeless = self.vips.iter().filter(|(_, s)| s.presence == Some(VipPresence::Homeless));
                self.dirty.extend(homeless.map(|(vip, _)| *vip));
            }
            Some(InFlight::OldDummy) => self.counters.apply_errors += u64::from(result.is_err()),
            Some(InFlight::Announce { .. }) | None => {}
        }
    }

    pub(in crate::engine) fn missing_sources(&self) -> Vec<Source> {
        self.unsynced.iter().copied().collect()
    }
}
