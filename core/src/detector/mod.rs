//! The segment as witness: who answers there, and who claims what.
//!
//! ```text
//!   an owner of whose addresses we are next in line, asked for one of them:
//!     Unknown ──answer──▶ Answering ──no answer──▶ Missing(n) ──▶ Silent, if somebody else
//!                             ▲                        │          answered meanwhile
//!                             └──────── answer ────────┘             │
//!   each of its addresses, asked for twice (see `inquiry`) ◀─────────┘
//!     answered ──▶ it stays where it is          nobody ──▶ `silent`: it may be taken (R12)
//! ```
//! Whoever took one goes on asking: an answer, and it is no longer `silent`.
//!
//! Pure: what to ask are values that somebody sends, and answers are handed in. A question
//! counts as unanswered only if it left and its answer time passed while we were listening.
//! Time comes in rounds, so that all that is to be asked leaves together.

mod asked_host;
mod config;
mod inquiry;
mod questions;
mod sightings;
mod view;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;

use crate::ids::{IfIndex, IfName, NodeName, Vip};
use crate::segment::{HardwareAddr, SightingKind};
use crate::time::Mono;

use asked_host::AskedHost;
pub use config::{DetectorConfig, DetectorConfigError};
use inquiry::{Inquiry, InquiryPurpose, InquiryResult};
pub use view::{DetectorTrouble, SegmentView, WatchState, WatchView};
use watch::{OwnerWatch, Plea, Witness};

/// Hosts whose last answers are further apart than this did not fall silent together.
const TOGETHER: Duration = Duration::from_secs(2);
/// The result of a question for a duplicate is used this soon, or asked for again.
const FRESH: Duration = Duration::from_secs(1);
/// Somebody else answered for the address of a silent owner: asked again this much later.
const ANSWERED_PAUSE: Duration = Duration::from_secs(1);
/// So many answers in a row show that a member hears us again.
const HEARD: u32 = 3;

/// Somebody else showed that it has an address that is in use here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSighting {
    pub vip: Vip,
    pub index: IfIndex,
    pub mac: HardwareAddr,
    /// The member with that hardware address; `None`: no member's.
    pub by: Option<NodeName>,
    pub kind: SightingKind,
    pub at: Mono,
}

/// Whether an address that is to be put on an interface is somebody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateCheck {
    Asking,
    Nobody,
    Somebody,
    /// It cannot be asked for: the kernel has to.
    Impossible,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AimState {
    Watched,
    /// Its owner is silent, and it is asked for itself.
    Asked,
    /// Nobody has it.
    Silent,
    /// Somebody answered: not asked for again before then.
    Answered(Mono),
}

/// An address of which we are next in line.
#[derive(Clone, Debug)]
struct Aim {
    index: IfIndex,
    owner: NodeName,
    state: AimState,
    /// We have taken it from the silent owner.
    taken: bool,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    name: Option<IfName>,
    /// Our own addresses there, to ask from.
    own: BTreeSet<IpNet>,
    watches: BTreeMap<NodeName, OwnerWatch>,
    witnesses: BTreeMap<Vip, Witness>,
    plea: Option<Plea>,
    /// Addresses that we hold there.
    held: usize,
    /// When anybody last answered us.
    answered: Option<Mono>,
    cut_off: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Whose {
    Watch(IfIndex, NodeName),
    Witness(IfIndex, Vip),
    Plea(IfIndex),
    Inquiry(Vip),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectorCounters {
    pub questions: u64,
    pub answers: u64,
    pub witness_missing: u64,
    pub overruns: u64,
}

#[derive(Clone, Debug)]
pub struct SegmentDetector {
    config: DetectorConfig,
    /// The LBNodeAgent lets us.
    allowed: bool,
    listening: BTreeMap<IfIndex, Result<(), String>>,
    segments: BTreeMap<IfIndex, Segment>,
    aims: BTreeMap<Vip, Aim>,
    inquiries: BTreeMap<Vip, Inquiry>,
    /// Whose each question is.
    open: BTreeMap<u64, Whose>,
    next_id: u64,
    ours: BTreeSet<HardwareAddr>,
    macs: BTreeMap<NodeName, BTreeSet<HardwareAddr>>,
    nodes: BTreeMap<HardwareAddr, NodeName>,
    held: BTreeMap<Vip, IfIndex>,
    claims: BTreeMap<Vip, ClaimSighting>,
    heard_claims: Vec<ClaimSighting>,
    changed: BTreeSet<Vip>,
    listened_until: Mono,
    /// The next round of questions.
    round: Option<Mono>,
    counters: DetectorCounters,
}

impl SegmentDetector {
    pub fn new(config: DetectorConfig) -> Self {
        Self {
            config,
            allowed: true,
            listening: BTreeMap::new(),
            segments: BTreeMap::new(),
            aims: BTreeMap::new(),
            inquiries: BTreeMap::new(),
            open: BTreeMap::new(),
            next_id: 0,
            ours: BTreeSet::new(),
            macs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            held: BTreeMap::new(),
            claims: BTreeMap::new(),
            heard_claims: Vec::new(),
            changed: BTreeSet::new(),
            listened_until: Mono::ZERO,
            round: None,
            counters: DetectorCounters::default(),
        }
    }

    pub fn allow(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    pub fn is_wanted(&self) -> bool {
        self.config.enabled && self.allowed
    }

    /// A socket was opened, or could not be, or broke. What was not heard is no silence.
    pub fn listening(&mut self, index: IfIndex, result: Result<(), String>) {
        let works = result.is_ok();
        self.listening.insert(index, result);
        if !works {
            self.start_again(index);
        }
    }

    /// Is that segment asked and heard?
    pub fn works_on(&self, index: IfIndex) -> Result<(), DetectorTrouble> {
        if !self.config.enabled {
            return Err(DetectorTrouble::Disabled);
        }
        if !self.allowed {
            return Err(DetectorTrouble::DisabledForNode);
        }
        match self.listening.get(&index) {
            None => Err(DetectorTrouble::NotListening),
            Some(Err(error)) => Err(DetectorTrouble::Failed(error.clone())),
            Some(Ok(())) => Ok(()),
        }
    }

    fn hears(&self, index: IfIndex) -> bool {
        self.is_wanted() && matches!(self.listening.get(&index), Some(Ok(())))
    }

    /// Any segment is asked and heard.
    pub fn works(&self) -> bool {
        self.is_wanted() && self.listening.values().any(Result::is_ok)
    }

    /// The interfaces to listen on, with our own addresses there. What was known of others goes.
    pub fn set_segments(&mut self, segments: BTreeMap<IfIndex, (IfName, BTreeSet<IpNet>)>) {
        self.segments.retain(|index, _| segments.contains_key(index));
        self.listening.retain(|index, _| segments.contains_key(index));
        for (index, (name, own)) in segments {
            let segment = self.segments.entry(index).or_default();
            (segment.name, segment.own) = (Some(name), own);
            segment.held = self.held.values().filter(|held| **held == index).count();
        }
        let gone = |aim: &Aim| !self.segments.contains_key(&aim.index);
        let vips: Vec<Vip> = self.aims.iter().filter(|(_, aim)| gone(aim)).map(|(vip, _)| *vip).collect();
        vips.into_iter().for_each(|vip| self.aim(vip, None));
        self.inquiries.retain(|_, inquiry| self.segments.contains_key(&inquiry.index));
    }

    pub fn set_own_macs(&mut self, macs: BTreeSet<HardwareAddr>) {
        self.ours = macs;
    }

    /// By which hardware addresses a member says it is known.
    pub fn set_member(&mut self, node: &NodeName, macs: Option<&BTreeSet<HardwareAddr>>) {
        let said = macs.filter(|macs| !macs.is_empty());
        if self.macs.get(node) == said {
            return;
        }
        self.nodes.retain(|_, known| known != node);
        match said {
            Some(macs) => {
                self.nodes.extend(macs.iter().map(|mac| (*mac, node.clone())));
                self.macs.insert(node.clone(), macs.clone());
            }
            None => {
                self.macs.remove(node);
            }
        }
    }

    /// Who else can be asked on an interface: gateways, and nodes by their own addresses.
    pub fn set_witnesses(&mut self, index: IfIndex, witnesses: &BTreeMap<Vip, Option<NodeName>>) {
        let Some(segment) = self.segments.get_mut(&index) else { return };
        segment.witnesses.retain(|vip, _| witnesses.contains_key(vip));
        for (vip, node) in witnesses {
            segment.witnesses.entry(*vip).or_default().node.clone_from(node);
        }
    }

    /// We are next in line for the address, on that interface, should this owner be gone.
    pub fn aim(&mut self, vip: Vip, target: Option<(IfIndex, NodeName)>) {
        let same = |aim: &Aim| target.as_ref().is_some_and(|(i, n)| (*i, n) == (aim.index, &aim.owner));
        if self.aims.get(&vip).map_or(target.is_none(), same) {
            return;
        }
        if let Some(before) = self.aims.remove(&vip) {
            self.inquiries.remove(&vip);
            if let Some(segment) = self.segments.get_mut(&before.index)
                && let Some(watch) = segment.watches.get_mut(&before.owner)
            {
                watch.vips.remove(&vip);
                watch.taken = watch.taken.saturating_sub(usize::from(before.taken));
                if watch.vips.is_empty() {
                    segment.watches.remove(&before.owner);
                }
            }
        }
        let Some((index, owner)) = target else { return };
        let Some(segment) = self.segments.get_mut(&index) else { return };
        segment.watches.entry(owner.clone()).or_default().vips.insert(vip);
        self.aims.insert(vip, Aim { index, owner, state: AimState::Watched, taken: false });
    }

    pub fn aimed(&self) -> impl Iterator<Item = Vip> {
        self.aims.keys().copied()
    }

    /// We hold the address there: claims to it are listened for.
    pub fn hold(&mut self, vip: Vip, index: Option<IfIndex>) {
        let before = match index {
            Some(index) => self.held.insert(vip, index),
            None => self.held.remove(&vip),
        };
        if before == index {
            return;
        }
        for (index, change) in [(before, -1), (index, 1)] {
            if let Some(segment) = index.and_then(|index| self.segments.get_mut(&index)) {
                segment.held = segment.held.saturating_add_signed(change);
            }
        }
        if index.is_none() {
            self.claims.remove(&vip);
        }
    }

    /// The address of a silent owner was taken: it is asked for until that is over.
    pub fn took(&mut self, vip: Vip, taken: bool) {
        let Some(aim) = self.aims.get_mut(&vip).filter(|aim| aim.taken != taken) else { return };
        aim.taken = taken;
        let segment = self.segments.get_mut(&aim.index);
        if let Some(watch) = segment.and_then(|segment| segment.watches.get_mut(&aim.owner)) {
            watch.taken = watch.taken.saturating_add_signed(if taken { 1 } else { -1 });
        }
    }

    /// Somebody else took it as well, and is the one to let go.
    pub fn keep_taken(&mut self, vip: Vip) {
        if let Some(aim) = self.aims.get_mut(&vip).filter(|aim| aim.taken) {
            aim.state = AimState::Silent;
        }
    }

    /// Nobody answers on that interface any more, and others can be expected to have taken
    /// over what is here.
    pub fn is_cut_off(&self, index: IfIndex) -> bool {
        self.hears(index) && self.segments.get(&index).is_some_and(|segment| segment.cut_off)
    }

    /// The last claim of somebody else to an address that we hold.
    pub fn claimed_by_other(&self, vip: Vip) -> Option<&ClaimSighting> {
        self.claims.get(&vip)
    }

    /// R12 (a) to (d) hold: its owner fell silent before a witness, and nobody answers for it.
    pub fn silent(&self, vip: Vip) -> bool {
        self.aims.get(&vip).is_some_and(|aim| aim.state == AimState::Silent)
    }

    /// That member claims what is ours and does not hear us: it is asked until it answers.
    pub fn plead(&mut self, index: IfIndex, vip: Vip, node: NodeName) {
        if let Some(segment) = self.segments.get_mut(&index) {
            segment.plea = Some(Plea { node, vip, host: AskedHost::default(), answers: 0 });
        }
    }

    /// It answered, several times in a row.
    pub fn is_heard(&self, index: IfIndex) -> bool {
        let plea = self.segments.get(&index).and_then(|segment| segment.plea.as_ref());
        plea.is_none_or(|plea| plea.answers >= HEARD)
    }

    pub fn end_plea(&mut self, index: IfIndex) {
        if let Some(segment) = self.segments.get_mut(&index) {
            segment.plea = None;
        }
    }

    /// Is the address somebody's? Asks, and says what came of it.
    pub fn check_duplicate(&mut self, now: Mono, vip: Vip, index: IfIndex) -> DuplicateCheck {
        if !self.hears(index) || !self.segments.contains_key(&index) {
            return DuplicateCheck::Impossible;
        }
        let known = self.inquiries.get(&vip).filter(|inquiry| {
            let fresh = inquiry.result.is_none() || now < inquiry.ended + FRESH;
            inquiry.index == index && inquiry.purpose == InquiryPurpose::Duplicate && fresh
        });
        match known.map(|inquiry| inquiry.result) {
            Some(Some(InquiryResult::Nobody)) => DuplicateCheck::Nobody,
            Some(Some(InquiryResult::Somebody(_))) => DuplicateCheck::Somebody,
            Some(Some(InquiryResult::Failed)) => DuplicateCheck::Impossible,
            Some(None) => DuplicateCheck::Asking,
            None => {
                self.inquiries.insert(vip, Inquiry::new(now, index, InquiryPurpose::Duplicate));
                DuplicateCheck::Asking
            }
        }
    }

    /// What came of it counts no more.
    pub fn forget_duplicate(&mut self, vip: Vip) {
        if self.inquiries.get(&vip).is_some_and(|i| i.purpose == InquiryPurpose::Duplicate) {
            self.inquiries.remove(&vip);
        }
    }

    /// Addresses of which something was found out since this was last called.
    pub fn take_changed(&mut self) -> BTreeSet<Vip> {
        std::mem::take(&mut self.changed)
    }

    pub fn take_claims(&mut self) -> Vec<ClaimSighting> {
        std::mem::take(&mut self.heard_claims)
    }

    pub fn counters(&self) -> DetectorCounters {
        self.counters
    }

    /// Call [`Self::conclude`] and [`Self::questions`] by then.
    pub fn deadline(&self) -> Option<Mono> {
        let rounds = self.asks_in_rounds().then_some(self.round).flatten();
        let open = self.inquiries.values().filter(|inquiry| inquiry.result.is_none());
        open.map(|inquiry| inquiry.next).chain(rounds).min()
    }

    fn start_again(&mut self, index: IfIndex) {
        let Some(segment) = self.segments.get_mut(&index) else { return };
        segment.watches.values_mut().for_each(|watch| watch.host.start_again());
        segment.witnesses.values_mut().for_each(|witness| witness.host.start_again());
        if let Some(plea) = &mut segment.plea {
            plea.host.start_again();
        }
        let until = self.listened_until;
        let mut given_up = Vec::new();
        for (vip, inquiry) in self.inquiries.iter_mut().filter(|(_, inquiry)| inquiry.index == index) {
            let taken = self.aims.get(vip).is_some_and(|aim| aim.taken);
            // Its owner is to fall silent once more, before it is asked for again.
            if inquiry.purpose == InquiryPurpose::Takeover && !taken {
                given_up.push(*vip);
            } else {
                inquiry.begin_again(until);
            }
        }
        for vip in given_up {
            self.inquiries.remove(&vip);
            if let Some(aim) = self.aims.get_mut(&vip) {
                aim.state = AimState::Watched;
            }
        }
    }

    /// What time alone tells: which questions went unanswered, and what follows.
    pub fn conclude(&mut self, now: Mono) {
        // A timer this late was a stall of ours, or of the whole machine.
        let late = self.config.interval / 2;
        if self.asks_in_rounds() && self.round.is_some_and(|round| now > round + late) {
            let all: Vec<IfIndex> = self.segments.keys().copied().collect();
            all.into_iter().for_each(|index| self.start_again(index));
            self.round = Some(now);
        }
        let answer_time = self.config.interval * 9 / 10;
        for segment in self.segments.values_mut() {
            let until = self.listened_until;
            for watch in segment.watches.values_mut() {
                watch.host.conclude(now, until, answer_time);
            }
            for witness in segment.witnesses.values_mut() {
                witness.host.conclude(now, until, answer_time);
            }
            if let Some(plea) = &mut segment.plea
                && plea.host.conclude(now, until, answer_time)
            {
                plea.answers = 0;
            }
        }
        self.conclude_inquiries(now);
        self.find_silent(now);
        self.find_cut_off(now);
    }

    fn conclude_inquiries(&mut self, now: Mono) {
        let mut ended = Vec::new();
        for (vip, inquiry) in &mut self.inquiries {
            let open = inquiry.result.is_none();
            inquiry.conclude(now, self.listened_until);
            if open && inquiry.result.is_some() {
                ended.push(*vip);
            }
        }
        ended.into_iter().for_each(|vip| self.inquiry_ended(now, vip));
        self.inquiries.retain(|_, i| i.result.is_none() || now < i.ended + FRESH);
    }

    fn inquiry_ended(&mut self, now: Mono, vip: Vip) {
        let Some(inquiry) = self.inquiries.get(&vip) else { return };
        let Some(result) = inquiry.result else { return };
        self.open.retain(|_, whose| *whose != Whose::Inquiry(vip));
        self.changed.insert(vip);
        if inquiry.purpose != InquiryPurpose::Takeover {
            return;
        }
        self.inquiries.remove(&vip);
        let Some(aim) = self.aims.get(&vip) else { return };
        let still = aim.taken || self.watch_is_silent(aim.index, &aim.owner);
        let Some(aim) = self.aims.get_mut(&vip) else { return };
        aim.state = match result {
            InquiryResult::Nobody if still => AimState::Silent,
            InquiryResult::Nobody => AimState::Watched,
            InquiryResult::Somebody(_) => AimState::Answered(now + ANSWERED_PAUSE),
            // It stays as it is, or is asked again with the next round.
            InquiryResult::Failed if aim.taken => AimState::Silent,
            InquiryResult::Failed => AimState::Watched,
        };
    }

    /// Somebody else answered us on that interface since then (R12 (c)).
    fn is_witnessed(&self, segment: &Segment, owner: &NodeName, since: Mono) -> bool {
        let host = |host: &AskedHost| {
            let other = host.mac.is_some_and(|mac| self.nodes.get(&mac) != Some(owner));
            other && host.answered.is_some_and(|at| at >= since)
        };
        let owners_mac = segment.watches.get(owner).and_then(|watch| watch.host.mac);
        let witness =
            |w: &Witness| w.node.as_ref() != Some(owner) && w.host.mac != owners_mac && host(&w.host);
        segment.witnesses.values().any(witness)
            || segment.watches.iter().any(|(n, w)| n != owner && w.host.mac != owners_mac && host(&w.host))
    }

    fn watch_is_silent(&self, index: IfIndex, owner: &NodeName) -> bool {
        let Some(segment) = self.segments.get(&index) else { return false };
        let Some(watch) = segment.watches.get(owner) else { return false };
        let since = watch.host.missing_since;
        watch.is_quiet(self.config.misses) && since.is_some_and(|s| self.is_witnessed(segment, owner, s))
    }

    /// Asks for the addresses of owners that are silent, each for itself.
    fn find_silent(&mut self, now: Mono) {
        let mut found = Vec::new();
        let mut unwitnessed = Vec::new();
        for (index, segment) in &self.segments {
            if !self.hears(*index) {
                continue;
            }
            for (owner, watch) in &segment.watches {
                if !watch.is_quiet(self.config.misses) {
                    continue;
                }
                let since = watch.host.missing_since.unwrap_or(now);
                if self.is_witnessed(segment, owner, since) {
                    found.push((*index, watch.vips.clone()));
                } else if !watch.told {
                    unwitnessed.push((*index, owner.clone()));
                }
            }
        }
        for (index, owner) in unwitnessed {
            if let Some(watch) = self.segments.get_mut(&index).and_then(|s| s.watches.get_mut(&owner)) {
                watch.told = true;
                self.counters.witness_missing += 1;
            }
        }
        for (index, vips) in found {
            for vip in vips {
                let Some(aim) = self.aims.get_mut(&vip) else { continue };
                let due = match aim.state {
                    AimState::Watched => true,
                    AimState::Answered(until) => now >= until,
                    AimState::Asked | AimState::Silent => false,
                };
                if due {
                    aim.state = AimState::Asked;
                    self.inquiries.insert(vip, Inquiry::new(now, index, InquiryPurpose::Takeover));
                }
            }
        }
    }

    fn find_cut_off(&mut self, now: Mono) {
        let misses = self.config.misses;
        // By then a node that watched us has asked for our addresses, and has them.
        let taken = self.config.interval * (misses + 2) + inquiry::ROUND * 4;
        for segment in self.segments.values_mut() {
            let hosts = || {
                let watches = segment.watches.values().map(|watch| &watch.host);
                watches.chain(segment.witnesses.values().map(|witness| &witness.host))
            };
            let Some(last) = segment.answered else {
                segment.cut_off = false;
                continue;
            };
            let together = hosts().filter(|h| h.answered.is_some_and(|at| at + TOGETHER >= last));
            let mut macs = BTreeSet::new();
            let mut all_silent = true;
            for host in together {
                macs.extend(host.mac);
                all_silent &= host.misses >= misses;
            }
            segment.cut_off |= macs.len() >= 2 && all_silent && now >= last + taken;
        }
    }

    /// What status and metrics show of each interface.
    pub fn views(&self) -> BTreeMap<IfName, SegmentView> {
        let view = |(index, segment): (&IfIndex, &Segment)| {
            let watched = |(owner, watch): (&NodeName, &OwnerWatch)| {
                let since = watch.host.missing_since;
                let witnessed = since.is_some_and(|s| self.is_witnessed(segment, owner, s));
                WatchView {
                    owner: owner.clone(),
                    asked: watch.asked,
                    state: watch.state(self.config.misses, witnessed),
                    addresses: watch.vips.len(),
                }
            };
            let view = SegmentView {
                index: *index,
                trouble: self.works_on(*index).err(),
                cut_off: self.is_cut_off(*index),
                unheard_by: segment.plea.as_ref().map(|plea| plea.node.clone()),
                interval: self.period(),
                watched: segment.watches.iter().map(watched).collect(),
                witnesses: segment.witnesses.values().filter(|w| w.host.answered.is_some()).count(),
            };
            Some((segment.name.clone()?, view))
        };
        self.segments.iter().filter_map(view).collect()
    }
}

#[cfg(test)]
mod tests;
