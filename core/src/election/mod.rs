//! The winner of every VIP.
//!
//! Candidates are the live members that are not draining, advertise any subnet that
//! contains the address and have not declined it; a [`Restriction`] may narrow them. The
//! lowest [`Score`] wins, but nobody who ranks last wins over one who does not.
//! Who is live is decided elsewhere: this table is told, and answers.
//!
//! VIPs whose winner matters all the time are *tracked*: the standing winner and its
//! score are kept, and a change of one member touches only what it can change.
//!
//! ```text
//!  a member joins, or gains a subnet   hashed once per tracked VIP in there, compared with
//!                                      the score of the standing winner
//!  a member leaves, drains, or loses   only VIPs it was winning are decided anew, once per
//!  a subnet                            batch of changes
//!  a restriction changes               that VIP is decided anew
//! ```
//!
//! Everything iterates in a fixed order, so the same calls give the same answers and the
//! same lists of changes.

mod candidates;
mod node_table;
mod restriction;
mod score;
mod subnet_table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::rank::Rank;
use crate::{NodeName, Vip};
use candidates::{Bid, CandidateTable};
use node_table::{ElectionMember, NodeId};
use restriction::{NodeSets, Rule};
use score::{HashPrefix, KeyText};

pub use restriction::{CandidateTier, Restriction};
pub use score::{Score, score};

/// What a live member brings to the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// As advertised: host bits, duplicates and overlaps are fine.
    pub subnets: Vec<IpNet>,
    /// False for a member that is draining or otherwise out.
    pub eligible: bool,
    /// Addresses it wants no part in, whatever its subnets are.
    pub declined: BTreeSet<Vip>,
    pub rank: Rank,
}

/// One step of a batch, see [`Election::apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    Upsert(NodeName, Candidacy),
    Remove(NodeName),
}

/// A candidate with what it is judged by, in this order: rank, tier, then score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedCandidate {
    pub node: NodeName,
    pub score: Score,
    pub tier: CandidateTier,
    pub rank: Rank,
}

/// Where a node stands in the order of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinePlace {
    NoCandidate,
    Next,
    /// This one comes before it, and maybe others.
    Behind(NodeName),
}

/// A tracked VIP's winner is another one than when changes were last taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WinnerChange {
    pub vip: Vip,
    pub before: Option<NodeName>,
    pub after: Option<NodeName>,
}

#[derive(Clone, Debug)]
struct TrackedVip {
    key: KeyText,
    rule: Rule,
    standing: Option<Bid>,
    /// The standing winner is out, and a batch under way will decide anew.
    stale: bool,
}

/// The winner table over the live members.
#[derive(Clone, Debug, Default)]
pub struct Election {
    field: CandidateTable,
    sets: NodeSets,
    /// By address and not by `Vip`, because a walk over an IPv6 prefix needs its last
    /// address as it is, and as a `Vip` that may be an IPv4 address.
    tracked: BTreeMap<IpAddr, TrackedVip>,
    /// The winner at the last taking of changes, where it has changed since. Never more
    /// than the VIPs tracked then or now.
    before: BTreeMap<IpAddr, Option<NodeName>>,
    hashes: u64,
}

impl Election {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a live member, or replaces what it stands for.
    pub fn upsert_member(&mut self, node: NodeName, candidacy: Candidacy) {
        self.apply([MemberChange::Upsert(node, candidacy)]);
    }

    /// Takes out a member that is no longer live.
    pub fn remove_member(&mut self, node: &NodeName) {
        self.apply([MemberChange::Remove(node.clone())]);
    }

    /// Several members at once, as after a relist or when many Leases expire together:
    /// a VIP whose winner is out is decided once, at the end, and not once per member.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = MemberChange>) {
        let mut stale = Vec::new();
        let mut removed = Vec::new();
        for change in changes {
            match change {
                MemberChange::Upsert(node, candidacy) => {
                    let id = self.field.nodes.intern(&node);
                    let member = ElectionMember {
                        head: HashPrefix::of(node.as_str()),
                        subnets: subnet_table::clean(candidacy.subnets),
                        eligible: candidacy.eligible,
                        declined: candidacy.declined.iter().map(|vip| vip.ip()).collect(),
                        rank: candidacy.rank,
                    };
                    // Another rank is another candidate: what it won is open again, and what
                    // it did not win may be its now.
                    if self.field.nodes.member(id).is_some_and(|old| old.rank != member.rank) {
                        self.replace(id, None, &mut stale);
                    }
                    self.replace(id, Some(member), &mut stale);
                }
                MemberChange::Remove(node) => {
                    if let Some(id) = self.field.nodes.id(&node) {
                        self.replace(id, None, &mut stale);
                        removed.push(id);
                    }
                }
            }
        }
        for ip in stale {
            self.decide(ip);
        }
        // Only now: until decided, a standing winner may be one of the removed.
        for id in removed {
            self.field.nodes.release(id);
        }
    }

    fn replace(&mut self, id: NodeId, member: Option<ElectionMember>, stale: &mut Vec<IpAddr>) {
        let before = self.field.set_member(id, member);
        let old = before.as_ref().map_or(&[][..], ElectionMember::standing_for);
        let member = self.field.nodes.member(id);
        let new = member.map_or(&[][..], ElectionMember::standing_for);
        let none = BTreeSet::new();
        let declined_before = before.as_ref().map_or(&none, |m| &m.declined);
        let declined = member.map_or(&none, |m| &m.declined);
        for ip in declined.difference(declined_before) {
            if let Some(vip) = self.tracked.get_mut(ip)
                && !vip.stale
                && vip.standing.is_some_and(|standing| standing.id == id)
            {
                vip.stale = true;
                stale.push(*ip);
            }
        }
        for net in subnet_table::widest_missing(old, new) {
            for (ip, vip) in self.tracked.range_mut(net.network()..=net.broadcast()) {
                let wins = !vip.stale && vip.standing.is_some_and(|standing| standing.id == id);
                if wins && !subnet_table::contain(new, *ip) {
                    vip.stale = true;
                    stale.push(*ip);
                }
            }
        }
        let Some(member) = member else { return };
        let mut bid = |ip: IpAddr, vip: &mut TrackedVip| {
            let stood = subnet_table::contain(old, ip) && !declined_before.contains(&ip);
            if vip.stale || stood || !member.is_candidate(ip) {
                return;
            }
            let Some(tier) = vip.rule.tier(id) else { return };
            let judged = (member.rank, tier);
            if vip.standing.is_some_and(|standing| (standing.rank, standing.tier) < judged) {
                return;
            }
            self.hashes += 1;
            let score = member.head.score(&vip.key);
            let bid = Bid { rank: member.rank, tier, score, id };
            if vip.standing.is_none_or(|standing| bid < standing) {
                let winner = vip.standing.map(|standing| self.field.nodes.name(standing.id));
                self.before.entry(ip).or_insert_with(|| winner.cloned());
                vip.standing = Some(bid);
            }
        };
        for net in subnet_table::widest_missing(new, old) {
            for (ip, vip) in self.tracked.range_mut(net.network()..=net.broadcast()) {
                bid(*ip, vip);
            }
        }
        for ip in declined_before.difference(declined) {
            if let Some(vip) = self.tracked.get_mut(ip) {
                bid(*ip, vip);
            }
        }
    }

    fn decide(&mut self, ip: IpAddr) {
        let Some(vip) = self.tracked.get_mut(&ip) else {
            return;
        };
        let (standing, hashes) = self.field.best(ip, &vip.key, &vip.rule);
        self.hashes += hashes;
        vip.stale = false;
        let old = std::mem::replace(&mut vip.standing, standing);
        if old.map(|bid| bid.id) != standing.map(|bid| bid.id) {
            let winner = old.map(|bid| self.field.nodes.name(bid.id));
            self.before.entry(ip).or_insert_with(|| winner.cloned());
        }
    }

    /// Keeps the winner of a VIP from now on. Tracking it again replaces its restriction.
    pub fn track(&mut self, vip: Vip, restriction: &Restriction) {
        let ip = vip.ip();
        let rule = self.sets.rule(restriction, &mut self.field.nodes);
        match self.tracked.get_mut(&ip) {
            Some(known) if known.rule == rule => self.sets.release(rule, &mut self.field.nodes),
            Some(known) => {
                let old = std::mem::replace(&mut known.rule, rule);
                self.decide(ip);
                self.sets.release(old, &mut self.field.nodes);
            }
            None => {
                let fresh = TrackedVip { key: KeyText::of(ip), rule, standing: None, stale: false };
                self.tracked.insert(ip, fresh);
                self.decide(ip);
            }
        }
    }

    /// Forgets a VIP: from now on it has no standing winner.
    pub fn untrack(&mut self, vip: Vip) {
        let Some(known) = self.tracked.remove(&vip.ip()) else {
            return;
        };
        let winner = known.standing.map(|bid| self.field.nodes.name(bid.id).clone());
        if self.before.entry(vip.ip()).or_insert(winner).is_none() {
            self.before.remove(&vip.ip());
        }
        self.sets.release(known.rule, &mut self.field.nodes);
    }

    /// What changed since the last call, by address: one entry per VIP, none for a winner
    /// that came back meanwhile. A VIP that is not tracked counts as one without a winner.
    pub fn take_changes(&mut self) -> Vec<WinnerChange> {
        let before = std::mem::take(&mut self.before);
        let change = |(ip, before)| {
            let vip = Vip::new(ip);
            let after = self.winner(vip).cloned();
            WinnerChange { vip, before, after }
        };
        let all = before.into_iter().map(change);
        all.filter(|change| change.before != change.after).collect()
    }

    /// The standing winner of a tracked VIP; `None` also where it is not tracked.
    pub fn winner(&self, vip: Vip) -> Option<&NodeName> {
        let bid = self.tracked.get(&vip.ip())?.standing?;
        Some(self.field.nodes.name(bid.id))
    }

    /// The standing winner with its score and tier: `CandidateTier::Fallback` says that none of
    /// the preferred nodes is a candidate.
    pub fn standing(&self, vip: Vip) -> Option<RankedCandidate> {
        self.tracked.get(&vip.ip())?.standing.map(|bid| self.ranked(bid))
    }

    /// Tracked VIPs and their winners, by address.
    pub fn tracked(&self) -> impl Iterator<Item = (Vip, Option<&NodeName>)> {
        self.tracked.iter().map(|(ip, vip)| {
            let winner = vip.standing.map(|bid| self.field.nodes.name(bid.id));
            (Vip::new(*ip), winner)
        })
    }

    /// Tracked VIPs that a node wins, by address.
    pub fn won_by(&self, node: &NodeName) -> impl Iterator<Item = Vip> {
        let id = self.field.nodes.id(node);
        self.tracked
            .iter()
            .filter(move |(_, vip)| id.is_some() && vip.standing.map(|bid| bid.id) == id)
            .map(|(ip, _)| Vip::new(*ip))
    }

    /// The winner decided from nothing, under the VIP's restriction if it is tracked.
    pub fn elect(&self, vip: Vip) -> Option<RankedCandidate> {
        self.ask(vip, |ip, key, rule| self.field.best(ip, key, rule).0).map(|bid| self.ranked(bid))
    }

    /// Everyone who may win, best to worst, under the VIP's restriction if it is tracked.
    /// With a preference the preferred come first and the fallback after them: whoever is
    /// next in this list takes over when those before it are gone.
    pub fn order(&self, vip: Vip) -> Vec<RankedCandidate> {
        self.order_without(vip, &[])
    }

    /// The order as if these nodes were out.
    pub fn order_without(&self, vip: Vip, out: &[NodeName]) -> Vec<RankedCandidate> {
        let order = self.ask(vip, |ip, key, rule| self.field.order(ip, key, rule));
        let all = order.into_iter().map(|bid| self.ranked(bid));
        all.filter(|ranked| !out.contains(&ranked.node)).collect()
    }

    /// The order as if the VIP had this restriction.
    pub fn order_under(&self, vip: Vip, restriction: &Restriction) -> Vec<RankedCandidate> {
        let rule = Rule::passing(restriction, &self.field.nodes);
        let order = self.field.order(vip.ip(), &KeyText::of(vip.ip()), &rule);
        order.into_iter().map(|bid| self.ranked(bid)).collect()
    }

    /// Could anybody have it, were it not restricted? Hashes nothing.
    pub fn has_candidates(&self, vip: Vip) -> bool {
        self.field.count(vip.ip(), &Rule::default()) > 0
    }

    /// Where a node would stand were the other out, under the VIP's restriction if it is tracked.
    /// Looks no further than the first that comes before it.
    pub fn place_without(&self, vip: Vip, node: &NodeName, out: &NodeName) -> LinePlace {
        let (Some(id), out) = (self.field.nodes.id(node), self.field.nodes.id(out)) else {
            return LinePlace::NoCandidate;
        };
        let before = self.ask(vip, |ip, key, rule| self.field.before(ip, key, rule, id, out));
        match before {
            None => LinePlace::NoCandidate,
            Some(None) => LinePlace::Next,
            Some(Some(other)) => LinePlace::Behind(self.field.nodes.name(other).clone()),
        }
    }

    /// How many may win: the length of [`Election::order`].
    pub fn candidates(&self, vip: Vip) -> usize {
        self.ask(vip, |ip, _, rule| self.field.count(ip, rule))
    }

    /// Some would be candidates, and each of them has declined the VIP.
    pub fn all_declined(&self, vip: Vip) -> bool {
        self.ask(vip, |ip, _, rule| self.field.count(ip, rule) == 0 && self.field.anybody(ip, rule))
    }

    /// Eligible members per advertised subnet. A subnet that only draining members
    /// advertise is there with 0, since that is the one to be alarmed about.
    pub fn candidates_by_subnet(&self) -> BTreeMap<IpNet, usize> {
        let mut counts = BTreeMap::new();
        for (_, member) in self.field.nodes.members() {
            for net in &member.subnets {
                *counts.entry(*net).or_default() += usize::from(member.eligible);
            }
        }
        counts
    }

    /// Hashes spent on keeping standing winners, since the start. Questions that keep
    /// nothing are not counted.
    pub fn hashes(&self) -> u64 {
        self.hashes
    }

    fn ask<T>(&self, vip: Vip, question: impl FnOnce(IpAddr, &KeyText, &Rule) -> T) -> T {
        match self.tracked.get(&vip.ip()) {
            Some(known) => question(vip.ip(), &known.key, &known.rule),
            None => question(vip.ip(), &KeyText::of(vip.ip()), &Rule::default()),
        }
    }

    fn ranked(&self, bid: Bid) -> RankedCandidate {
        let Bid { rank, tier, score, id } = bid;
        RankedCandidate { node: self.field.nodes.name(id).clone(), score, tier, rank }
    }
}

#[cfg(test)]
mod tests;
