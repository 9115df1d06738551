//! The field of candidates: who stands for an address, and in which order.

use std::borrow::Cow;
use std::net::IpAddr;

use super::nodes::{Member, NodeId, Nodes};
use super::restriction::{Rule, Tier};
use super::score::{KeyText, Score};
use super::subnets::SubnetTable;

/// What a candidate is judged by: the tier first, then the score. Two nodes never tie,
/// since the same address with different names never hashes the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bid {
    pub(super) tier: Tier,
    pub(super) score: Score,
    pub(super) id: NodeId,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Field {
    pub(super) nodes: Nodes,
    /// The subnets that eligible members stand for.
    table: SubnetTable,
}

impl Field {
    /// Replaces a member, or removes it, and returns the one before it.
    pub(super) fn set_member(&mut self, id: NodeId, member: Option<Member>) -> Option<Member> {
        let new = member.as_ref().map_or(&[][..], Member::standing_for);
        let old = self.nodes.member(id).map_or(&[][..], Member::standing_for);
        for net in old.iter().filter(|net| new.binary_search(net).is_err()) {
            self.table.remove(net, id);
        }
        for net in new.iter().filter(|net| old.binary_search(net).is_err()) {
            self.table.insert(*net, id);
        }
        self.nodes.set_member(id, member)
    }

    /// Candidates of the address that the rule lets through, each once. Where the rule
    /// names the nodes it is the shorter list to start from.
    fn candidates<'a>(&'a self, ip: IpAddr, named: Option<&'a [NodeId]>) -> Cow<'a, [NodeId]> {
        let Some(named) = named else {
            return self.table.containing(ip);
        };
        let stands = |id: &&NodeId| self.nodes.member(**id).is_some_and(|m| m.is_candidate(ip));
        named.iter().filter(stands).copied().collect()
    }

    /// The winner, from nothing, and how many hashes that took: only candidates of the
    /// tier that decides are hashed.
    pub(super) fn best(&self, ip: IpAddr, key: &KeyText, rule: &Rule) -> (Option<Bid>, u64) {
        let only = rule.only.as_deref();
        let first =
            self.best_of(&self.candidates(ip, rule.prefer.as_deref().or(only)), Tier::First, key, rule);
        if first.0.is_some() || rule.prefer.is_none() {
            return first;
        }
        self.best_of(&self.candidates(ip, only), Tier::Fallback, key, rule)
    }

    fn best_of(&self, ids: &[NodeId], tier: Tier, key: &KeyText, rule: &Rule) -> (Option<Bid>, u64) {
        let mut best: Option<Bid> = None;
        let mut hashes = 0;
        for bid in self.bids(ids, key, rule, Some(tier)) {
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
        wanted: Option<Tier>,
    ) -> impl Iterator<Item = Bid> + 'a {
        ids.iter().filter_map(move |id| {
            let tier = rule.tier(*id)?;
            if wanted.is_some_and(|wanted| wanted != tier) {
                return None;
            }
            let score = self.nodes.member(*id)?.head.score(key);
            Some(Bid { tier, score, id: *id })
        })
    }

    /// Everyone who may win, best to worst.
    pub(super) fn order(&self, ip: IpAddr, key: &KeyText, rule: &Rule) -> Vec<Bid> {
        let ids = self.candidates(ip, rule.only.as_deref());
        let mut bids: Vec<Bid> = self.bids(&ids, key, rule, None).collect();
        bids.sort_unstable();
        bids
    }

    /// How many may win. Hashes nothing.
    pub(super) fn count(&self, ip: IpAddr, rule: &Rule) -> usize {
        self.candidates(ip, rule.only.as_deref()).len()
    }
}
