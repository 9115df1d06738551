//! Who takes part, as far as we can tell: Leases, Nodes, and what our own silence means.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::election::{Candidacy, MemberChange};
use crate::ids::NodeName;
use crate::membership::Member;
use crate::rank::Rank;
use crate::time::Mono;

use super::Engine;

impl Engine {
    /// Is this Node there, and not vouched to be down?
    pub(super) fn in_service(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|n| !n.out_of_service)
    }

    /// A Node vouched to be down stays so when it is deleted.
    pub(super) fn node_is_gone(&mut self, node: &NodeName) {
        if self.nodes.get(node).is_some_and(|n| n.out_of_service) {
            self.orphans.insert(node.clone(), Mono::ZERO);
        }
    }

    /// A peer without a Node: that was deleted, or never was. Its holder may be cut off and
    /// have what it lists until its own fence, so it counts until its Lease, as it was when
    /// we missed the Node, has run out. Renewals do not change that.
    fn update_orphan(&mut self, now: Mono, node: &NodeName) {
        match self.members.get(node) {
            Some(member) if !self.nodes.contains_key(node) => {
                let in_doubt = !member.live(now) && self.lives(now, member);
                let until = if in_doubt { member.expires_if_renewed(now) } else { member.expires() };
                self.orphans.entry(node.clone()).or_insert(until);
            }
            _ => {
                self.orphans.remove(node);
            }
        }
    }

    /// As with a Lease that has run out (see [`Self::lives`]) time alone does not tell: its Node may
    /// be there again, and we cut off from that news.
    fn may_serve(&self, now: Mono, node: &NodeName, member: &Member) -> bool {
        match self.orphans.get(node) {
            Some(until) => (now < *until || !self.looked_since(*until)) && member.lists_addresses(),
            None => self.in_service(node),
        }
    }

    /// Tells the election what changed of who takes part.
    pub(super) fn check_members(&mut self, now: Mono) {
        let mut changed = std::mem::take(&mut self.members_dirty);
        changed.extend(self.members.take_expired(now));
        changed.extend(self.orphans.iter().filter(|(_, until)| **until <= now).map(|(n, _)| n.clone()));
        let doubted = std::mem::take(&mut self.doubtful);
        changed.extend(doubted.iter().cloned());
        self.update_unranked(now, &mut changed);
        let mut changes = Vec::new();
        let mut other = std::mem::take(&mut self.learnt);
        let beside_older = !self.older.is_empty();
        for node in changed {
            self.snapshot_cache.members.insert(node.clone());
            if node != self.config.node {
                self.update_orphan(now, &node);
            }
            if node != self.config.node {
                let macs = self.members.get(&node).and_then(|m| m.facts().macs.as_ref());
                self.detector.set_member(&node, macs);
            }
            let candidacy = self.candidacy(now, &node);
            let expired = self.members.get(&node).is_some_and(|m| !m.live(now));
            let orphaned = self.orphans.get(&node).is_some_and(|until| *until <= now);
            let serves = candidacy.as_ref().is_some_and(|c| c.eligible);
            if node != self.config.node && (expired || (orphaned && serves)) {
                if candidacy.is_some() {
                    // A write of ours that comes back tells: not only when it is due.
                    if !doubted.contains(&node) {
                        self.lease.hurry(now);
                    }
                    self.doubtful.insert(node.clone());
                } else if self.members.get(&node).is_some_and(Member::is_gone) {
                    self.members.forget(&node);
                    self.orphans.remove(&node);
                }
            }
            let older = |m: &Member| m.facts().announced.is_none();
            if node != self.config.node && candidacy.is_some() && self.members.get(&node).is_some_and(older) {
                self.older.insert(node.clone());
            } else {
                self.older.remove(&node);
            }
            if self.candidacies.get(&node) == candidacy.as_ref() {
                continue;
            }
            other.insert(node.clone());
            match candidacy {
                Some(candidacy) => {
                    self.candidacies.insert(node.clone(), candidacy.clone());
                    changes.push(MemberChange::Upsert(node, candidacy));
                }
                None => {
                    self.candidacies.remove(&node);
                    changes.push(MemberChange::Remove(node));
                }
            }
        }
        // What a node that leaves offers depends on whether there are any, see `offered`.
        if beside_older == self.older.is_empty() && self.leaving() {
            self.mark_all_vips();
        }
        if !changes.is_empty() {
            self.election.apply(changes);
            self.snapshot_cache.candidates = true;
        }
        if !other.is_empty() {
            self.line_changed(&other);
            self.candidates_changed(now, &other);
        }
    }

    fn candidacy(&self, now: Mono, node: &NodeName) -> Option<Candidacy> {
        // Whether we live is for the fence to say, not for our own Lease as we see it.
        if *node == self.config.node {
            return self.own_candidacy(now);
        }
        let member = self.members.get(node).filter(|m| self.lives(now, m))?;
        let facts = member.facts();
        let eligible = facts.draining.is_none() && self.may_serve(now, node, member);
        Some(Candidacy {
            subnets: facts.subnets.iter().copied().collect(),
            eligible,
            declined: facts.declined.clone().unwrap_or_default(),
            rank: self.counted(facts.rank.unwrap_or_default()),
        })
    }

    /// A peer that we have not seen renew is dead only if we would have seen it: a write
    /// of ours, sent when its Lease had run out, came back through the same watch. Before
    /// that the silence may be our own, after a partition or a stalled watch, and it may
    /// well hold its addresses. And where our silence was everybody's, it gets a moment to
    /// be back as well (see `sight`).
    pub(super) fn lives(&self, now: Mono, member: &Member) -> bool {
        let end = member.expires();
        member.live(now)
            || (!member.absurd()
                && (!self.looked_since(end) || self.sight.excuses(end).is_some_and(|until| now < until)))
    }

    /// A write of ours sent at that time or later came back: what others had written by then has
    /// reached us.
    fn looked_since(&self, at: Mono) -> bool {
        self.lease.looked().is_some_and(|looked| looked >= at)
    }

    /// Who has run out as we saw it, and may well live: the silence may have been ours.
    pub(super) fn doubted(&self, now: Mono) -> BTreeSet<NodeName> {
        let in_doubt = |m: &Member| !m.live(now) && self.lives(now, m);
        self.members.iter().filter(|(_, m)| in_doubt(m)).map(|(n, _)| n.clone()).collect()
    }

    /// When somebody is to be looked at again, though nothing is heard of it.
    pub(super) fn members_deadline(&self, now: Mono) -> Option<Mono> {
        let excused = self.doubtful.iter().filter_map(|n| self.sight.excuses(self.members.get(n)?.expires()));
        excused.chain(self.orphans.values().copied()).filter(|at| *at > now).min()
    }

    /// Of our own subnets count those that the others know of and that are still
    /// there: a gain counts once it is written and came back to us, a loss at once (R8).
    fn own_candidacy(&self, now: Mono) -> Option<Candidacy> {
        let written = self.lease.written()?;
        let confirmed = self.confirmed()?;
        let advertised = self.subnets.advertised(now);
        let known = |s: &&IpNet| written.subnets.contains(s) && confirmed.subnets.contains(s);
        let subnets = advertised.iter().filter(known).copied().collect();
        // So with a drain that ended: until the Lease says so the others keep out
        // nobody but us, and we would be a second owner.
        let eligible = !self.leaving() && !self.lease_says_draining() && self.in_service(&self.config.node);
        // So with what we declined, and with what we take back of that.
        let mut declined = self.declined.clone();
        declined.extend(&written.declined);
        declined.extend(confirmed.declined.iter().flatten());
        // And so with the rank: to be last counts at once, to be first when all know it.
        let ranks = [self.rank.get(), written.rank, confirmed.rank.unwrap_or_default()];
        let rank = self.counted(ranks.into_iter().max().unwrap_or_default());
        Some(Candidacy { subnets, eligible, declined, rank })
    }

    /// The others take us for draining, or may: what we wrote last, or what came back.
    pub(super) fn lease_says_draining(&self) -> bool {
        let written = self.lease.written().is_some_and(|l| l.draining.is_some());
        written || self.lease.confirmed().is_some_and(|l| l.draining.is_some())
    }

    /// We are on our way out, or out: draining, stopping, or kept off by a label.
    pub(super) fn leaving(&self) -> bool {
        self.drain.is_some() || self.stop.is_some() || self.excluded()
    }

    /// Our Node carries the label that keeps load balancers off it, and we heed it.
    pub(super) fn excluded(&self) -> bool {
        let heeded = self.agents.current().is_none_or(|c| c.candidacy.exclude_label);
        heeded && self.nodes.get(&self.config.node).is_some_and(|n| n.excluded)
    }

    /// Decides where we rank ourselves by what the cluster says of our Node.
    pub(super) fn check_rank(&mut self, now: Mono) {
        if !self.unsynced.is_empty() {
            return;
        }
        let me = &self.config.node;
        let impaired = self.nodes.get(me).is_some_and(|n| n.impaired.is_some());
        if self.lease.written().is_none()
            && impaired
            && let Some(before) = self.lease.seen().and_then(|l| l.rank)
        {
            self.rank.resume(before);
        }
        let after = self.agents.current().and_then(|c| c.candidacy.last_after);
        let (candidacies, nodes) = (&self.candidacies, &self.nodes);
        let another_is_well = || {
            let mut others = candidacies.iter().filter(|(n, c)| *n != me && c.eligible);
            others.any(|(n, _)| nodes.get(n).is_some_and(|n| n.impaired.is_none()))
        };
        if self.rank.look(now, impaired, after, another_is_well) {
            self.members_dirty.insert(me.clone());
            self.mark_all_vips();
        }
    }

    /// A member that does not know ranks elects without them. The others have to do the
    /// same, or an address would be given to a node that never takes it.
    fn counted(&self, rank: Rank) -> Rank {
        if self.unranked.is_empty() { rank } else { Rank::First }
    }

    /// Keeps count of the members that do not know ranks; when ranks begin or cease to
    /// count, everyone who has one other than the first is looked at again.
    fn update_unranked(&mut self, now: Mono, changed: &mut BTreeSet<NodeName>) {
        let counted = self.unranked.is_empty();
        for node in changed.iter().filter(|n| **n != self.config.node) {
            let member = self.members.get(node).filter(|m| self.lives(now, m));
            if member.is_some_and(|m| m.facts().rank.is_none()) {
                self.unranked.insert(node.clone());
            } else {
                self.unranked.remove(node);
            }
        }
        if counted != self.unranked.is_empty() {
            let last = self.members.iter().filter(|(_, m)| m.facts().rank == Some(Rank::Last));
            changed.extend(last.map(|(n, _)| n.clone()));
            changed.insert(self.config.node.clone());
        }
    }
}
