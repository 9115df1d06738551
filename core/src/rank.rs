//! Where this node ranks itself among the candidates.
//!
//! ```text
//!   the cluster says   ▔▔▔▔▔╲▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁╱▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔
//!   the rank           ▔▔▔▔▔▔▔▔▔▔▔▔▔▔╲▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁╱▔▔▔▔▔
//!                           └ for so long ┘       └ for so long ┘
//! ```
//! A node that the cluster calls NotReady may well serve: its kubelet is away, not its
//! network. So it is not shut out; it stands behind all others. And only while one of the
//! others is well, and has been for as long: a control plane that calls everybody NotReady moves
//! nothing, nor does one that recovers, node after node.
//!
//! The node says its rank in its own Lease. Everybody reads the same word there, in order
//! with everything else the node says, and nobody compares clocks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Mono;

/// A candidate of the first rank wins over any of the last, whatever else speaks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rank {
    #[default]
    First,
    Last,
}

#[derive(Clone, Debug, Default)]
pub struct OwnRank {
    rank: Rank,
    /// Since when the cluster says otherwise.
    since: Option<Mono>,
    /// When that has lasted long enough.
    due: Option<Mono>,
}

impl OwnRank {
    pub fn get(&self) -> Rank {
        self.rank
    }

    /// An earlier run of this node ranked last: its time is not counted anew.
    pub fn resume(&mut self, before: Rank) {
        self.rank = before;
        self.since = None;
    }

    /// What the cluster says now. `after`: how long it must have said so; `None`: it is
    /// not heeded. Returns whether the rank changed.
    pub fn look(
        &mut self,
        now: Mono,
        impaired: bool,
        after: Option<Duration>,
        another_is_well: impl FnOnce() -> bool,
    ) -> bool {
        self.due = None;
        let (wanted, wait) = match after {
            Some(after) if impaired => (Rank::Last, after),
            Some(after) => (Rank::First, after),
            None => (Rank::First, Duration::ZERO),
        };
        // The time runs while there is somebody to stand behind: the first one to be well again
        // would otherwise be given everything at once.
        if wanted == self.rank || (wanted == Rank::Last && !another_is_well()) {
            self.since = None;
            return false;
        }
        let due = *self.since.get_or_insert(now) + wait;
        if now < due {
            self.due = Some(due);
            return false;
        }
        self.rank = wanted;
        self.since = None;
        true
    }

    pub fn deadline(&self) -> Option<Mono> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Option<Duration> = Some(Duration::from_secs(60));

    fn at(seconds: u64) -> Mono {
        Mono::from_millis(seconds * 1000)
    }

    #[test]
    fn only_what_lasts_counts_both_ways() {
        let mut own = OwnRank::default();
        assert!(!own.look(at(0), true, AFTER, || true));
        assert_eq!(own.deadline(), Some(at(60)));
        assert!(!own.look(at(59), true, AFTER, || true));
        // Ready for a moment: the time begins anew.
        assert!(!own.look(at(59), false, AFTER, || true));
        assert_eq!(own.deadline(), None);
        assert!(!own.look(at(61), true, AFTER, || true));
        assert!(own.look(at(121), true, AFTER, || true));
        assert_eq!((own.get(), own.deadline()), (Rank::Last, None));
        assert!(!own.look(at(122), false, AFTER, || true));
        assert_eq!((own.get(), own.deadline()), (Rank::Last, Some(at(182))));
        assert!(own.look(at(182), false, AFTER, || true));
        assert_eq!(own.get(), Rank::First);
    }

    #[test]
    fn nobody_ranks_last_where_nobody_is_well() {
        let mut own = OwnRank::default();
        assert!(!own.look(at(0), true, AFTER, || false));
        assert!(!own.look(at(100), true, AFTER, || false));
        assert_eq!(own.deadline(), None, "no clock decides this: somebody getting well does");
        assert!(!own.look(at(101), true, AFTER, || true), "the first to be well is not given everything");
        assert_eq!(own.deadline(), Some(at(161)));
        assert!(own.look(at(161), true, AFTER, || true));
    }

    #[test]
    fn what_is_not_heeded_ends_at_once() {
        let mut own = OwnRank::default();
        own.resume(Rank::Last);
        assert!(!own.look(at(0), true, AFTER, || true), "it stays where the run before was");
        assert!(own.look(at(1), true, None, || true));
        assert_eq!(own.get(), Rank::First);
    }
}
