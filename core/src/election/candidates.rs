//! The field of candidates: who stands for an address, and in which order.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::node_table::{ElectionMember, NodeId, NodeTable};
use super::restriction::{CandidateTier, Rule};
use super::score::{KeyText, Score};
use super::subnet_table::SubnetTable;
use crate::rank::Rank;

/// What a candidate is judged by: the rank first, then tier and score. Two nodes never tie,
/// since the same address with different names never hashes the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bid {
    pub(super) rank: Rank,
    pub(super) tier: CandidateTier,
    pub(super) score: Score,
    pub(super) id: NodeId,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CandidateTable {
    pub(super) nodes: NodeTable,
    /// The subnets that eligible members stand for.
    table: SubnetTable,
    /// Who has declined which address.
    declined: BTreeMap<IpAddr, BTreeSet<NodeId>>,
}

impl CandidateTable {
    /// Replaces a member, or removes it, and returns the one before it.
    pub(super) fn set_member(
        &mut self,
        id: NodeId,
        member: Option<ElectionMember>,
    ) -> Option<ElectionMember> {
        let new = member.as_ref().map_or(&[][..], ElectionMember::standing_for);
        let old = self.nodes.member(id).map_or(&[][..], ElectionMember::standing_for);
        for net in old.iter().filter(|net| new.binary_search(net).is_err()) {
            self.table.remove(net, id);
        }
        for net in new.iter().filter(|net| old.binary_search(net).is_err()) {
            self.table.insert(*net, id);
        }
        let none = BTreeSet::new();
        let declines = member.as_ref().map_or(&none, |m| &m.declined);
        let declined = self.nodes.member(id).map_or(&none, |m| &m.declined);
        for ip in declined.difference(declines) {
            if let Some(nodes) = self.declined.get_mut(ip) {
                nodes.remove(&id);
                if nodes.is_empty() {
                    self.declined.remove(ip);
                }
            }
        }
        for ip in declines.difference(declined) {
            self.declined.entry(*ip).or_default().insert(id);
        }
        self.nodes.set_member(id, member)
    }

    /// Candidates of the address that the rule lets through, each once. Where the rule
    /// names the nodes it is the shorter list to start from.
    fn candidates<'a>(&'a self, ip: IpAddr, named: Option<&'a [NodeId]>) -> Cow<'a, [NodeId]> {
        let Some(named) = named else {
            let all = self.table.containing(ip);
            return match self.declined.get(&ip) {
                None => all,
                Some(out) => all.iter().filter(|id| !out.contains(id)).copied().collect(),
            };
        };
        let stands = |id: &&NodeId| self.nodes.member(**id).is_some_and(|m| m.is_candidate(ip));
        named.iter().filter(stands).copied().collect()
    }

    /// The winner, from nothing, and how many hashes that took: only candidates of the
    /// rank and tier that decide are hashed.
    pub(super) fn best(&self, ip: IpAddr, key: &KeyText, rule: &Rule) -> (Option<Bid>, u64) {
        let only = rule.only.as_deref();
        let preferred = self.candidates(ip, rule.prefer.as_deref().or(only));
        for rank in [Rank::First, Rank::Last] {
            let first = self.best_of(&preferred, (rank, CandidateTier::First), key, rule);
            if first.0.is_some() {
                return first;
            }
            if rule.prefer.is_some() {
                let other =
                    self.best_of(&self.candidates(ip, only), (rank, CandidateTier::Fallback), key, rule);
                if other.0.is_some() {
                    return other;
                }
            }
        }
        (None, 0)
    }

    fn best_of(
        &self,
        ids: &[NodeId],
        judged: (Rank, CandidateTier),
        key: &KeyText,
        rule: &Rule,
    ) -> (Option<Bid>, u64) {
        let mut best: Option<Bid> = None;
        let mut hashes = 0;
        for bid in self.bids(ids, key, rule, Some(judged)) {
            hashes += 1;
            if best.is_none_or(|best| bid < best) {
                best = Some(bid);
            }
        }
        (best, hashes)
    }

    fn bids<'a>(
        &'a self,
        ids: &'a [NodeId],
        key: &'a KeyText,
        rule: &'a Rule,
        wanted: Option<(Rank, CandidateTier)>,
    ) -> impl Iterator<Item = Bid> + 'a {
        ids.iter().filter_map(move |id| {
            let tier = rule.tier(*id)?;
            let member = self.nodes.member(*id)?;
            if wanted.is_some_and(|wanted| wanted != (member.rank, tier)) {
                return None;
            }
            Some(Bid { rank: member.rank, tier, score: member.head.score(key), id: *id })
        })
    }

    /// Everyone who may win, best to worst.
    pub(super) fn order(&self, ip: IpAddr, key: &KeyText, rule: &Rule) -> Vec<Bid> {
        let ids = self.candidates(ip, rule.only.as_deref());
        let mut bids: Vec<Bid> = self.bids(&ids, key, rule, None).collect();
        bids.sort_unstable();
        bids
    }

    /// Somebody other than `out` who is better than the node: `None` if the node is no candidate.
    /// Where the search begins differs from address to address, so that not every address has
    /// the same node before us.
    pub(super) fn before(
        &self,
        ip: IpAddr,
        key: &KeyText,
        rule: &Rule,
        node: NodeId,
        out: Option<NodeId>,
    ) -> Option<Option<NodeId>> {
        let ids = self.candidates(ip, rule.only.as_deref());
        let mine = self.bids(&[node], key, rule, None).next().filter(|_| ids.contains(&node))?;
        let start = match ip {
            IpAddr::V4(ip) => usize::from(ip.octets()[3]),
            IpAddr::V6(ip) => usize::from(ip.octets()[15]),
        };
        let (head, tail) = ids.split_at(start % ids.len().max(1));
        let mut all = self.bids(tail, key, rule, None).chain(self.bids(head, key, rule, None));
        let better = |bid: &Bid| bid.id != node && Some(bid.id) != out && *bid < mine;
        let first = all.find(better);
        Some(first.map(|bid| bid.id))
    }

    /// How many may win. Hashes nothing.
    pub(super) fn count(&self, ip: IpAddr, rule: &Rule) -> usize {
        self.candidates(ip, rule.only.as_deref()).len()
    }

    /// Might somebody win, had nobody declined?
    pub(super) fn anybody(&self, ip: IpAddr, rule: &Rule) -> bool {
        self.table.containing(ip).iter().any(|id| rule.tier(*id).is_some())
    }

    #[cfg(test)]
    pub(super) fn declined(&self) -> usize {
        self.declined.len()
    }
}
