//! Leaving: hand over, withdraw, confirm by a dump, say so, delete the Lease, end.
//!
//! ```text
//!   Giving ──▶ Withdrawing ──▶ Confirming ──▶ Telling ──▶ Deleting ──▶ Over
//!                 ▲   again, in a moment │
//!                 └──────────────────────┘ until the kernel shows none, or GIVE_UP
//! ```
//!
//! What the kernel will not let go of does not keep the process: it ends, says so, and
//! leaves its Lease to expire, after the lifetime of what is left. Deleted at once it
//! would make a second owner.

use std::collections::BTreeSet;
use std::time::Duration;

use ipnet::IpNet;

use crate::facts::AddrFacts;
use crate::kernel_state::AddrKey;
use crate::messages::{Effect, KernelChange, ShutdownMode, Source};
use crate::time::Mono;

use super::{Engine, InFlight};

/// After the handoffs, for the kernel and the API server to answer.
const CLOSING: Duration = Duration::from_secs(1);
/// The kernel is asked again this long after it refused.
const AGAIN: Duration = Duration::from_millis(200);
/// From the first removal on, for as long as something stays.
const GIVE_UP: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq, Eq)]
enum ShutdownPhase {
    /// Handing over.
    Giving {
        until: Mono,
    },
    /// Withdrawing what is left, each address once.
    Withdrawing {
        until: Mono,
        asked: BTreeSet<AddrKey>,
        give_up: Mono,
    },
    /// The kernel is asked once more what it has.
    Confirming {
        until: Mono,
        give_up: Mono,
    },
    /// It has something still: in a moment it is withdrawn again.
    Pausing {
        until: Mono,
        give_up: Mono,
    },
    /// The Lease is to list no address before it goes: one that goes with addresses in
    /// it was taken away from somebody who may still have them.
    Telling {
        until: Mono,
    },
    Deleting {
        until: Mono,
    },
    Over,
}

impl ShutdownPhase {
    fn withdrawing(now: Mono) -> Self {
        Self::Withdrawing { until: now + CLOSING, asked: BTreeSet::new(), give_up: now + GIVE_UP }
    }
}

#[derive(Clone, Debug)]
pub(super) struct OngoingShutdown {
    phase: ShutdownPhase,
    since: String,
}

impl OngoingShutdown {
    pub(super) fn is_over(&self) -> bool {
        self.phase == ShutdownPhase::Over
    }

    pub(super) fn since(&self) -> &str {
        &self.since
    }

    /// Peers count us in until the addresses are gone.
    pub(super) fn still_renews(&self) -> bool {
        matches!(
            self.phase,
            ShutdownPhase::Giving { .. }
                | ShutdownPhase::Withdrawing { .. }
                | ShutdownPhase::Pausing { .. }
                | ShutdownPhase::Telling { .. }
        )
    }

    fn now(&self) -> bool {
        !matches!(self.phase, ShutdownPhase::Giving { .. })
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match self.phase {
            ShutdownPhase::Giving { until }
            | ShutdownPhase::Withdrawing { until, .. }
            | ShutdownPhase::Confirming { until, .. }
            | ShutdownPhase::Pausing { until, .. }
            | ShutdownPhase::Telling { until }
            | ShutdownPhase::Deleting { until } => Some(until),
            ShutdownPhase::Over => None,
        }
    }
}

impl Engine {
    pub(super) fn stopping_now(&self) -> bool {
        self.stop.as_ref().is_some_and(OngoingShutdown::now)
    }

    pub(super) fn begin_shutdown(&mut self, now: Mono, mode: ShutdownMode, since: String) {
        let phase = match mode {
            ShutdownMode::Leave => {
                self.out.push(Effect::Exit);
                ShutdownPhase::Over
            }
            // A second request, more urgent than the first; never less.
            ShutdownMode::Graceful if self.stop.is_some() => return,
            ShutdownMode::Graceful => {
                let times = self.config.handoff;
                ShutdownPhase::Giving { until: now + times.deadline + times.linger + CLOSING }
            }
            ShutdownMode::Now if self.stopping_now() => return,
            ShutdownMode::Now => ShutdownPhase::withdrawing(now),
        };
        self.stop = Some(OngoingShutdown { phase, since });
    }

    /// Goes from phase to phase as the world allows, or as time forces.
    pub(super) fn advance_shutdown(&mut self, now: Mono) {
        while let Some(stop) = &mut self.stop {
            let phase = std::mem::replace(&mut stop.phase, ShutdownPhase::Over);
            let (phase, goes_on) = self.next_phase(now, phase);
            if let Some(stop) = &mut self.stop {
                stop.phase = phase;
            }
            if !goes_on {
                return;
            }
        }
    }

    /// The phase after this one, and whether it is another one.
    fn next_phase(&mut self, now: Mono, phase: ShutdownPhase) -> (ShutdownPhase, bool) {
        let under_way = self.changes_under_way();
        let clean = self.kernel.ours().next().is_none() && !under_way;
        let next = match phase {
            // Before the first whole picture there is nothing to hand over to whom.
            ShutdownPhase::Giving { until } if clean || now >= until || !self.unsynced.is_empty() => {
                self.mark_all_vips();
                ShutdownPhase::withdrawing(now)
            }
            ShutdownPhase::Withdrawing { until, mut asked, give_up } => {
                let more = self.withdraw_everything(&mut asked);
                if (more || under_way) && now < until {
                    return (ShutdownPhase::Withdrawing { until, asked, give_up }, false);
                }
                self.out.push(Effect::Relist(Source::Kernel));
                ShutdownPhase::Confirming { until: now + CLOSING, give_up }
            }
            // A dump ends this phase, see `kernel_was_dumped`. None came: what we know of
            // the kernel decides.
            ShutdownPhase::Confirming { until, .. } if now >= until => self.begin_telling(now),
            ShutdownPhase::Telling { until } if now >= until || !self.lease.lists_addresses() => {
                self.begin_deleting(now)
            }
            ShutdownPhase::Pausing { until, give_up } if now >= until => {
                let until = (now + CLOSING).min(give_up);
                ShutdownPhase::Withdrawing { until, asked: BTreeSet::new(), give_up }
            }
            ShutdownPhase::Deleting { until } if now >= until => {
                self.out.push(Effect::Exit);
                ShutdownPhase::Over
            }
            stays => return (stays, false),
        };
        (next, true)
    }

    fn changes_under_way(&self) -> bool {
        self.in_flight.values().any(|f| matches!(f, InFlight::Change { .. } | InFlight::Refresh { .. }))
    }

    /// Whatever carries our mark goes, whole picture or not: we were told to leave. What
    /// was asked for in this phase is not asked for again; whether there was more.
    fn withdraw_everything(&mut self, asked: &mut BTreeSet<AddrKey>) -> bool {
        asked.extend(self.in_flight.values().filter_map(|f| match f {
            InFlight::Change { op: KernelChange::Remove { index, net }, .. } => Some((*index, *net)),
            _ => None,
        }));
        let ours = self.kernel.ours().map(|a| (a.index, a.net));
        let more: Vec<AddrKey> = ours.filter(|key| !asked.contains(key)).collect();
        for (index, net) in &more {
            let op = KernelChange::Remove { index: *index, net: *net };
            let id = self.id(InFlight::Change { vip: crate::Vip::new(net.addr()), op: op.clone() });
            self.out.push(Effect::Apply { id, op });
        }
        let any = !more.is_empty();
        asked.extend(more);
        any
    }

    /// The dump that confirms: what it still shows is removed, and asked about again.
    pub(super) fn kernel_was_dumped(&mut self, now: Mono) {
        let Some(ShutdownPhase::Confirming { give_up, .. }) = self.stop.as_ref().map(|s| &s.phase) else {
            return;
        };
        let give_up = *give_up;
        let clean = self.kernel.ours().next().is_none();
        let phase = if clean || now >= give_up {
            self.begin_telling(now)
        } else {
            ShutdownPhase::Pausing { until: (now + AGAIN).min(give_up), give_up }
        };
        if let Some(stop) = &mut self.stop {
            stop.phase = phase;
        }
    }

    /// What others may not have while it is here: not on the interface of remote pools,
    /// which every node has.
    fn contested_leftovers(&self) -> Vec<IpNet> {
        let dummy = self.agents.current().and_then(|c| self.kernel.link_named(&c.dummy)).map(|l| l.index);
        let contested = |a: &&AddrFacts| Some(a.index) != dummy;
        self.kernel.ours().filter(contested).map(|a| a.net).collect()
    }

    fn begin_telling(&mut self, now: Mono) -> ShutdownPhase {
        let left: Vec<IpNet> = self.kernel.ours().map(|a| a.net).collect();
        if !left.is_empty() {
            self.out.push(Effect::LeftBehind(left));
        }
        if !self.contested_leftovers().is_empty() {
            self.out.push(Effect::Exit);
            return ShutdownPhase::Over;
        }
        if self.lease.lists_addresses() {
            return ShutdownPhase::Telling { until: now + CLOSING };
        }
        self.begin_deleting(now)
    }

    fn begin_deleting(&mut self, now: Mono) -> ShutdownPhase {
        let current = self.agents.current().map(|config| config.dummy.clone());
        for name in std::mem::take(&mut self.old_dummies).into_iter().chain(current) {
            let op = KernelChange::RemoveDummy { name };
            let id = self.id(InFlight::OldDummy);
            self.out.push(Effect::Apply { id, op });
        }
        if self.lease.is_ours() {
            self.out.push(Effect::DeleteLease);
            return ShutdownPhase::Deleting { until: now + CLOSING };
        }
        self.out.push(Effect::Exit);
        ShutdownPhase::Over
    }

    pub(super) fn lease_was_deleted(&mut self) {
        if let Some(OngoingShutdown { phase: phase @ ShutdownPhase::Deleting { .. }, .. }) = &mut self.stop {
            *phase = ShutdownPhase::Over;
            self.out.push(Effect::Exit);
        }
    }
}
