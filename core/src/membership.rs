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
    /// Heard of since we look: not merely found in a first listing, which may be the
    /// Lease of a node that died long ago.
    heard: bool,
    /// Since when this instance writes it, as far as we saw.
    since: Mono,
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

    /// Never live, whatever else is known.
    pub fn absurd(&self) -> bool {
        self.lasts.is_zero()
    }

    pub fn heard(&self) -> bool {
        self.heard
    }

    /// Until then it may believe in peers that died before it started: it found their
    /// Leases when it looked first, and has to wait for them to expire.
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
}

/// Zero, negative: never live. A year: counted as the longest we accept, or one
/// absurd Lease would keep a dead node's addresses from everybody.
fn duration_of(facts: &LeaseFacts) -> Duration {
    u64::try_from(facts.duration_seconds).map_or(Duration::ZERO, Duration::from_secs).min(LONGEST_LEASE)
}

impl Membership {
    /// A Lease was seen. One of a node not known before counts from now: nothing
    /// tells us how old it is, and to count it as dead could make two owners.
    pub fn observe(&mut self, now: Mono, facts: LeaseFacts) {
        self.take(now, facts, true);
    }

    fn take(&mut self, now: Mono, facts: LeaseFacts, event: bool) {
        let lasts = duration_of(&facts);
        let node = facts.node.clone();
        let Some(known) = self.members.get_mut(&node) else {
            let member = Member { facts, seen: now, lasts, heard: event, since: now };
            self.expiries.insert((member.expires(), node.clone()));
            self.members.insert(node, member);
            return;
        };
        self.expiries.remove(&(known.expires(), node.clone()));
        let renewed = known.facts.renewal != facts.renewal || known.facts.instance != facts.instance;
        if known.facts.instance != facts.instance {
            known.since = now;
        }
        known.facts = facts;
        if renewed {
            known.lasts = lasts;
            self.evidence(now, &node, Evidence::LeaseChanged);
        } else {
            // Somebody's edit: it may shorten a life, never lengthen it.
            known.lasts = known.lasts.min(lasts);
            self.expiries.insert((known.expires(), node));
        }
    }

    /// A complete listing: who is not in it is gone.
    pub fn replace(&mut self, now: Mono, all: Vec<LeaseFacts>) {
        let listed: BTreeSet<&NodeName> = all.iter().map(|facts| &facts.node).collect();
        let gone: Vec<NodeName> = self.members.keys().filter(|n| !listed.contains(n)).cloned().collect();
        gone.iter().for_each(|node| self.remove(node));
        for facts in all {
            self.take(now, facts, false);
        }
    }

    /// Deleted: its holder left after withdrawing, or its Node is no more. Either
    /// way there is nothing to wait for.
    pub fn remove(&mut self, node: &NodeName) {
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
