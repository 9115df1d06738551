//! When an address is announced, and what came of it.

use std::time::Duration;

use crate::announcer::DueAnnouncement;
use crate::handoff::{OwnerVerdict, VipStance};
use crate::ids::Vip;
use crate::messages::Effect;
use crate::time::Mono;

use super::state::AnnouncementState;
use super::{Engine, InFlight, VipFindings, VipState};

/// Announcements of an address that was taken from a silent owner.
const EARLY_COUNT: u32 = 3;
const EARLY_INTERVAL: Duration = Duration::from_millis(500);

impl Engine {
    /// A live peer says that it has the address as well.
    pub(super) fn rival(&self, vip: Vip) -> bool {
        let me = &self.config.node;
        self.announced_by
            .get(&vip)
            .is_some_and(|n| n.iter().any(|n| n != me && self.candidacies.contains_key(n)))
    }

    /// R9: the first announcement once the kernel shows the address; once more when
    /// a rival has let go.
    pub(super) fn reconcile_announcement(&mut self, found: &VipFindings, state: &mut VipState) {
        let VipFindings { now, vip, stance, ref ours, ref desired, .. } = *found;
        let shown = ours.iter().find(|a| !a.tentative && !a.dad_failed);
        let Some(shown) = shown.filter(|_| stance != VipStance::Absent) else {
            state.announcement = AnnouncementState::Silent;
            (state.sole, state.defended) = (false, None);
            self.announcer.cancel(vip);
            return;
        };
        let mut garp = self.agents.current().map(|c| c.garp.clone()).unwrap_or_default();
        if self.is_early(vip) {
            // An owner whom we do not hear, and who hears us, learns by the second that we do not
            // yield (R13).
            garp.count = garp.count.max(EARLY_COUNT);
            garp.interval = garp.interval.min(EARLY_INTERVAL);
        }
        if found.is_remote() || !garp.enabled {
            state.announcement = AnnouncementState::Told;
            self.announcer.cancel(vip);
            return;
        }
        let rival = self.rival(vip);
        state.sole |= state.announced() && !rival;
        state.sole &= state.handoff.giving_to().is_none();
        // A repeat now would call back clients that the next owner has just called to
        // itself, a moment before we let go of the address.
        // That we have it is said in the Lease all the same: for its duplicate detection,
        // and so that it announces once more when we let go. Should it be ours after
        // all, what was never announced counts as contested, and is announced then.
        if state.handoff.giving_to().is_some() || state.ride.yields() {
            state.rival |= rival || !state.announced();
            state.announcement = AnnouncementState::Told;
            self.announcer.cancel(vip);
            return;
        }
        let released = std::mem::replace(&mut state.rival, rival) && !rival;
        let rides = state.ride.rides();
        let again = released && state.announced() && (rides || desired.verdict == OwnerVerdict::Mine);
        // Not announced at all, or held since before announcements were switched on.
        let unsaid = desired.verdict == OwnerVerdict::Mine && !rival;
        let first = !state.announcement.is_under_way() && (!state.announced() || unsaid);
        // Whether what an earlier run left is ours is not known yet.
        if first && self.confirmed().is_none() {
            return;
        }
        if (first || again)
            && let Some(interface) = self.kernel.name_of(shown.index).cloned()
        {
            state.announcement.begin();
            self.announcer.start(now, vip, shown.index, interface, &garp);
        } else if state.announced()
            && desired.verdict == OwnerVerdict::Mine
            && let Some(interface) = self.kernel.name_of(shown.index)
        {
            self.announcer.refresh_every(now, vip, shown.index, interface, garp.refresh);
        }
    }

    pub(in crate::engine) fn announced(&mut self, now: Mono, id: u64, result: Result<(), String>) {
        let Some(InFlight::Announce { vip, first }) = self.in_flight.remove(&id) else {
            return;
        };
        match result {
            Ok(()) => {
                self.counters.announcements += 1;
                let first = |s: &&mut Box<VipState>| s.announcement == AnnouncementState::First;
                if let Some(state) = self.vips.get_mut(&vip).filter(first) {
                    state.announcement = AnnouncementState::Repeating;
                    self.dirty.insert(vip);
                }
            }
            Err(_) => {
                self.counters.announcement_errors += 1;
                let shown = self.kernel.of_vip(vip).find(|a| a.ours);
                let name = shown.and_then(|a| Some((a.index, self.kernel.name_of(a.index)?.clone())));
                let garp = self.agents.current().map(|c| c.garp.clone()).unwrap_or_default();
                if let Some((index, interface)) = name.filter(|_| first) {
                    self.announcer.failed(now, vip, index, interface, &garp);
                }
                self.dirty.insert(vip);
            }
        }
    }

    pub(in crate::engine) fn send_announcements(&mut self, now: Mono) {
        let kernel = &self.kernel;
        let vips = &self.vips;
        let due = self.announcer.due(now, |vip| {
            let shown = kernel.of_vip(vip).any(|a| a.ours && !a.tentative && !a.dad_failed);
            shown && vips.get(&vip).is_some_and(|s| s.announcement.is_under_way())
        });
        for DueAnnouncement { vip, index, interface, first, until } in due {
            let id = self.id(InFlight::Announce { vip, first });
            // Past the fence others may have it, however soon that is.
            let fence = self.fence.deadline().filter(|_| !self.ride.has(vip));
            let until = fence.map_or(until, |fence| until.min(fence));
            self.out.push(Effect::Announce { id, vip, index, interface, until });
        }
        self.counters.announcements_dropped = self.announcer.dropped();
    }
}
