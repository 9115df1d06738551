//! How an address changes hands between two live nodes (R7), seen from one of them.
//!
//! ```text
//!   old owner                                   new owner
//!   ─────────                                   ─────────
//!   Holding
//!     │ the winner is another
//!   Giving ◀── deadline ──▶ withdraw              adds (IPv6 without DAD), announces,
//!     │ its Lease lists the address  ◀────────── writes it into its Lease
//!   Lingering
//!     │ a moment later
//!   withdraws, says so in its Lease ──────────▶ announces once more
//! ```
//!
//! A crash of either side needs no state here: a dead new owner is not heard of, so that
//! the deadline does not run, and its Lease expires; a dead old owner's address is removed
//! by its kernel.

use crate::config::HandoffTimes;
use crate::ids::NodeName;
use crate::time::Mono;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum HandoffState {
    #[default]
    Out,
    Holding,
    Giving {
        to: NodeName,
        since: Mono,
        /// Since when it is this node that shall have it.
        asked: Mono,
        /// Runs only once that node can know that it is to take over, and has shown
        /// since that it lives: a dead one would never take it.
        deadline: Option<Mono>,
    },
    Lingering {
        to: NodeName,
        until: Mono,
    },
    /// Decided: it goes, however long the kernel takes to agree.
    LettingGo,
}

/// Who should have the address, as the whole picture says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerVerdict {
    /// This node.
    Mine,
    /// Another node, which is live.
    Peer(NodeName),
    /// No node can have it. `keep`: we may go on while nobody else can.
    Nobody { keep: bool },
    /// It may not be here for a moment longer.
    Forbidden,
}

/// What one look at the world found, for one address.
pub struct HandoffView<'a> {
    pub now: Mono,
    pub verdict: OwnerVerdict,
    /// The kernel has it, with our mark.
    pub held: bool,
    /// The others know why we give it up: what makes us lose is in our Lease, or was
    /// theirs to begin with.
    pub published: bool,
    /// When the node that should have it last showed that it lives; `None` if we have not
    /// heard of it, or its Lease is gone.
    pub heard: Option<Mono>,
    /// Does that node live, and list the address in its Lease?
    pub announces: &'a dyn Fn(&NodeName) -> bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VipStance {
    /// It should be in the kernel: added if it is missing.
    Have,
    /// It stays while it is there; it is not put back.
    Keep,
    Absent,
}

/// How a handoff ended, for counters and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffEnd {
    Confirmed,
    TimedOut,
}

#[derive(Clone, Debug, Default)]
pub struct Handoff {
    state: HandoffState,
}

impl Handoff {
    /// Looks at the world and says what to do now; and how a handoff ended, if one did.
    pub fn advance(
        &mut self,
        view: &HandoffView<'_>,
        times: HandoffTimes,
    ) -> (VipStance, Option<HandoffEnd>) {
        let to = match &view.verdict {
            OwnerVerdict::Forbidden => return self.settle(HandoffState::Out, VipStance::Absent),
            OwnerVerdict::Mine => return self.settle(HandoffState::Holding, VipStance::Have),
            OwnerVerdict::Nobody { keep } if *keep && view.held => {
                return self.settle(HandoffState::Holding, VipStance::Keep);
            }
            OwnerVerdict::Nobody { .. } => return self.settle(HandoffState::Out, VipStance::Absent),
            OwnerVerdict::Peer(_) if !view.held => return self.settle(HandoffState::Out, VipStance::Absent),
            OwnerVerdict::Peer(to) => to,
        };
        let runs = |asked: Mono| view.published && view.heard.is_some_and(|at| at >= asked);
        let give = |since, asked, deadline: Option<Mono>| {
            let deadline = deadline.or_else(|| runs(asked).then(|| view.now + times.deadline));
            HandoffState::Giving {
                to: to.clone(),
                since,
                asked,
                deadline: deadline.filter(|_| view.heard.is_some()),
            }
        };
        let next = match std::mem::take(&mut self.state) {
            // What we hold although we never won it is an adopted leftover: given
            // like anything else, since the winner may not have it yet.
            HandoffState::Out | HandoffState::Holding => give(view.now, view.now, None),
            HandoffState::LettingGo => return self.settle(HandoffState::LettingGo, VipStance::Absent),
            HandoffState::Giving { to: earlier, since, asked, deadline } if earlier == *to => {
                give(since, asked, deadline)
            }
            // The successor changed midway: the new one gets its full time.
            HandoffState::Giving { since, .. } => give(since, view.now, None),
            HandoffState::Lingering { to: earlier, until } if (view.announces)(&earlier) => {
                HandoffState::Lingering { to: earlier, until }
            }
            // The one that confirmed is gone before we let go.
            HandoffState::Lingering { .. } => give(view.now, view.now, None),
        };
        match next {
            HandoffState::Giving { to, .. } if (view.announces)(&to) => {
                let until = view.now + times.linger;
                self.state = HandoffState::Lingering { to, until };
                (VipStance::Keep, Some(HandoffEnd::Confirmed))
            }
            HandoffState::Giving { deadline: Some(deadline), .. } if view.now >= deadline => {
                self.state = HandoffState::LettingGo;
                (VipStance::Absent, Some(HandoffEnd::TimedOut))
            }
            HandoffState::Lingering { until, .. } if view.now >= until => {
                self.settle(HandoffState::LettingGo, VipStance::Absent)
            }
            other => self.settle(other, VipStance::Keep),
        }
    }

    fn settle(&mut self, state: HandoffState, stance: VipStance) -> (VipStance, Option<HandoffEnd>) {
        self.state = state;
        (stance, None)
    }

    /// Decided elsewhere: somebody else has it, and it goes at once.
    pub fn let_go(&mut self) {
        self.state = HandoffState::LettingGo;
    }

    /// The node we give the address to.
    pub fn giving_to(&self) -> Option<&NodeName> {
        match &self.state {
            HandoffState::Giving { to, .. } | HandoffState::Lingering { to, .. } => Some(to),
            HandoffState::Out | HandoffState::Holding | HandoffState::LettingGo => None,
        }
    }

    /// The node that must show that it lives, or know of it, before the deadline runs.
    pub fn waits_for(&self) -> Option<&NodeName> {
        match &self.state {
            HandoffState::Giving { to, deadline: None, .. } => Some(to),
            _ => None,
        }
    }

    /// Since when somebody is awaited to say that it has the address.
    pub fn began(&self) -> Option<Mono> {
        match &self.state {
            HandoffState::Giving { since, .. } => Some(*since),
            HandoffState::Out
            | HandoffState::Holding
            | HandoffState::Lingering { .. }
            | HandoffState::LettingGo => None,
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        match &self.state {
            HandoffState::Giving { deadline, .. } => *deadline,
            HandoffState::Lingering { until, .. } => Some(*until),
            HandoffState::Out | HandoffState::Holding | HandoffState::LettingGo => None,
        }
    }
}

#[cfg(test)]
mod tests;
