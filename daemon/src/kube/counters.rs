//! What the API server answered, and what we had to let go: for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::client::token_renewal::CredentialExpiry;

/// Only ever counts up.
#[derive(Debug, Default)]
pub struct KubeCounter(AtomicU64);

impl KubeCounter {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One per daemon, shared by all tasks of the Kubernetes side.
#[derive(Debug, Default)]
pub struct KubeCounters {
    /// Everything sent, watches included.
    pub requests: KubeCounter,

    /// Errors by kind.
    pub timeouts: KubeCounter,
    pub unreachable: KubeCounter,
    pub unauthorized: KubeCounter,
    pub forbidden: KubeCounter,
    pub conflicts: KubeCounter,
    pub throttled: KubeCounter,
    pub server_errors: KubeCounter,
    pub other_errors: KubeCounter,

    /// Complete listings applied as one replacement, the first ones included.
    pub lists: KubeCounter,
    /// Listings the engine asked for.
    pub relists_asked: KubeCounter,
    pub watches_opened: KubeCounter,
    /// Watches given up because nothing came, not even a bookmark.
    pub watches_idle: KubeCounter,
    /// Watches whose version the server no longer had.
    pub watches_stale: KubeCounter,
    /// Objects that could not be read; each was passed over.
    pub unreadable_objects: KubeCounter,
    /// Tasks that panicked and were started anew.
    pub task_panics: KubeCounter,
    /// Changes to the next endpoint, or to a fresh connection where there is only one.
    pub failovers: KubeCounter,
    /// Clients set up, with their keys and certificates: one per endpoint and purpose, and
    /// one more after silence or refused credentials.
    pub clients_made: KubeCounter,

    /// Requests of the engine for which a queue had no room.
    pub lease_drops: KubeCounter,
    pub slot_drops: KubeCounter,
    pub event_drops: KubeCounter,

    pub slots_written: KubeCounter,
    pub slot_failures: KubeCounter,
    pub events_written: KubeCounter,
    pub event_failures: KubeCounter,
    pub conditions_written: KubeCounter,

    /// When what we show the API server ends.
    pub credentials: CredentialExpiry,
}

impl KubeCounters {
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
