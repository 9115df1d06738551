//! What is asked when: all in rounds, and never more than a segment bears.

use std::net::IpAddr;
use std::time::Duration;

use crate::ids::{Family, IfIndex, NodeName, Vip};
use crate::segment::{HardwareAddr, QuestionKind, SegmentQuestion};
use crate::time::Mono;

use super::inquiry::InquiryPurpose;
use super::{Segment, SegmentDetector, Whose};

/// Questions a second in all, but for those that decide.
const RATE: u32 = 200;
/// Resolutions a second on one interface, where echo is not answered: switches count them.
const RESOLVE_RATE: u32 = 10;
/// Addresses asked for at a time to decide on them, with four questions each.
const INQUIRIES: usize = 50;
/// Witnesses while nothing is amiss, and the member that does not hear us.
const PULSE: Duration = Duration::from_secs(1);
const PLEA_PULSE: Duration = Duration::from_millis(300);
/// An owner that never answered may not have put its addresses anywhere yet.
const UNKNOWN_PULSE: Duration = Duration::from_millis(500);

impl SegmentDetector {
    /// Is there anybody to ask again and again?
    pub(super) fn asks_in_rounds(&self) -> bool {
        let asks =
            |segment: &Segment| !segment.watches.is_empty() || segment.plea.is_some() || is_pulsed(segment);
        self.segments.iter().any(|(index, segment)| self.hears(*index) && asks(segment))
    }

    /// Between two questions to the same owner.
    pub(super) fn period(&self) -> Duration {
        let watches: usize = self.segments.values().map(|segment| segment.watches.len()).sum();
        let watches = u32::try_from(watches).unwrap_or(u32::MAX);
        let least = Duration::from_secs(1).saturating_mul(watches) / RATE;
        // In whole rounds.
        let mut period = self.config.interval;
        while period < least {
            period += self.config.interval;
        }
        period
    }

    /// What is to be asked now.
    pub fn questions(&mut self, now: Mono) -> Vec<SegmentQuestion> {
        let mut asked = Vec::new();
        self.ask_inquiries(now, &mut asked);
        if !self.asks_in_rounds() {
            self.round = None;
        } else if self.round.is_none_or(|round| now >= round) {
            self.ask_round(now, &mut asked);
            let next = self.round.map_or(now, |round| round.max(now - self.config.interval / 2));
            self.round = Some(next + self.config.interval);
        }
        self.counters.questions += u64::try_from(asked.len()).unwrap_or(0);
        asked
    }

    fn ask_inquiries(&mut self, now: Mono, asked: &mut Vec<SegmentQuestion>) {
        let open = self.inquiries.iter().filter(|(_, inquiry)| inquiry.result.is_none());
        let due: Vec<(Vip, IfIndex)> = open
            .take(INQUIRIES)
            .filter(|(_, inquiry)| inquiry.is_due(now))
            .map(|(vip, inquiry)| (*vip, inquiry.index))
            .collect();
        for (vip, index) in due {
            let before = asked.len();
            // The echo to the host that had it; whoever has it by now answers the other.
            let known = self
                .aims
                .get(&vip)
                .and_then(|aim| self.segments.get(&aim.index)?.watches.get(&aim.owner)?.host.mac);
            for kind in [QuestionKind::Echo, QuestionKind::Resolve] {
                let to = known.filter(|_| kind == QuestionKind::Echo);
                asked.extend(self.question(index, vip, kind, to, Whose::Inquiry(vip)));
            }
            let ids: Vec<u64> = asked.iter().skip(before).map(|q| q.id).collect();
            if let Some(inquiry) = self.inquiries.get_mut(&vip) {
                inquiry.asked(now, ids);
            }
        }
        // Those that wait for their turn are looked at with the next.
        let waiting = self.inquiries.values_mut().filter(|i| i.result.is_none() && i.is_due(now));
        waiting.for_each(|inquiry| inquiry.next = now + super::inquiry::ROUND);
    }

    fn ask_round(&mut self, now: Mono, asked: &mut Vec<SegmentQuestion>) {
        let interval = self.config.interval;
        let period = self.period();
        let misses = self.config.misses;
        let room = usize::try_from((interval * RATE).as_secs()).unwrap_or(usize::MAX).max(1);
        // Those whose silence is to be understood come first.
        let mut due: Vec<(bool, Mono, Whose)> = Vec::new();
        for (index, segment) in self.segments.iter().filter(|(index, _)| self.hears(**index)) {
            let mut amiss = segment.cut_off;
            for (owner, watch) in &segment.watches {
                amiss |= watch.host.misses > 0;
                if watch.host.next <= now && !watch.host.is_waiting() {
                    let urgent = (1..misses).contains(&watch.host.misses);
                    due.push((!urgent, watch.host.next, Whose::Watch(*index, owner.clone())));
                }
            }
            amiss |= segment.witnesses.values().any(|w| w.host.answered.is_some() && w.host.misses == 1);
            for (vip, witness) in &segment.witnesses {
                let pulsed = is_pulsed(segment) && witness.host.next <= now;
                if (amiss || pulsed) && !witness.host.is_waiting() {
                    due.push((!amiss, witness.host.next, Whose::Witness(*index, *vip)));
                }
            }
            if segment.plea.as_ref().is_some_and(|p| p.host.next <= now && !p.host.is_waiting()) {
                due.push((true, now, Whose::Plea(*index)));
            }
        }
        due.sort_unstable_by_key(|(calm, next, _)| (*calm, *next));
        for (_, _, whose) in due.into_iter().take(room) {
            asked.extend(self.ask(now, period, whose));
        }
    }

    fn ask(&mut self, now: Mono, period: Duration, whose: Whose) -> Option<SegmentQuestion> {
        let misses = self.config.misses;
        let (index, target, kind, to, wait) = match &whose {
            Whose::Watch(index, owner) => {
                let segment = self.segments.get(index)?;
                let watch = segment.watches.get(owner)?;
                let by_resolve = segment.watches.values().filter(|w| w.host.by_resolve).count();
                let gentle = Duration::from_secs(1) * u32::try_from(by_resolve).unwrap_or(u32::MAX);
                let wait = if watch.host.answered.is_none() {
                    period.max(UNKNOWN_PULSE)
                } else if watch.host.by_resolve {
                    period.max(gentle / RESOLVE_RATE)
                } else {
                    period
                };
                let kind = watch.host.kind();
                // It may come back with another hardware address.
                let lost = kind == QuestionKind::Resolve && watch.host.misses >= misses;
                (*index, watch.next_address(misses)?, kind, watch.host.mac.filter(|_| !lost), wait)
            }
            Whose::Witness(index, vip) => {
                let host = &self.segments.get(index)?.witnesses.get(vip)?.host;
                let known = host.mac.filter(|_| host.misses < misses);
                (*index, *vip, host.kind(), known, PULSE)
            }
            Whose::Plea(index) => {
                let plea = self.segments.get(index)?.plea.as_ref()?;
                let known = plea.host.mac.filter(|_| plea.host.misses == 0);
                (*index, plea.vip, plea.host.kind(), known, PLEA_PULSE)
            }
            Whose::Inquiry(_) => return None,
        };
        let question = self.question(index, target, kind, to, whose.clone())?;
        let id = question.id;
        let segment = self.segments.get_mut(&index)?;
        let host = match &whose {
            Whose::Watch(_, owner) => {
                let watch = segment.watches.get_mut(owner)?;
                watch.asked = Some(target);
                &mut watch.host
            }
            Whose::Witness(_, vip) => &mut segment.witnesses.get_mut(vip)?.host,
            Whose::Plea(_) => &mut segment.plea.as_mut()?.host,
            Whose::Inquiry(_) => return None,
        };
        host.asked(now, id);
        // A little early, or it would miss its round by a hair and wait for another.
        host.next = now + wait - self.config.interval / 2;
        Some(question)
    }

    /// `None`: without an address of our own there an echo has nobody to be answered to.
    fn question(
        &mut self,
        index: IfIndex,
        target: Vip,
        kind: QuestionKind,
        to: Option<HardwareAddr>,
        whose: Whose,
    ) -> Option<SegmentQuestion> {
        let segment = self.segments.get(&index)?;
        let from = source(segment, target);
        let kind = if from.is_none() { QuestionKind::Resolve } else { kind };
        let interface = segment.name.clone()?;
        self.next_id += 1;
        self.open.insert(self.next_id, whose);
        Some(SegmentQuestion { id: self.next_id, index, interface, target, kind, from, to })
    }

    /// When the question left, or that it did not.
    pub fn asked(&mut self, now: Mono, id: u64, result: Result<Mono, String>) {
        let result = result.map_err(drop);
        match self.open.remove(&id) {
            Some(Whose::Watch(index, owner)) => {
                if let Some(watch) = self.watch_mut(index, &owner) {
                    watch.left(id, result);
                }
            }
            Some(Whose::Witness(index, vip)) => {
                if let Some(witness) = self.segments.get_mut(&index).and_then(|s| s.witnesses.get_mut(&vip)) {
                    witness.host.left(id, result);
                }
            }
            Some(Whose::Plea(index)) => {
                if let Some(plea) = self.segments.get_mut(&index).and_then(|s| s.plea.as_mut()) {
                    plea.host.left(id, result);
                }
            }
            Some(Whose::Inquiry(vip)) => {
                if let Some(inquiry) = self.inquiries.get_mut(&vip) {
                    inquiry.left(now, id, result);
                }
            }
            None => {}
        }
    }

    fn watch_mut(&mut self, index: IfIndex, owner: &NodeName) -> Option<&mut super::AskedHost> {
        Some(&mut self.segments.get_mut(&index)?.watches.get_mut(owner)?.host)
    }

    /// An address that is asked for to decide on it, and was answered for.
    pub(super) fn heard_for_inquiry(
        &mut self,
        now: Mono,
        vip: Vip,
        at: Mono,
        mac: HardwareAddr,
        probe: bool,
    ) {
        let Some(inquiry) = self.inquiries.get_mut(&vip) else { return };
        if probe && inquiry.purpose != InquiryPurpose::Duplicate {
            return;
        }
        let open = inquiry.result.is_none();
        inquiry.heard(now, at, mac);
        if open && inquiry.result.is_some() {
            self.inquiry_ended(now, vip);
        }
    }
}

/// Others are asked now and then: should they all fall silent it is we who are cut off.
fn is_pulsed(segment: &Segment) -> bool {
    (segment.held > 0 || segment.cut_off) && !segment.witnesses.is_empty()
}

/// Our own address there: of the same subnet, or any of the family.
fn source(segment: &Segment, target: Vip) -> Option<IpAddr> {
    let family = target.family();
    let of_family = || segment.own.iter().filter(move |net| Family::of(net.addr()) == family);
    let near = of_family().find(|net| net.contains(&target.ip()));
    near.or_else(|| of_family().next()).map(ipnet::IpNet::addr)
}
