//! Deadlines of single addresses, and of the links, in one queue.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Vip;
use crate::time::Mono;

#[derive(Clone, Debug, Default)]
pub struct DeadlineQueue {
    at: BTreeMap<Vip, Mono>,
    queue: BTreeSet<(Mono, Vip)>,
    links: Option<Mono>,
}

impl DeadlineQueue {
    /// Replaces the address's deadline.
    pub fn set(&mut self, vip: Vip, at: Option<Mono>) {
        if let Some(known) = self.at.remove(&vip) {
            self.queue.remove(&(known, vip));
        }
        if let Some(at) = at {
            self.at.insert(vip, at);
            self.queue.insert((at, vip));
        }
    }

    /// The address is looked at by `at`, whatever else it waits for.
    pub fn no_later(&mut self, vip: Vip, at: Mono) {
        let at = self.at.get(&vip).map_or(at, |known| at.min(*known));
        self.set(vip, Some(at));
    }

    /// Addresses whose deadline has passed; each is returned once.
    pub fn due(&mut self, now: Mono) -> BTreeSet<Vip> {
        let mut due = BTreeSet::new();
        while let Some((at, vip)) = self.queue.first().copied().filter(|(at, _)| *at <= now) {
            self.queue.remove(&(at, vip));
            self.at.remove(&vip);
            due.insert(vip);
        }
        due
    }

    pub fn set_links(&mut self, at: Option<Mono>) {
        self.links = at;
    }

    pub fn links_due(&self, now: Mono) -> bool {
        self.links.is_some_and(|at| at <= now)
    }

    pub fn next(&self) -> Option<Mono> {
        let vip = self.queue.first().map(|(at, _)| *at);
        [vip, self.links].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vip(last: u8) -> Vip {
        Vip::new(std::net::IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn each_address_has_one_deadline_and_wakes_once() {
        let ms = Mono::from_millis;
        let mut wake = DeadlineQueue::default();
        wake.set(vip(1), Some(ms(10)));
        wake.set(vip(2), Some(ms(20)));
        wake.set(vip(1), Some(ms(30)));
        assert_eq!(wake.next(), Some(ms(20)));
        assert_eq!(wake.due(ms(25)), BTreeSet::from([vip(2)]));
        assert_eq!(wake.due(ms(30)), BTreeSet::from([vip(1)]));
        assert_eq!((wake.due(ms(99)), wake.next()), (BTreeSet::new(), None));
        wake.set(vip(1), Some(ms(5)));
        wake.set(vip(1), None);
        assert_eq!(wake.next(), None);
        wake.no_later(vip(1), ms(8));
        wake.no_later(vip(1), ms(9));
        assert_eq!(wake.next(), Some(ms(8)));
        wake.no_later(vip(1), ms(7));
        assert_eq!((wake.next(), wake.due(ms(99))), (Some(ms(7)), BTreeSet::from([vip(1)])));
    }

    #[test]
    fn links_have_a_deadline_of_their_own() {
        let mut wake = DeadlineQueue::default();
        wake.set_links(Some(Mono::from_millis(7)));
        assert_eq!(wake.next(), Some(Mono::from_millis(7)));
        assert!(wake.links_due(Mono::from_millis(7)) && !wake.links_due(Mono::from_millis(6)));
    }
}
