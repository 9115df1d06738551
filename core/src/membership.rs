//! Who is alive, as far as we can tell from here (R2).
//!
//! ```text
//!   a Lease changed its renewal mark       it is live until
//!   ──────────┬──────────────────────────────────┬──────────▶ our clock
//!         seen here                      seen + duration
//! ```
//!
//! A peer lives for its Lease's duration counted from when WE saw evidence of life.
//! Seeing the same Lease again is no evidence; nor is an edit by somebody else, which
//! leaves the renewal mark as it was. What a wall clock somewhere says plays no part.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::LONGEST_LEASE;
use crate::facts::LeaseFacts;
use crate::ids::NodeName;
use crate::time::Mono;

/// Something that tells that a peer lives. A faster detector becomes a new variant;
/// the election does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Its Lease was seen to change.
    LeaseChanged,
}

#[derive(Clone, Debug)]
pub struct Member {
    facts: LeaseFacts,
    /// When evidence of life last reached us.
    seen: Mono,
    lasts: Duration,
    /// Its last renewal, as we saw it, said less than the one before.
    said_less: bool,
    /// Heard of since we look: not merely found in a first listing, which may be the
    /// Lease of a node that died long ago.
    heard: bool,
    /// Since when this instance writes it without having been dead in between, as far as
    /// we saw.
    since: Mono,
    /// Its Lease was deleted while it listed addresses.
    gone: bool,
}

impl Member {
    pub fn facts(&self) -> &LeaseFacts {
        &self.facts
    }

    pub fn expires(&self) -> Mono {
        self.seen + self.lasts
    }

    pub fn live(&self, now: Mono) -> bool {
        now < self.expires()
    }

    /// When it would expire, had it renewed just now.
    pub fn expires_if_renewed(&self, now: Mono) -> Mono {
        now + self.lasts
    }

    /// Never live, whatever else is known.
    pub fn absurd(&self) -> bool {
        self.lasts.is_zero()
    }

    /// When it was last heard of since we look. Not: one whose Lease is gone.
    pub fn heard(&self) -> Option<Mono> {
        Some(self.seen).filter(|_| self.heard && !self.gone)
    }

    /// It lists addresses that it may still have, should nobody reach it.
    pub fn lists_addresses(&self) -> bool {
        self.gone || self.facts.announced.as_ref().is_some_and(|a| !a.is_empty())
    }

    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Until then it may believe in peers that died before it started, or while it was
    /// away: it found their Leases when it looked first, and has to wait for them.
    pub fn knows_all_from(&self) -> Mono {
        self.since + self.lasts
    }
}

/// All Leases known, live or not. Expired ones stay until their Lease is deleted:
/// the next change of the mark brings the node back.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    members: BTreeMap<NodeName, Member>,
    /// Who expires when, as far as nobody was told of it yet: with a thousand nodes
    /// there are hundreds of renewals a second, and none may cost a look at everyone.
    expiries: BTreeSet<(Mono, NodeName)>,
    /// A Lease whose writer was not heard of yet counts for so long at least.
    least: Duration,
}

/// Zero, negative: never live. A year: counted as the longest we accept, or one
/// absurd Lease would keep a dead node's addresses from everybody.
pub fn duration_of(facts: &LeaseFacts) -> Duration {
    u64::try_from(facts.duration_seconds).map_or(Duration::ZERO, Duration::from_secs).min(LONGEST_LEASE)
}

impl Membership {
    /// `least`: our own duration. What a Lease says when we see it first may be somebody's
    /// edit, and its holder counts on what it wrote itself.
    pub fn new(least: Duration) -> Self {
        Self { least, ..Self::default() }
    }

    /// A Lease was seen. One of a node not known before counts from now: nothing
    /// tells us how old it is, and to count it as dead could make two owners.
    ///
    /// Returns whether it has learnt or forgotten something since: how to take an address
    /// over, or that addresses can be declined.
    pub fn observe(&mut self, now: Mono, facts: LeaseFacts) -> bool {
        let node = facts.node.clone();
        let before = self.knowledge_of(&node);
        self.take(now, facts, true);
        self.knowledge_of(&node) != before
    }

    fn knowledge_of(&self, node: &NodeName) -> Option<(bool, bool)> {
        self.members.get(node).map(|m| (m.facts.announced.is_some(), m.facts.declined.is_some()))
    }

    fn take(&mut self, now: Mono, facts: LeaseFacts, event: bool) {
        let lasts = duration_of(&facts);
        let node = facts.node.clone();
        let Some(known) = self.members.get_mut(&node) else {
            let lasts = lasts.max(self.least);
            let member =
                Member { facts, seen: now, lasts, said_less: false, heard: event, since: now, gone: false };
            self.expiries.insert((member.expires(), node.clone()));
            self.members.insert(node, member);
            return;
        };
        self.expiries.remove(&(known.expires(), node.clone()));
        let renewed = known.facts.renewal != facts.renewal || known.facts.instance != facts.instance;
        if known.facts.instance != facts.instance || (renewed && !known.live(now)) {
            known.since = now;
        }
        known.facts = facts;
        known.gone = false;
        if renewed {
            // A renewal and somebody's edit of it may reach us as one. The next renewal says again
            // what the holder counts on: less is believed when it is said twice.
            let less = lasts < known.lasts && !known.said_less;
            known.said_less = less;
            if !less {
                known.lasts = lasts;
            }
            self.evidence(now, &node, Evidence::LeaseChanged);
        } else {
            // Somebody's edit: it neither lengthens a life nor shortens it. The holder
            // counts on the duration it wrote itself.
            self.expiries.insert((known.expires(), node));
        }
    }

    /// A complete listing: who is not in it was deleted. `doubted`: see [`Self::deleted`].
    /// Returns whom [`Self::observe`] would return `true` for.
    pub fn replace(
        &mut self,
        now: Mono,
        all: Vec<LeaseFacts>,
        doubted: &BTreeSet<NodeName>,
    ) -> BTreeSet<NodeName> {
        let listed: BTreeSet<&NodeName> = all.iter().map(|facts| &facts.node).collect();
        let gone: Vec<NodeName> = self.members.keys().filter(|n| !listed.contains(n)).cloned().collect();
        gone.iter().for_each(|node| self.deleted(now, node, doubted.contains(node)));
        let mut learnt = BTreeSet::new();
        for facts in all {
            let node = facts.node.clone();
            let before = self.knowledge_of(&node);
            self.take(now, facts, false);
            if self.knowledge_of(&node) != before {
                learnt.insert(node);
            }
        }
        learnt
    }

    /// Its Lease is deleted. Who leaves lists no address by then, and there is nothing to
    /// wait for. With addresses in it somebody else took it away: its holder may be cut off
    /// and have them until its own fence, so it counts for as long as the Lease would have.
    ///
    /// `doubted`: it has run out as we saw it, but the silence may have been ours. When it was
    /// last renewed is not known then, and it counts from now.
    pub fn deleted(&mut self, now: Mono, node: &NodeName, doubted: bool) {
        match self.members.get_mut(node) {
            Some(member) if (member.live(now) || doubted) && member.lists_addresses() => {
                // Once: to a listing that comes again and again it is as gone as before.
                if !member.live(now) && !member.gone {
                    self.expiries.remove(&(member.expires(), node.clone()));
                    member.seen = now;
                    self.expiries.insert((member.expires(), node.clone()));
                }
                member.gone = true;
                // Nobody says so any more.
                member.facts.announced = Some(BTreeSet::new());
            }
            _ => self.forget(node),
        }
    }

    /// As if it had never been.
    pub fn forget(&mut self, node: &NodeName) {
        if let Some(member) = self.members.remove(node) {
            self.expiries.remove(&(member.expires(), node.clone()));
        }
    }

    pub fn evidence(&mut self, now: Mono, node: &NodeName, evidence: Evidence) {
        if let Some(member) = self.members.get_mut(node) {
            self.expiries.remove(&(member.expires(), node.clone()));
            match evidence {
                Evidence::LeaseChanged => member.seen = now,
            }
            member.heard = true;
            self.expiries.insert((member.expires(), node.clone()));
        }
    }

    pub fn get(&self, node: &NodeName) -> Option<&Member> {
        self.members.get(node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&NodeName, &Member)> {
        self.members.iter()
    }

    /// Who has expired by now and was not returned before.
    pub fn take_expired(&mut self, now: Mono) -> Vec<NodeName> {
        let mut expired = Vec::new();
        while let Some((at, _)) = self.expiries.first()
            && *at <= now
            && let Some((_, node)) = self.expiries.pop_first()
        {
            expired.push(node);
        }
        expired
    }

    /// When the next member expires, if nothing is heard of it.
    pub fn next_expiry(&self) -> Option<Mono> {
        self.expiries.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
