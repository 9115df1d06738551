//! How long an address took from "it is ours" to the kernel and to the first
//! announcement: the time an operator feels.

use crate::facts::AddrFacts;
use crate::handoff::Stance;
use crate::time::Mono;

use super::{Engine, VipState, Wish};

/// Where an address is on its way to this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Arrival {
    #[default]
    Out,
    /// Ours since then; the kernel does not show it yet.
    Asked(Mono),
    /// Ours since then; nobody was told yet.
    Shown(Mono),
    There,
}

impl Engine {
    pub(super) fn time_arrival(
        &mut self,
        now: Mono,
        state: &mut VipState,
        stance: Stance,
        wish: &Wish,
        ours: &[AddrFacts],
    ) {
        let place = match (stance, &wish.place) {
            (Stance::Have, Some(place)) => place,
            // It stays as it is while it is given away.
            (Stance::Keep, _) => return,
            _ => {
                state.arrival = Arrival::Out;
                return;
            }
        };
        let shown = ours.iter().any(|a| (a.index, a.net) == (place.index, place.net) && !a.tentative);
        state.arrival = match state.arrival {
            // What an earlier run left has not travelled.
            Arrival::Out if shown => Arrival::There,
            Arrival::Asked(since) if shown => {
                self.times.to_kernel.time(now.since(since));
                Arrival::Shown(since)
            }
            Arrival::Out | Arrival::There if !shown => Arrival::Asked(now),
            // Gone before it was announced: it is still the same way.
            Arrival::Shown(since) if !shown => Arrival::Asked(since),
            other => other,
        };
        if let Arrival::Shown(since) = state.arrival
            && state.announced
        {
            self.times.to_announced.time(now.since(since));
            state.arrival = Arrival::There;
        }
    }
}
