//! When the lifetime of an address has to be given anew, apart from the renewals of our
//! Lease that do it for every fenced one: after a failure, and for remote addresses that
//! were given a lifetime and no fence.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::kernel_state::AddrKey;
use crate::time::Mono;

/// After a failure, doubled with each further one.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(2);
/// For the kernel to answer, and to show what it did.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct RefreshEntry {
    at: Mono,
    failures: u32,
}

#[derive(Clone, Debug, Default)]
pub struct RefreshQueue {
    entries: BTreeMap<AddrKey, RefreshEntry>,
    queue: BTreeSet<(Mono, AddrKey)>,
}

impl RefreshQueue {
    fn set(&mut self, key: AddrKey, entry: Option<RefreshEntry>) {
        if let Some(known) = self.entries.remove(&key) {
            self.queue.remove(&(known.at, key));
        }
        if let Some(entry) = entry {
            self.entries.insert(key, entry);
            self.queue.insert((entry.at, key));
        }
    }

    /// Given at `now`, for so long: the next time is when a third of it is over.
    pub fn given(&mut self, now: Mono, key: AddrKey, lifetime: Duration) {
        self.set(key, Some(RefreshEntry { at: now + lifetime / 3, failures: 0 }));
    }

    /// Asked for at `now`: looked at again should no answer come.
    pub fn asked(&mut self, now: Mono, key: AddrKey) {
        let failures = self.entries.get(&key).map_or(0, |e| e.failures);
        self.set(key, Some(RefreshEntry { at: now + PATIENCE, failures }));
    }

    pub fn failed(&mut self, now: Mono, key: AddrKey) {
        let failures = self.entries.get(&key).map_or(0, |e| e.failures).saturating_add(1);
        let wait = RETRY_FIRST.saturating_mul(1 << (failures - 1).min(10)).min(RETRY_MOST);
        self.set(key, Some(RefreshEntry { at: now + wait, failures }));
    }

    /// Nothing to do about it any more.
    pub fn forget(&mut self, key: AddrKey) {
        self.set(key, None);
    }

    pub fn knows(&self, key: AddrKey) -> bool {
        self.entries.contains_key(&key)
    }

    /// What is due, each returned once. Failures stay counted until it is given.
    pub fn due(&mut self, now: Mono) -> Vec<AddrKey> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.queue.first().copied().filter(|(at, _)| *at <= now) {
            self.queue.remove(&(at, key));
            due.push(key);
        }
        due
    }

    pub fn next(&self) -> Option<Mono> {
        self.queue.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
