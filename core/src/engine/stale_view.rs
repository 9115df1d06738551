//! Whether what we were told still holds.
//!
//! Each renewal of ours must come back through the watch of the Leases. The other kinds
//! have nothing of the sort, so what makes us doubt one watch makes us doubt them all:
//! ```text
//!   a renewal does not come back    Leases are listed; once the server has answered
//!                                   that, all other kinds
//!   back from a fence               everything is listed, and nothing is claimed before
//!                                   all of it is there and a renewal sent since came back
//!   the listings do not come        our picture is stale: we hold nothing, and our Lease
//!                                   names no subnets, until they do
//! ```
//! A listing that fails takes nothing away from a node that was not fenced: with a
//! server too busy for listings every node would let go of everything.

use std::collections::BTreeSet;

use crate::facts::LeaseFacts;
use crate::messages::{Effect, Source};
use crate::time::Mono;

use super::Engine;

/// Kinds that are watched, as opposed to the kernel, which says when it lost messages.
const WATCHED: [Source; 6] = [
    Source::Leases,
    Source::Nodes,
    Source::Services,
    Source::EndpointSlices,
    Source::ServiceGroups,
    Source::NodeAgents,
];

#[derive(Clone, Debug, Default)]
pub(super) struct ViewDoubt {
    /// A renewal did not come back; the others are asked once Leases are listed.
    deaf: bool,
    /// Renewals have not come back for too long.
    stale: bool,
    /// Fenced until `since`, and not listed since.
    missing: BTreeSet<Source>,
    since: Mono,
}

impl Engine {
    /// Our Lease as the watch shows it, if nothing of what we know is in doubt: only
    /// then we claim what we do not have.
    pub(super) fn confirmed(&self) -> Option<&LeaseFacts> {
        self.lease.confirmed().filter(|_| self.doubt.missing.is_empty())
    }

    /// Back from a fence: what we know is from before it.
    pub(super) fn recover(&mut self, now: Mono) {
        self.doubt = ViewDoubt { missing: WATCHED.into(), since: now, ..ViewDoubt::default() };
        self.out.extend(WATCHED.map(Effect::Relist));
        if !self.lease.will_confirm() {
            self.lease.hurry(now);
        }
    }

    pub(super) fn check_view(&mut self, now: Mono) {
        if self.lease.wants_relist(now) {
            self.out.push(Effect::Relist(Source::Leases));
            self.doubt.deaf = true;
        }
        let stale = self.lease.view_is_stale(now);
        match (self.doubt.stale, stale) {
            (false, true) => self.lease.was_fenced(now),
            (true, false) => self.recover(now),
            _ => {}
        }
        self.doubt.stale = stale;
    }

    pub(super) fn was_listed(&mut self, source: Source) {
        if self.doubt.missing.remove(&source) && self.doubt.missing.is_empty() {
            self.members_dirty.insert(self.config.node.clone());
        }
        if source == Source::Leases && std::mem::take(&mut self.doubt.deaf) {
            let others = WATCHED.into_iter().filter(|s| *s != Source::Leases);
            self.out.extend(others.map(Effect::Relist));
        }
    }

    pub(super) fn view_is_stale(&self, now: Mono) -> bool {
        self.lease.view_is_stale(now) || self.listings_due().is_some_and(|at| now >= at)
    }

    /// Listings that do not come within a retry period make our picture stale.
    fn listings_due(&self) -> Option<Mono> {
        (!self.doubt.missing.is_empty()).then(|| self.doubt.since + self.config.timers.retry_period)
    }

    pub(super) fn doubt_deadline(&self, now: Mono) -> Option<Mono> {
        self.listings_due().filter(|at| *at > now)
    }

    /// What is to be listed again before we claim anything.
    pub(super) fn missing_listings(&self) -> Vec<Source> {
        self.doubt.missing.iter().copied().collect()
    }
}
