//! One owner on one interface: asked for one of its addresses, in place of all.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::ids::{NodeName, Vip};

use super::WatchState;
use super::asked_host::AskedHost;

#[derive(Clone, Debug, Default)]
pub(super) struct OwnerWatch {
    /// Addresses of that owner of which we are next in line.
    pub(super) vips: BTreeSet<Vip>,
    pub(super) host: AskedHost,
    /// The address that answered last, or was asked last.
    pub(super) asked: Option<Vip>,
    /// So many of its addresses we have taken.
    pub(super) taken: usize,
    /// That no witness answered was counted, for this silence.
    pub(super) told: bool,
}

impl OwnerWatch {
    /// The one that answered last. While none does each in turn, and while we have some of them: it
    /// may come back with one and not yet with another.
    pub(super) fn next_address(&self, misses: u32) -> Option<Vip> {
        let stays = self.host.answered.is_some() && self.host.misses < misses && self.taken == 0;
        match self.asked.filter(|vip| self.vips.contains(vip)) {
            Some(vip) if stays => Some(vip),
            Some(vip) => {
                let after = (Bound::Excluded(vip), Bound::Unbounded);
                self.vips.range(after).next().or_else(|| self.vips.first()).copied()
            }
            None => self.vips.first().copied(),
        }
    }

    /// R12 (a) and (b).
    pub(super) fn is_quiet(&self, misses: u32) -> bool {
        self.host.answered.is_some() && self.host.misses >= misses
    }

    pub(super) fn state(&self, misses: u32, witnessed: bool) -> WatchState {
        match self.host.misses {
            _ if self.host.answered.is_none() => WatchState::Unknown,
            0 => WatchState::Answering,
            n if n < misses => WatchState::Missing(n),
            _ => WatchState::Silent { witnessed },
        }
    }
}

/// Somebody else on the segment: a gateway, another node.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    pub(super) node: Option<NodeName>,
    pub(super) host: AskedHost,
}

/// A member that does not hear us is asked until it does.
#[derive(Clone, Debug)]
pub(super) struct Plea {
    pub(super) node: NodeName,
    pub(super) vip: Vip,
    pub(super) host: AskedHost,
    /// Answers in a row.
    pub(super) answers: u32,
}
