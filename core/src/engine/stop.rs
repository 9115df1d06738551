//! Leaving: hand over, withdraw, confirm by a dump, delete the Lease, end.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::io::{Effect, Op, Shutdown, Source};
use crate::kernel::AddrKey;
use crate::time::Mono;

use super::{Engine, InFlight};

/// After the handoffs, for the kernel and the API server to answer.
const CLOSING: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Handing over.
    Giving {
        until: Mono,
    },
    /// Withdrawing what is left.
    Withdrawing {
        until: Mono,
    },
    /// The kernel is asked once more what it has.
    Confirming {
        until: Mono,
    },
    Deleting {
        until: Mono,
    },
    Over,
}

#[derive(Debug)]
pub(super) struct Stop {
    phase: Phase,
    since: String,
}

impl Stop {
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(super) fn since(&self) -> &str {
        &self.since
    }

    /// Peers count us in until the addresses are gone.
    pub(super) fn still_renews(&self) -> bool {
        matches!(self.phase, Phase::Giving { .. } | Phase::Withdrawing { .. })
    }

    fn now(&self) -> bool {
        !matches!(self.phase, Phase::Giving { .. })
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match self.phase {
            Phase::Giving { until }
            | Phase::Withdrawing { until }
            | Phase::Confirming { until }
            | Phase::Deleting { until } => Some(until),
            Phase::Over => None,
        }
    }
}

impl Engine {
    pub(super) fn stopping_now(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::now)
    }

    pub(super) fn begin_stop(&mut self, now: Mono, mode: Shutdown, since: String) {
        let phase = match mode {
            Shutdown::Leave => {
                self.out.push(Effect::Exit);
                Phase::Over
            }
            // A second request, more urgent than the first; never less.
            Shutdown::Graceful if self.stop.is_some() => return,
            Shutdown::Graceful => {
                let times = self.config.handoff;
                Phase::Giving { until: now + times.deadline + times.linger + CLOSING }
            }
            Shutdown::Now if self.stopping_now() => return,
            Shutdown::Now => Phase::Withdrawing { until: now + CLOSING },
        };
        self.stop = Some(Stop { phase, since });
    }

    /// Goes from phase to phase as the world allows, or as time forces.
    pub(super) fn progress_stop(&mut self, now: Mono) {
        loop {
            let Some(stop) = &self.stop else { return };
            let since = stop.since.clone();
            let clean = self.kernel.ours().next().is_none() && !self.changes_under_way();
            let next = match stop.phase {
                // Before the first whole picture there is nothing to hand over to whom.
                Phase::Giving { until } if clean || now >= until || !self.unsynced.is_empty() => {
                    self.touch_all();
                    Phase::Withdrawing { until: now + CLOSING }
                }
                Phase::Withdrawing { until } => {
                    self.withdraw_everything();
                    if !clean && now < until {
                        return;
                    }
                    self.out.push(Effect::Relist(Source::Kernel));
                    Phase::Confirming { until: now + CLOSING }
                }
                // A dump ends this phase, see `kernel_was_dumped`.
                Phase::Confirming { until } if now >= until => self.begin_deleting(now),
                Phase::Deleting { until } if now >= until => {
                    self.out.push(Effect::Exit);
                    Phase::Over
                }
                Phase::Giving { .. } | Phase::Confirming { .. } | Phase::Deleting { .. } | Phase::Over => {
                    return;
                }
            };
            self.stop = Some(Stop { phase: next, since });
        }
    }

    fn changes_under_way(&self) -> bool {
        self.in_flight.values().any(|f| matches!(f, InFlight::Change { .. } | InFlight::Refresh { .. }))
    }

    /// Whatever carries our mark goes, whole picture or not: we were told to leave.
    fn withdraw_everything(&mut self) {
        let ours: Vec<_> = self.kernel.ours().map(|a| (a.vip(), a.index, a.net)).collect();
        let asked: BTreeSet<AddrKey> = self
            .in_flight
            .values()
            .filter_map(|f| match f {
                InFlight::Change { op: Op::Remove { index, net }, .. } => Some((*index, *net)),
                _ => None,
            })
            .collect();
        for (vip, index, net) in ours {
            if !asked.contains(&(index, net)) {
                let op = Op::Remove { index, net };
                let id = self.id(InFlight::Change { vip, op: op.clone() });
                self.out.push(Effect::Apply { id, op });
            }
        }
    }

    /// The dump that confirms: what it still shows is removed, and asked about again.
    pub(super) fn kernel_was_dumped(&mut self) {
        let Some(Stop { phase: Phase::Confirming { until }, .. }) = self.stop else {
            return;
        };
        let phase = if self.kernel.ours().next().is_none() {
            self.begin_deleting(until)
        } else {
            Phase::Withdrawing { until }
        };
        if let Some(stop) = &mut self.stop {
            stop.phase = phase;
        }
    }

    fn begin_deleting(&mut self, now: Mono) -> Phase {
        if let Some(config) = self.agents.current() {
            let op = Op::RemoveDummy { name: config.dummy.clone() };
            let id = self.id(InFlight::Dummy);
            self.out.push(Effect::Apply { id, op });
        }
        if self.lease.is_ours() {
            self.out.push(Effect::DeleteLease);
            return Phase::Deleting { until: now + CLOSING };
        }
        self.out.push(Effect::Exit);
        Phase::Over
    }

    pub(super) fn lease_was_deleted(&mut self) {
        if let Some(Stop { phase: phase @ Phase::Deleting { .. }, .. }) = &mut self.stop {
            *phase = Phase::Over;
            self.out.push(Effect::Exit);
        }
    }
}
