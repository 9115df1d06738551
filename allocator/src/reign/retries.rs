//! When to look at a Service again after something failed.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use purelb_core::ObjectKey;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// At most one entry per Service.
#[derive(Debug, Default)]
pub(super) struct Retries {
    at: BTreeSet<(Instant, ObjectKey)>,
    failures: HashMap<ObjectKey, u32>,
}

impl Retries {
    /// The next attempt: each failure in a row doubles the wait.
    pub(super) fn failed(&mut self, key: &ObjectKey, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = FIRST.saturating_mul(1 << (*failures).min(10)).min(LONGEST);
        *failures = failures.saturating_add(1);
        self.at.retain(|(_, other)| other != key);
        self.at.insert((now + wait, key.clone()));
    }

    pub(super) fn succeeded(&mut self, key: &ObjectKey) {
        if self.failures.remove(key).is_some() {
            self.at.retain(|(_, other)| other != key);
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.at.first().map(|(at, _)| *at)
    }

    pub(super) fn due(&mut self, now: Instant) -> Vec<ObjectKey> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.at.first()
            && *at <= now
            && let Some((_, key)) = self.at.pop_first()
        {
            due.push(key);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end_with_success() {
        let mut retries = Retries::default();
        let key = ObjectKey::new("ns/a").unwrap();
        let now = Instant::now();
        for wait in [100, 200, 400] {
            retries.failed(&key, now);
            assert_eq!(retries.next(), Some(now + Duration::from_millis(wait)));
        }
        assert!(retries.due(now).is_empty());
        assert_eq!(retries.due(now + Duration::from_millis(400)), std::slice::from_ref(&key));
        for _ in 0..20 {
            retries.failed(&key, now);
        }
        assert_eq!(retries.next(), Some(now + LONGEST));
        retries.succeeded(&key);
        assert_eq!(retries.next(), None);
    }
}
