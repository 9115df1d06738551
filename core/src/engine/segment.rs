//! The engine's side of the detector: whom it watches, and what follows from what it finds.
//!
//! ```text
//!   next in line after the winner ──▶ the winner is watched
//!   it fell silent, before a witness ──▶ we take its addresses before its Lease runs out (R12)
//!       it answers after all ──▶ we let go of them at once
//!       its Lease runs out   ──▶ we are the winner, and nothing else changes
//!   a member claims what is ours ──▶ once we announce it; again, and it does not hear us (R13):
//!                                    we let go of it, and of the subnet until it answers us
//!   nobody answers us any more   ──▶ as if the carrier were lost (R8)
//! ```
//! Where the daemon does not listen nothing of this happens: Leases alone decide.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::time::Duration;

use ipnet::IpNet;

use crate::detector::ClaimSighting;
use crate::election::{LinePlace, score};
use crate::facts::LinkFacts;
use crate::handoff::Handoff;
use crate::ids::{IfIndex, IfName, NodeName, Vip};
use crate::messages::{Effect, Source};
use crate::segment::HardwareAddr;
use crate::time::Mono;

use super::vip::VipState;
use super::{Engine, InFlight};

/// A second claim within this time after our answer to the first comes from somebody who does not
/// hear us (RFC 5227).
const DEFENCE: Duration = Duration::from_secs(10);
/// A claim this soon after our announcement may have left before that arrived.
const CROSSED: Duration = Duration::from_millis(20);
/// Whoever has no say is answered this often.
const CALL_BACK: Duration = Duration::from_secs(1);
/// A subnet that was given up since somebody does not hear us stays so for this long at least.
const UNHEARD_LEAST: Duration = Duration::from_secs(10);
/// Nodes that are asked as witnesses on an interface, beside its gateways.
const WITNESS_NODES: usize = 3;

#[derive(Clone, Debug)]
struct Unheard {
    by: NodeName,
    since: Mono,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SegmentState {
    /// As last asked for.
    listened: BTreeMap<IfIndex, IfName>,
    /// Addresses that we took from a silent owner whose Lease has not run out.
    early: BTreeMap<Vip, NodeName>,
    unheard: BTreeMap<IfIndex, Unheard>,
    /// Interfaces that count as without a carrier. True: nobody answers there.
    lost: BTreeMap<IfName, bool>,
    /// Who comes before us, once the owner is gone: of those that do, one. And the same the
    /// other way round.
    behind: BTreeMap<Vip, NodeName>,
    before_us: BTreeMap<NodeName, BTreeSet<Vip>>,
    /// Where our place in the line is to be looked at again.
    line: BTreeSet<Vip>,
    /// Links, routes, Nodes or the configuration changed.
    pub(super) outdated: bool,
}

impl Engine {
    /// By which the segments know us: of every interface that addresses may be put on.
    pub(super) fn segment_macs(&self) -> BTreeSet<HardwareAddr> {
        let selected = self.agents.current().map(|config| self.kernel.selected(config)).unwrap_or_default();
        selected.into_iter().filter_map(|index| self.kernel.link(index)?.mac).collect()
    }

    pub(super) fn segment_listening(&mut self, index: IfIndex, result: Result<(), String>) {
        self.detector.listening(index, result);
        self.segment.line.extend(self.demands.vips());
    }

    /// What time and what was heard tell, before anything is decided.
    pub(super) fn check_segments(&mut self, now: Mono) {
        self.detector.conclude(now);
        self.dirty.append(&mut self.detector.take_changed());
        for claim in self.detector.take_claims() {
            self.heed_claim(now, &claim);
        }
        self.check_unheard(now);
        let lost = self.lost_segments();
        if lost != self.segment.lost {
            self.subnets.set_lost(lost.keys().cloned().collect());
            // What is here is no longer served, or is again.
            let changed = |name: &IfName| lost.get(name) != self.segment.lost.get(name);
            let names = lost.keys().chain(self.segment.lost.keys()).filter(|name| changed(name));
            let links = names.filter_map(|name| self.kernel.link_named(name));
            self.dirty.extend(links.flat_map(|link| self.kernel.vips_on(link.index)));
            self.segment.lost = lost;
            self.links_dirty = true;
        }
    }

    fn lost_segments(&self) -> BTreeMap<IfName, bool> {
        let me = &self.config.node;
        // With nobody else there, nobody else can have it: we go on as we are.
        let others = || self.candidacies.iter().any(|(node, c)| node != me && c.eligible);
        let listened = self.segment.listened.iter();
        let lost = listened.filter_map(|(index, name)| {
            let cut_off = self.detector.is_cut_off(*index);
            (cut_off || self.segment.unheard.contains_key(index)).then(|| (name.clone(), cut_off))
        });
        let lost: BTreeMap<IfName, bool> = lost.collect();
        if lost.is_empty() || others() { lost } else { BTreeMap::new() }
    }

    /// Nobody answers us where this link is: what is here cannot serve.
    pub(super) fn is_cut_off(&self, link: &LinkFacts) -> bool {
        self.segment.lost.get(&link.name) == Some(&true)
    }

    /// Who did not hear us does, or is gone.
    fn check_unheard(&mut self, now: Mono) {
        let over = |(index, unheard): (&IfIndex, &Unheard)| {
            let gone = !self.candidacies.contains_key(&unheard.by);
            let heard = self.detector.is_heard(*index) && now >= unheard.since + UNHEARD_LEAST;
            (gone || heard).then_some(*index)
        };
        let over: Vec<IfIndex> = self.segment.unheard.iter().filter_map(over).collect();
        for index in over {
            self.segment.unheard.remove(&index);
            self.detector.end_plea(index);
        }
    }

    /// Keeps the detector informed, and asks what it wants asked: after everything was decided.
    pub(super) fn ask_segments(&mut self, now: Mono) {
        let needed = [Source::Kernel, Source::NodeAgents, Source::Nodes];
        if needed.iter().any(|s| self.unsynced.contains(s)) {
            return;
        }
        if std::mem::take(&mut self.segment.outdated) {
            self.update_segments();
        }
        for vip in std::mem::take(&mut self.segment.line) {
            self.aim(now, vip);
        }
        self.out.extend(self.detector.questions(now).into_iter().map(Effect::Ask));
    }

    fn update_segments(&mut self) {
        let config = self.agents.current();
        self.detector.allow(config.is_some_and(|c| c.detector));
        let selected = config.map(|c| self.kernel.selected(c)).unwrap_or_default();
        let mut segments: BTreeMap<IfIndex, (IfName, BTreeSet<IpNet>)> = BTreeMap::new();
        for link in selected.iter().filter_map(|index| self.kernel.link(*index)).filter(|l| l.usable()) {
            let own = self.kernel.others_on(link.index).filter(|a| !a.tentative && !a.dad_failed);
            let own: Vec<_> = own.collect();
            if own.iter().any(|a| !a.link_local) && self.detector.is_wanted() {
                let own = own.into_iter().map(|a| a.net).collect();
                segments.insert(link.index, (link.name.clone(), own));
            }
        }
        let listened: BTreeMap<IfIndex, IfName> =
            segments.iter().map(|(index, (name, _))| (*index, name.clone())).collect();
        if listened != self.segment.listened {
            self.segment.listened.clone_from(&listened);
            self.segment.unheard.retain(|index, _| listened.contains_key(index));
            self.segment.line.extend(self.demands.vips());
            self.out.push(Effect::Listen(listened));
        }
        self.detector.set_own_macs(self.kernel.links().filter_map(|link| link.mac).collect());
        let witnesses: Vec<_> =
            segments.iter().map(|(index, (_, own))| (*index, self.witnesses(*index, own))).collect();
        self.detector.set_segments(segments);
        for (index, witnesses) in witnesses {
            self.detector.set_witnesses(index, &witnesses);
        }
    }

    /// Gateways, and the nodes that come after ours by name: not everybody asks the same.
    fn witnesses(&self, index: IfIndex, own: &BTreeSet<IpNet>) -> BTreeMap<Vip, Option<NodeName>> {
        let me = &self.config.node;
        let mine = |ip: &IpAddr| own.iter().any(|net| net.addr() == *ip);
        let near = |ip: &&IpAddr| !mine(ip) && own.iter().any(|net| net.contains(*ip));
        let after = (Bound::Excluded(me.clone()), Bound::Unbounded);
        let nodes = self.nodes.range(after).chain(self.nodes.range(..me.clone()));
        let found = nodes.filter_map(|(name, node)| Some((name, node.addresses.iter().find(near)?)));
        let nodes = found.take(WITNESS_NODES).map(|(name, ip)| (Vip::new(*ip), Some(name.clone())));
        let mut witnesses: BTreeMap<Vip, Option<NodeName>> = nodes.collect();
        let gateways = self.kernel.gateways_on(index).filter(|ip| !mine(ip));
        witnesses.extend(gateways.map(|ip| (Vip::new(ip), None)));
        witnesses
    }

    /// Somebody's place in the elections changed, and so may ours in the lines behind it.
    pub(super) fn line_changed(&mut self, nodes: &BTreeSet<NodeName>) {
        if nodes.contains(&self.config.node) {
            self.segment.line.extend(self.demands.vips());
            return;
        }
        let behind = nodes.iter().filter_map(|node| self.segment.before_us.get(node));
        self.segment.line.extend(behind.flatten());
        self.segment.line.extend(self.detector.aimed());
    }

    fn set_behind(&mut self, vip: Vip, node: Option<NodeName>) {
        if let Some(before) = self.segment.behind.remove(&vip)
            && let Some(vips) = self.segment.before_us.get_mut(&before)
        {
            vips.remove(&vip);
            if vips.is_empty() {
                self.segment.before_us.remove(&before);
            }
        }
        if let Some(node) = node {
            self.segment.before_us.entry(node.clone()).or_default().insert(vip);
            self.segment.behind.insert(vip, node);
        }
    }

    /// Has the address's owner watched, if we are next in line.
    pub(super) fn aim(&mut self, now: Mono, vip: Vip) {
        self.set_behind(vip, None);
        let target = self.aim_target(now, vip);
        self.detector.aim(vip, target);
    }

    fn aim_target(&mut self, now: Mono, vip: Vip) -> Option<(IfIndex, NodeName)> {
        if !self.detector.works() && self.segment.early.is_empty() {
            return None;
        }
        let me = &self.config.node;
        let winner = self.election.winner(vip).filter(|winner| *winner != me)?.clone();
        let (name, _) = self.subnets.locate(now, vip)?;
        let index = self.kernel.link_named(name)?.index;
        if self.segment.early.get(&vip) == Some(&winner) {
            return Some((index, winner));
        }
        self.detector.works_on(index).ok()?;
        // It is given to the winner by somebody: a handoff, in which we have no part.
        let given = |node: &NodeName| node != me && *node != winner && self.candidacies.contains_key(node);
        if self.announced_by.get(&vip).is_some_and(|nodes| nodes.iter().any(given)) {
            return None;
        }
        // It does not say that it has it: it is about to put it there, or to put it back.
        let said = self.members.get(&winner).and_then(|member| member.facts().announced.as_ref());
        if said.is_some_and(|said| !said.contains(&vip)) {
            return None;
        }
        match self.election.place_without(vip, me, &winner) {
            LinePlace::Next => Some((index, winner)),
            LinePlace::Behind(node) => {
                self.set_behind(vip, Some(node));
                None
            }
            LinePlace::NoCandidate => None,
        }
    }

    /// Our own Lease lets us take what is a silent owner's.
    fn may_take_early(&self, now: Mono) -> bool {
        self.fence_cause(now).is_none() && self.confirmed().is_some() && !self.leaving()
    }

    /// Takes the address of a silent owner, or gives up what was taken (R12, R13).
    pub(super) fn consider_early(&mut self, now: Mono, vip: Vip, handoff: &mut Handoff) {
        self.aim(now, vip);
        let silent = self.detector.silent(vip);
        let winner = self.election.winner(vip).filter(|winner| **winner != self.config.node).cloned();
        match (self.segment.early.get(&vip), winner) {
            (Some(from), Some(winner)) if *from == winner => {
                if !silent {
                    self.segment.early.remove(&vip);
                    self.detector.took(vip, false);
                    self.counters.early_withdrawals += 1;
                    handoff.let_go();
                }
            }
            // Its Lease ran out, or another's address it is by now: that is for the others to decide.
            (Some(_), _) => {
                self.segment.early.remove(&vip);
                self.detector.took(vip, false);
            }
            (None, Some(winner)) if silent && self.may_take_early(now) => {
                self.segment.early.insert(vip, winner);
                self.detector.took(vip, true);
                self.counters.early_takeovers += 1;
            }
            (None, _) => {}
        }
    }

    /// Ours although its winner lives, as far as its Lease tells.
    pub(super) fn is_early(&self, vip: Vip) -> bool {
        self.segment.early.contains_key(&vip)
    }

    /// Somebody else says that it has what we hold (R13).
    fn heed_claim(&mut self, now: Mono, claim: &ClaimSighting) {
        let vip = claim.vip;
        let Some(state) = self.vips.get(&vip).filter(|state| state.is_claimed_here()) else { return };
        let winner = self.election.winner(vip);
        let by = claim.by.as_ref();
        if let Some(owner) = self.segment.early.get(&vip) {
            // Its owner, or nobody's: the detector knows, and the address is given up. Another
            // that took it as we did: of the two the better one stays.
            let text = vip.to_string();
            let worse = by.filter(|by| *by != owner).is_some_and(|by| {
                self.candidacies.contains_key(by)
                    && score(&self.config.node.to_string(), &text) < score(&by.to_string(), &text)
            });
            if worse {
                self.detector.keep_taken(vip);
                self.announce_once(now, claim);
            }
            return;
        }
        let lives = by.filter(|by| self.candidacies.contains_key(*by)).cloned();
        let Some(by) = lives else {
            // No member's, or that of one whose Lease has run out.
            if state.defended().is_none_or(|at| now >= at + CALL_BACK) {
                self.announce_once(now, claim);
            }
            return;
        };
        // Part of a handoff: to that one, or to us by somebody who still has it.
        let handed = winner != Some(&self.config.node)
            || state.giving_to().is_some()
            || !state.was_sole()
            || self.fence_cause(now).is_some();
        if handed {
            return;
        }
        match state.defended() {
            Some(at) if claim.at <= at + CROSSED => {}
            Some(at) if claim.at <= at + DEFENCE => self.give_way(now, claim, by),
            _ => self.announce_once(now, claim),
        }
    }

    /// Tells the segment that it is ours, in answer to a claim.
    fn announce_once(&mut self, now: Mono, claim: &ClaimSighting) {
        let (vip, index) = (claim.vip, claim.index);
        let Some(interface) = self.kernel.name_of(index).cloned() else { return };
        if let Some(state) = self.vips.get_mut(&vip) {
            state.defend(now);
        }
        self.counters.defences += 1;
        let id = self.id(InFlight::Announce { vip, first: false });
        let until = now + CALL_BACK;
        let until = self.fence.deadline().map_or(until, |fence| until.min(fence));
        self.out.push(Effect::Announce { id, vip, index, interface, until });
    }

    /// The one who claims it does not hear us, so it is not going to yield.
    fn give_way(&mut self, now: Mono, claim: &ClaimSighting, by: NodeName) {
        self.counters.yields += 1;
        if let Some(state) = self.vips.get_mut(&claim.vip) {
            state.let_go();
        }
        self.dirty.insert(claim.vip);
        self.detector.plead(claim.index, claim.vip, by.clone());
        self.segment.unheard.insert(claim.index, Unheard { by, since: now });
    }

    /// Where we hold an address, for the detector to listen for claims.
    pub(super) fn hold_on_segment(&mut self, vip: Vip, state: &VipState) {
        let shown = self.kernel.of_vip(vip).find(|a| a.ours && !a.tentative && !a.dad_failed);
        self.detector.hold(vip, shown.filter(|_| !state.is_remote()).map(|a| a.index));
    }

    pub(super) fn forget_on_segment(&mut self, vip: Vip) {
        self.set_behind(vip, None);
        self.segment.early.remove(&vip);
        self.detector.hold(vip, None);
        self.detector.aim(vip, None);
        self.detector.forget_duplicate(vip);
    }

    pub(super) fn segment_deadline(&self, now: Mono) -> Option<Mono> {
        let unheard = self.segment.unheard.values().map(|u| u.since + UNHEARD_LEAST).filter(|at| *at > now);
        self.detector.deadline().into_iter().chain(unheard).min()
    }
}
