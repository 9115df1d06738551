//! When to look at which Service again. A turn of the loop costs what is due, not what
//! is noted: a thousand entries are not gone through for every write.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use purelb_core::ObjectKey;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// At most one entry per Service.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    order: BTreeSet<(Instant, ObjectKey)>,
    at: HashMap<ObjectKey, Instant>,
}

impl Agenda {
    /// Notes it for then, instead of whenever it was noted before.
    pub(super) fn set(&mut self, key: &ObjectKey, at: Instant) {
        self.remove(key);
        self.at.insert(key.clone(), at);
        self.order.insert((at, key.clone()));
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(at) = self.at.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// What is due, taken off.
    pub(super) fn due(&mut self, now: Instant) -> Vec<ObjectKey> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.order.first()
            && *at <= now
            && let Some((_, key)) = self.order.pop_first()
        {
            self.at.remove(&key);
            due.push(key);
        }
        due
    }
}

/// The next attempt after something failed.
#[derive(Debug, Default)]
pub(super) struct Retries {
    agenda: Agenda,
    failures: HashMap<ObjectKey, u32>,
}

impl Retries {
    /// Each failure in a row doubles the wait.
    pub(super) fn failed(&mut self, key: &ObjectKey, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = FIRST.saturating_mul(1 << (*failures).min(10)).min(LONGEST);
        *failures = failures.saturating_add(1);
        self.agenda.set(key, now + wait);
    }

    pub(super) fn succeeded(&mut self, key: &ObjectKey) {
        if self.failures.remove(key).is_some() {
            self.agenda.remove(key);
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.agenda.next()
    }

    pub(super) fn due(&mut self, now: Instant) -> Vec<ObjectKey> {
        self.agenda.due(now)
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

    #[test]
    fn a_later_note_replaces_an_earlier_one() {
        let mut agenda = Agenda::default();
        let (a, b) = (ObjectKey::new("ns/a").unwrap(), ObjectKey::new("ns/b").unwrap());
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        agenda.set(&a, at(1));
        agenda.set(&b, at(2));
        agenda.set(&a, at(3));
        assert_eq!(agenda.due(at(2)), std::slice::from_ref(&b));
        assert_eq!(agenda.next(), Some(at(3)));
        assert_eq!(agenda.due(at(9)), std::slice::from_ref(&a));
        assert!(agenda.order.is_empty() && agenda.at.is_empty(), "{agenda:?}");
    }
}
