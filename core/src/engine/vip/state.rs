//! What is remembered of one address between two looks at it.

use crate::announcer::Announcer;
use crate::handoff::Handoff;
use crate::ids::{NodeName, Vip};
use crate::messages::{KernelChange, KernelRefusal};
use crate::reason::Reason;
use crate::time::Mono;

use super::super::ride::RideState;
use super::arrival::VipArrival;
use super::decline::DeclineState;
use super::presence::VipPresence;

#[derive(Clone, Debug)]
pub(super) struct ChangeFailure {
    /// It was a removal.
    pub(super) removal: bool,
    pub(super) refusal: KernelRefusal,
    pub(super) attempt: u32,
    pub(super) retry_at: Mono,
}

/// How far the segment was told that the address is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AnnouncementState {
    #[default]
    Silent,
    /// The first announcement since the address is there is on its way.
    First,
    /// It has gone out, and repeats may follow.
    Repeating,
    /// Told, or nobody needs to be; nothing follows.
    Told,
}

impl AnnouncementState {
    /// Announced from the beginning.
    pub(super) fn begin(&mut self) {
        *self = match self {
            Self::Silent | Self::First => Self::First,
            Self::Repeating | Self::Told => Self::Repeating,
        };
    }

    /// Nothing more of it goes out.
    pub(super) fn stop(&mut self) {
        *self = match self {
            Self::Silent | Self::First => Self::Silent,
            Self::Repeating | Self::Told => Self::Told,
        };
    }

    pub(super) fn is_under_way(self) -> bool {
        matches!(self, Self::First | Self::Repeating)
    }
}

#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct VipState {
    pub(super) handoff: Handoff,
    /// The change now on its way to the kernel, and since when.
    pub(super) changing: Option<u64>,
    pub(super) asked: Mono,
    /// The last change the kernel accepted and has not shown yet.
    pub(super) accepted: Option<(KernelChange, Mono)>,
    pub(super) failure: Option<ChangeFailure>,
    pub(super) duplicate_until: Option<Mono>,
    /// Where it stood after the last look; `None` before the first.
    pub(super) presence: Option<VipPresence>,
    pub(super) announcement: AnnouncementState,
    /// A live peer listed the address too when we last looked.
    pub(in crate::engine) rival: bool,
    /// It stayed here while the node drained, or was kept off, since no other could have it: it is put
    /// back should a fence have taken it.
    pub(super) kept: bool,
    /// We had it and should have it: if it vanishes, somebody took it away.
    pub(super) had: bool,
    /// This run put it there; what an earlier run left is nothing new.
    pub(super) put_here: bool,
    /// It was ours when the API server was last heard.
    pub(in crate::engine) rightful: bool,
    pub(in crate::engine) ride: RideState,
    pub(super) slot_written: Option<Mono>,
    /// It is for the dummy interface, as of the last look.
    pub(super) remote: bool,
    /// Since when no node can have it, and which reason of that was said last.
    pub(super) nobody_since: Option<Mono>,
    pub(super) nobody_told: Option<&'static str>,
    pub(super) reason: Option<Reason>,
    /// We have announced it, and nobody else said that it has it: who says so later was not the
    /// one that gave it to us.
    pub(super) sole: bool,
    /// When a claim of somebody else was last answered by an announcement.
    pub(super) defended: Option<Mono>,
    /// The segment is asked whether it is somebody's.
    pub(super) asking: bool,
    pub(super) arrival: VipArrival,
    pub(super) declining: DeclineState,
}

impl VipState {
    /// The kernel reported something about the address: our expectations are met or void.
    pub(in crate::engine) fn kernel_reported(&mut self) {
        self.accepted = None;
    }

    /// Announced, here to stay, and nothing known that would change it.
    pub(in crate::engine) fn is_settled(&self) -> bool {
        self.announced()
            && !self.remote
            && self.handoff.giving_to().is_none()
            && self.presence == Some(VipPresence::Announced)
    }

    /// It is announced from the beginning; no look at it is needed for that.
    pub(in crate::engine) fn is_announced_again(&mut self) {
        self.announcement.begin();
        self.rival = false;
    }

    /// Whether there is anything to announce again.
    pub(in crate::engine) fn announce_again(&mut self, vip: Vip, announcer: &mut Announcer) -> bool {
        let some = self.announcement != AnnouncementState::Silent;
        if some {
            announcer.cancel(vip);
            self.announcement.stop();
            self.rival = self.announced();
        }
        some
    }

    /// An operator asks for another try.
    pub(in crate::engine) fn try_again(&mut self) {
        self.declining.forget();
        self.failure = None;
    }

    pub(in crate::engine) fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    pub(in crate::engine) fn announced(&self) -> bool {
        matches!(self.announcement, AnnouncementState::Repeating | AnnouncementState::Told)
    }

    /// Here, announced, and local: a claim of somebody else is one to what we have.
    pub(in crate::engine) fn is_claimed_here(&self) -> bool {
        self.announced() && !self.remote
    }

    pub(in crate::engine) fn giving_to(&self) -> Option<&NodeName> {
        self.handoff.giving_to()
    }

    pub(in crate::engine) fn was_sole(&self) -> bool {
        self.sole
    }

    pub(in crate::engine) fn defended(&self) -> Option<Mono> {
        self.defended
    }

    pub(in crate::engine) fn defend(&mut self, now: Mono) {
        self.defended = Some(now);
    }

    pub(in crate::engine) fn let_go(&mut self) {
        self.handoff.let_go();
    }

    pub(in crate::engine) fn is_remote(&self) -> bool {
        self.remote
    }

    /// Another node's, and nothing of it is on its way to us or from us.
    pub(in crate::engine) fn is_elsewhere(&self) -> bool {
        let elsewhere = self.presence == Some(VipPresence::Elsewhere);
        self.changing.is_none() && elsewhere && !self.declining.is_active()
    }
}
