//! What is heard, and what it says of whom.

use crate::ids::{NodeName, Vip};
use crate::segment::{SegmentReport, SegmentSighting, SightingKind};
use crate::time::Mono;

use super::inquiry::{Inquiry, InquiryPurpose};
use super::{AimState, ClaimSighting, SegmentDetector};

impl SegmentDetector {
    /// The sockets were read.
    pub fn heard(&mut self, now: Mono, report: &SegmentReport) {
        for index in &report.overrun {
            self.counters.overruns += 1;
            self.start_again(*index);
        }
        for sighting in &report.sightings {
            self.sighted(now, sighting);
        }
        self.listened_until = self.listened_until.max(report.listened_until);
    }

    fn sighted(&mut self, now: Mono, sighting: &SegmentSighting) {
        let SegmentSighting { index, address, mac, kind, at } = *sighting;
        if self.ours.contains(&mac) || !self.hears(index) {
            return;
        }
        let by = self.nodes.get(&mac).cloned();
        let answer = matches!(kind, SightingKind::EchoReply | SightingKind::ResolveReply);
        if kind != SightingKind::Probe {
            self.heard_of_owner(now, sighting, by.as_ref());
        }
        self.heard_for_inquiry(now, address, at, mac, kind == SightingKind::Probe);
        if let Some(segment) = self.segments.get_mut(&index)
            && answer
        {
            let mut awaited = self.aims.contains_key(&address) || self.inquiries.contains_key(&address);
            if let Some(witness) = segment.witnesses.get_mut(&address) {
                awaited = true;
                witness.host.answered(at, mac, kind);
                // A member that does not say so itself is known by its answers.
                if let Some(node) = witness.node.clone().filter(|n| !self.macs.contains_key(n)) {
                    self.nodes.insert(mac, node);
                }
            }
            if let Some(plea) = segment.plea.as_mut().filter(|p| p.vip == address) {
                awaited = true;
                plea.host.answered(at, mac, kind);
                plea.answers = plea.answers.saturating_add(1);
            }
            self.counters.answers += u64::from(awaited);
            segment.answered = segment.answered.max(Some(at));
            segment.cut_off = false;
        }
        if self.held.get(&address) == Some(&index) && kind != SightingKind::Probe {
            let by = by.or_else(|| self.nodes.get(&mac).cloned());
            let claim = ClaimSighting { vip: address, index, mac, by, kind, at };
            self.claims.insert(address, claim.clone());
            self.heard_claims.push(claim);
        }
    }

    /// Somebody has an address of an owner that is watched: that owner, as far as we can tell, or
    /// another. Either way nobody may take it.
    fn heard_of_owner(&mut self, now: Mono, sighting: &SegmentSighting, by: Option<&NodeName>) {
        let SegmentSighting { index, address, mac, kind, at } = *sighting;
        let Some(aim) = self.aims.get_mut(&address).filter(|aim| aim.index == index) else { return };
        if aim.state == AimState::Silent {
            aim.state = AimState::Answered(now + super::ANSWERED_PAUSE);
            self.changed.insert(address);
        }
        let owner = aim.owner.clone();
        let says_its_own = self.macs.contains_key(&owner);
        let is_owner = by.map_or(!says_its_own, |by| *by == owner);
        if !is_owner {
            return;
        }
        if !says_its_own {
            self.nodes.insert(mac, owner.clone());
        }
        let Some(watch) = self.segments.get_mut(&index).and_then(|s| s.watches.get_mut(&owner)) else {
            return;
        };
        watch.host.answered(at, mac, kind);
        if watch.host.misses > 0 {
            return;
        }
        (watch.asked, watch.told) = (Some(address), false);
        let others: Vec<Vip> = watch.vips.iter().copied().filter(|vip| *vip != address).collect();
        self.owner_is_back(now, others);
    }

    /// What was taken from it is asked for at once, one by one; nothing else is taken.
    fn owner_is_back(&mut self, now: Mono, vips: Vec<Vip>) {
        for vip in vips {
            let Some(aim) = self.aims.get_mut(&vip) else { continue };
            match aim.state {
                AimState::Silent if aim.taken => {
                    let again = || Inquiry::new(now, aim.index, InquiryPurpose::Takeover);
                    self.inquiries.entry(vip).or_insert_with(again);
                }
                AimState::Silent | AimState::Asked => {
                    aim.state = AimState::Watched;
                    self.inquiries.remove(&vip);
                }
                AimState::Watched | AimState::Answered(_) => {}
            }
        }
    }
}
