//! What a proxy did, for tests to read.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::embedded::Verb;

/// Everything a proxy did so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    pub connections: u64,
    /// Requests that reached the server, by verb and resource.
    pub forwarded: BTreeMap<(Verb, String), u64>,
    /// Requests answered in the server's place, by code.
    pub answered: BTreeMap<u16, u64>,
    pub delayed: u64,
    /// Connections broken before or after the server heard of the request.
    pub dropped: u64,
    pub lost_answers: u64,
    pub stalled: u64,
    /// Requests whose client left before it had an answer.
    pub abandoned: u64,
    pub watches_opened: u64,
    pub watches_dropped: u64,
    pub watches_expired: u64,
    /// Requests the proxy could not bring to the server: answered 502.
    pub unreachable: u64,
}

/// The counters while they are counted.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counters>);

impl Tally {
    pub(super) fn add(&self, count: impl FnOnce(&mut Counters)) {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn snapshot(&self) -> Counters {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
