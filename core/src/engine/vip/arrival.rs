//! How long an address took from "it is ours" to the kernel and to the first
//! announcement: the time an operator feels.

use crate::handoff::VipStance;
use crate::time::Mono;

use super::{Engine, VipFindings, VipState};

/// Where an address is on its way to this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum VipArrival {
    #[default]
    Out,
    /// Ours since then; the kernel does not show it yet.
    Asked(Mono),
    /// Ours since then; nobody was told yet.
    Shown(Mono),
    There,
}

impl Engine {
    pub(super) fn time_arrival(&mut self, found: &VipFindings, state: &mut VipState) {
        let VipFindings { now, stance, ref desired, .. } = *found;
        let place = match (stance, &desired.place) {
            (VipStance::Have, Some(place)) => place,
            // It stays as it is while it is given away.
            (VipStance::Keep, _) => return,
            _ => {
                state.arrival = VipArrival::Out;
                return;
            }
        };
        let shown = found.at(place).is_some_and(|a| !a.tentative);
        state.arrival = match state.arrival {
            // What an earlier run left has not travelled.
            VipArrival::Out if shown => VipArrival::There,
            VipArrival::Asked(since) if shown => {
                self.times.to_kernel.record_time(now.since(since));
                VipArrival::Shown(since)
            }
            VipArrival::Out | VipArrival::There if !shown => VipArrival::Asked(now),
            // Gone before it was announced: it is still the same way.
            VipArrival::Shown(since) if !shown => VipArrival::Asked(since),
            other => other,
        };
        if let VipArrival::Shown(since) = state.arrival
            && state.announced()
        {
            self.times.to_announced.record_time(now.since(since));
            state.arrival = VipArrival::There;
        }
    }
}
