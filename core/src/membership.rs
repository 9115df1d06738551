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

use std::collections::BTreeMap;
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
}

/// All Leases known, live or not. Expired ones stay until their Lease is deleted:
/// the next change of the mark brings the node back.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    members: BTreeMap<NodeName, Member>,
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
        let lasts = duration_of(&facts);
        let node = facts.node.clone();
        let Some(known) = self.members.get_mut(&node) else {
            self.members.insert(node, Member { facts, seen: now, lasts });
            return;
        };
        let renewed = known.facts.renewal != facts.renewal || known.facts.instance != facts.instance;
        known.facts = facts;
        if renewed {
            known.lasts = lasts;
            self.evidence(now, &node, Evidence::LeaseChanged);
        } else {
            // Somebody's edit: it may shorten a life, never lengthen it.
            known.lasts = known.lasts.min(lasts);
        }
    }

    /// A complete listing: who is not in it is gone.
    pub fn replace(&mut self, now: Mono, all: Vec<LeaseFacts>) {
        let mut kept = BTreeMap::new();
        for facts in &all {
            if let Some((node, member)) = self.members.remove_entry(&facts.node) {
                kept.insert(node, member);
            }
        }
        self.members = kept;
        for facts in all {
            self.observe(now, facts);
        }
    }

    /// Deleted: its holder left after withdrawing, or its Node is no more. Either
    /// way there is nothing to wait for.
    pub fn remove(&mut self, node: &NodeName) {
        self.members.remove(node);
    }

    pub fn evidence(&mut self, now: Mono, node: &NodeName, evidence: Evidence) {
        if let Some(member) = self.members.get_mut(node) {
            match evidence {
                Evidence::LeaseChanged => member.seen = now,
            }
        }
    }

    pub fn get(&self, node: &NodeName) -> Option<&Member> {
        self.members.get(node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&NodeName, &Member)> {
        self.members.iter()
    }

    pub fn live(&self, now: Mono) -> impl Iterator<Item = (&NodeName, &Member)> {
        self.members.iter().filter(move |(_, m)| m.live(now))
    }

    /// When the next live member expires, if nothing is heard of it.
    pub fn next_expiry(&self, now: Mono) -> Option<Mono> {
        self.live(now).map(|(_, m)| m.expires()).min()
    }
}

#[cfg(test)]
mod tests;
