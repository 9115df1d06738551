//! Where an address stands after a look at it. Later steps go by this; a [`Reason`] only explains it.

use crate::handoff::VipStance;
use crate::reason::{PendingCause, Reason};

use super::{VipFindings, VipObstacle, VipState};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VipPresence {
    /// Not to be here.
    Absent,
    /// Not to be here: another node won it.
    Elsewhere,
    /// It stays while it is here: it is handed over, or no other node can have it.
    Kept,
    /// To be here, on an interface that is not there yet.
    Homeless,
    /// To be here, and not in the kernel.
    Missing,
    /// To be here, and the kernel refused a change.
    Refused,
    /// To be here, and another host has it. Tried again after a while.
    Duplicate,
    /// In the kernel, under duplicate detection.
    Detecting,
    /// In the kernel, and nobody was told yet.
    Shown,
    /// In the kernel, and announced where that is to be done.
    Announced,
}

impl VipPresence {
    pub(super) fn find(found: &VipFindings, state: &VipState) -> Self {
        let elsewhere = found.desired.obstacle == Some(VipObstacle::AnotherWinner);
        match found.stance {
            VipStance::Absent if elsewhere => return Self::Elsewhere,
            VipStance::Absent => return Self::Absent,
            VipStance::Keep => return Self::Kept,
            VipStance::Have => {}
        }
        let place = found.desired.place.as_ref();
        if place.is_some() && state.duplicate_until.is_some_and(|at| found.now < at) {
            return Self::Duplicate;
        }
        if state.failure.is_some() {
            return Self::Refused;
        }
        let Some(place) = place else {
            return Self::Homeless;
        };
        match found.at(place) {
            None => Self::Missing,
            Some(a) if a.tentative => Self::Detecting,
            Some(_) if !found.is_remote() && !state.announced() => Self::Shown,
            Some(_) => Self::Announced,
        }
    }

    /// It is in the kernel and not on its way out.
    pub(super) fn stays(self) -> bool {
        match self {
            Self::Kept | Self::Detecting | Self::Shown | Self::Announced => true,
            Self::Absent
            | Self::Elsewhere
            | Self::Homeless
            | Self::Missing
            | Self::Refused
            | Self::Duplicate => false,
        }
    }
}

impl VipFindings {
    /// The reason that goes with where the address stands.
    pub(super) fn explain(&self, presence: VipPresence, state: &VipState) -> Reason {
        let desired = || self.desired.reason.clone();
        let interface = || self.desired.place.as_ref().map(|place| place.interface.clone());
        let pending = |missing| Reason::Pending { missing };
        match presence {
            VipPresence::Absent | VipPresence::Elsewhere | VipPresence::Homeless => desired(),
            VipPresence::Kept => match state.handoff.giving_to() {
                Some(to) => Reason::HandingOver { to: to.clone() },
                None => desired(),
            },
            VipPresence::Missing if state.asking => pending(PendingCause::DuplicateDetection),
            VipPresence::Missing => pending(PendingCause::Kernel),
            VipPresence::Detecting => pending(PendingCause::DuplicateDetection),
            VipPresence::Shown => pending(PendingCause::Announcement),
            VipPresence::Refused => match &state.failure {
                Some(failure) => Reason::ApplyFailed {
                    error: failure.refusal.to_string(),
                    attempt: failure.attempt,
                    retry_at: failure.retry_at,
                },
                None => desired(),
            },
            VipPresence::Duplicate => match (interface(), state.duplicate_until) {
                (Some(interface), Some(retry_at)) => Reason::Duplicate { interface, retry_at },
                _ => desired(),
            },
            VipPresence::Announced => {
                interface().map_or_else(desired, |interface| Reason::Announcing { interface })
            }
        }
    }
}
