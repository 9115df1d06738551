//! What the API server answered, and what we had to let go: for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::renewal::Expiry;

/// Only ever counts up.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One per daemon, shared by all tasks of the Kubernetes side.
#[derive(Debug, Default)]
pub struct Counters {
    /// Everything sent, watches included.
    pub requests: Count,

    /// Errors by kind.
    pub timeouts: Count,
    pub unreachable: Count,
    pub unauthorized: Count,
    pub forbidden: Count,
    pub conflicts: Count,
    pub throttled: Count,
    pub server_errors: Count,
    pub other_errors: Count,

    /// Complete listings applied as one replacement, the first ones included.
    pub lists: Count,
    /// Listings the engine asked for.
    pub relists_asked: Count,
    pub watches_opened: Count,
    /// Watches given up because nothing came, not even a bookmark.
    pub watches_idle: Count,
    /// Watches whose version the server no longer had.
    pub watches_stale: Count,
    /// Objects that could not be read; each was passed over.
    pub unreadable_objects: Count,
    /// Tasks that panicked and were started anew.
    pub task_panics: Count,
    /// Changes to the next endpoint, or to a fresh connection where there is only one.
    pub failovers: Count,
    /// Clients set up, with their keys and certificates: one per endpoint and purpose, and
    /// one more after silence or refused credentials.
    pub clients_made: Count,

    /// Requests of the engine for which a queue had no room.
    pub lease_drops: Count,
    pub slot_drops: Count,
    pub event_drops: Count,

    pub slots_written: Count,
    pub slot_failures: Count,
    pub events_written: Count,
    pub event_failures: Count,
    pub conditions_written: Count,

    /// When what we show the API server ends.
    pub credentials: Expiry,
}

impl Counters {
    /// Failed requests by kind.
    pub fn errors(&self) -> [(&'static str, u64); 8] {
        [
            ("timeout", self.timeouts.get()),
            ("unreachable", self.unreachable.get()),
            ("unauthorized", self.unauthorized.get()),
            ("forbidden", self.forbidden.get()),
            ("conflict", self.conflicts.get()),
            ("throttled", self.throttled.get()),
            ("server", self.server_errors.get()),
            ("other", self.other_errors.get()),
        ]
    }

    /// Every other count but the drops, by the name it has in metrics.
    pub fn all(&self) -> [(&'static str, u64); 14] {
        [
            ("requests", self.requests.get()),
            ("lists", self.lists.get()),
            ("relists_asked", self.relists_asked.get()),
            ("watches_opened", self.watches_opened.get()),
            ("watches_idle", self.watches_idle.get()),
            ("watches_stale", self.watches_stale.get()),
            ("unreadable_objects", self.unreadable_objects.get()),
            ("task_panics", self.task_panics.get()),
            ("failovers", self.failovers.get()),
            ("slots_written", self.slots_written.get()),
            ("slot_failures", self.slot_failures.get()),
            ("events_written", self.events_written.get()),
            ("event_failures", self.event_failures.get()),
            ("conditions_written", self.conditions_written.get()),
        ]
    }
}
