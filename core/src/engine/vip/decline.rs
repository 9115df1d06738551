//! An address that we won and cannot have is left to the next in line.
//!
//! ```text
//!   refused, duplicate, in no pool   declined in the Lease     everybody leaves us out of its
//!   or somebody else's, for a while ─▶ (reason Declined)  ──▶  election: the next one takes it
//!            ▲                            │ the cause is gone, or it is time for another try,
//!            └────────────────────────────┘ or nobody else is left
//! ```
//! A try costs nobody anything: whoever has the address keeps it until we say that we
//! have it (R7), and one failure, or half a handoff's time without an answer, is enough to
//! decline again. Nothing is declined in
//! favour of a node that would not take it: one of the older format still counts us in.

use std::time::Duration;

use crate::ids::{NodeName, Vip};
use crate::messages::KernelRefusal;
use crate::reason::{PendingCause, Reason};
use crate::time::Mono;

use super::{Engine, VipFindings, VipObstacle, VipPresence, VipState};

/// With the pauses between them a second and a half: what passes by itself (a full
/// buffer, a link that is being renamed) passes in that time.
const REFUSALS: u32 = 5;
/// The first may be the last holder's address that its kernel is about to remove; the
/// second comes a Lease's worth of time later.
const DUPLICATES: u32 = 2;
/// A kernel that does not answer holds a lock for somebody: longer than this, and it may
/// take for ever. Where somebody else has the address, half a handoff's time is enough: it
/// would let go of it at the end of that time, and nobody would have it.
const UNANSWERED: Duration = Duration::from_secs(10);
/// Somebody may just be moving the address.
const FOREIGN_PATIENCE: Duration = Duration::from_secs(5);
/// Until another try, and longer after each that failed.
const AGAIN_FIRST: Duration = Duration::from_secs(30);
const AGAIN_MOST: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Default)]
pub(super) struct DeclineState {
    now: Option<ActiveDecline>,
    /// How often in a row: the address was not here in between.
    times: u32,
    /// Detections that failed in a row.
    duplicates: u32,
    /// Since when somebody else's address is in the way.
    foreign: Option<Mono>,
}

#[derive(Clone, Debug)]
struct ActiveDecline {
    why: String,
    /// `None`: as long as somebody else's address is here, or no group has it.
    again_at: Option<Mono>,
}

impl DeclineState {
    pub(super) fn duplicate_found(&mut self) {
        self.duplicates = self.duplicates.saturating_add(1);
    }

    /// Somebody mended something, and says so.
    pub(super) fn forget(&mut self) {
        *self = Self { foreign: self.foreign, ..Self::default() };
    }

    pub(super) fn is_active(&self) -> bool {
        self.now.is_some()
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match &self.now {
            Some(decline) => decline.again_at,
            None => self.foreign.map(|since| since + FOREIGN_PATIENCE),
        }
    }
}

impl Engine {
    /// Declines, takes back, or leaves things as they are.
    pub(super) fn consider_declining(
        &mut self,
        found: &VipFindings,
        presence: VipPresence,
        state: &mut VipState,
    ) {
        let (now, vip, obstacle) = (found.now, found.vip, &found.desired.obstacle);
        let foreign = matches!(obstacle, Some(VipObstacle::ForeignAddress { .. }));
        let since = state.declining.foreign.unwrap_or(now);
        state.declining.foreign = foreign.then_some(since);
        let in_the_way = foreign || *obstacle == Some(VipObstacle::NotInPool);
        if presence == VipPresence::Announced {
            state.declining.forget();
        }
        self.take_back(now, vip, state, in_the_way);
        if state.declining.now.is_none()
            && let Some(why) = self.cannot_have(found, presence, state)
            && self.somebody_would_take(vip)
        {
            let times = state.declining.times.saturating_add(1);
            let wait = AGAIN_FIRST.saturating_mul(1 << (times - 1).min(10)).min(AGAIN_MOST);
            let again_at = (!in_the_way).then_some(now + wait);
            state.declining.now = Some(ActiveDecline { why, again_at });
            state.declining.times = times;
            state.declining.duplicates = 0;
            state.failure = None;
            state.duplicate_until = None;
        }
        if state.declining.now.is_none() {
            self.take_part_again(vip);
        } else if self.declined.insert(vip) {
            self.members_dirty.insert(self.config.node.clone());
        }
    }

    /// That it was declined says more than what came of it.
    pub(super) fn explain_decline(&self, state: &VipState, vip: Vip, reason: Reason) -> Reason {
        let Some(decline) = &state.declining.now else {
            return reason;
        };
        match reason {
            Reason::ForeignAddress { .. }
            | Reason::ApplyFailed { .. }
            | Reason::Duplicate { .. }
            | Reason::Pending { missing: PendingCause::Kernel }
            | Reason::NotWinner { .. } => {
                let to = self.successor(vip);
                Reason::Declined { why: decline.why.clone(), to, retry_at: decline.again_at }
            }
            // Fenced, stopping, without the subnet: there is more to say than that.
            other => other,
        }
    }

    /// Nothing is left of a decline, if there was one.
    pub(super) fn take_part_again(&mut self, vip: Vip) {
        if self.declined.remove(&vip) {
            self.members_dirty.insert(self.config.node.clone());
        }
    }

    /// Why not, if we won it, tried, and should not go on trying.
    fn cannot_have(&self, found: &VipFindings, presence: VipPresence, state: &VipState) -> Option<String> {
        let (now, vip) = (found.now, found.vip);
        if self.election.winner(vip) != Some(&self.config.node) {
            return None;
        }
        let tried = state.declining.times > 0;
        match &found.desired.obstacle {
            // Nothing was tried, and nothing would come of it. A group that we do not know may be
            // known to others: it is bad by now and was not when they read it, or it is gone.
            Some(VipObstacle::NotInPool) => return Some(Reason::NotInPool.to_string()),
            Some(VipObstacle::ForeignAddress { interface }) => {
                let since = state.declining.foreign?;
                let why = format!("somebody else put the address on {interface}");
                return (now >= since + FOREIGN_PATIENCE).then_some(why);
            }
            Some(VipObstacle::AnotherWinner) | None => {}
        }
        match presence {
            VipPresence::Missing if self.unanswered_at(vip, state).is_some_and(|at| now >= at) => {
                Some("the kernel does not answer".to_owned())
            }
            VipPresence::Refused => {
                let failure = state.failure.as_ref()?;
                let for_good = matches!(failure.refusal, KernelRefusal::NotPermitted(_));
                (tried || for_good || failure.attempt >= REFUSALS)
                    .then(|| format!("the kernel refused: {}", failure.refusal))
            }
            VipPresence::Duplicate if tried || state.declining.duplicates >= DUPLICATES => {
                let place = found.desired.place.as_ref()?;
                Some(format!("another host on {} uses the address", place.interface))
            }
            _ => None,
        }
    }

    /// When a change that the kernel does not answer counts as refused.
    pub(super) fn unanswered_at(&self, vip: Vip, state: &VipState) -> Option<Mono> {
        let patience = if state.declining.times == 0 && !self.rival(vip) {
            UNANSWERED
        } else {
            UNANSWERED.min(self.config.handoff.deadline / 2)
        };
        state.changing.map(|_| state.asked + patience)
    }

    fn take_back(&self, now: Mono, vip: Vip, state: &mut VipState, in_the_way: bool) {
        let Some(decline) = &mut state.declining.now else { return };
        if decline.again_at.is_none() && !in_the_way {
            // Gained slowly, as a subnet is (R8).
            decline.again_at = Some(now + self.config.gain_delay);
        }
        let due = decline.again_at.is_some_and(|at| now >= at) && !in_the_way;
        if due || !self.somebody_would_take(vip) {
            state.declining.now = None;
        }
    }

    /// The winner once we are out, if it knows that we can be.
    fn somebody_would_take(&self, vip: Vip) -> bool {
        let knows = |n: &NodeName| self.members.get(n).is_some_and(|m| m.facts().declined.is_some());
        self.successor(vip).is_some_and(|n| knows(&n))
    }

    fn successor(&self, vip: Vip) -> Option<NodeName> {
        let me = &self.config.node;
        match self.election.winner(vip) {
            Some(winner) if winner == me => {
                let order = self.election.order_without(vip, std::slice::from_ref(me));
                order.into_iter().next().map(|ranked| ranked.node)
            }
            winner => winner.cloned(),
        }
    }
}
