//! Who waits for what: a release wakes those it could help, and nobody else. With a
//! thousand Services waiting for a full pool, one release is two decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use crate::ids::{Family, ObjectKey, Vip};
use crate::pools::{GroupName, SharingKey};

/// A Service's place in the order of creation.
pub(super) type ServiceTurn = (i64, ObjectKey);

/// What would help a Service that did not get all it asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AwaitedRelease {
    /// Any address of a family, of a group that has none left.
    Room(GroupName, Family),
    /// An address of one range or another (multi-pool): one that is refused says
    /// nothing about the others.
    More(GroupName),
    /// This very address, or a port on it.
    Address(Vip),
    /// An edit, a node or a provider: nothing another Service could free.
    Outside,
}

#[derive(Clone, Debug, Default)]
struct WaitingService {
    wants: Vec<AwaitedRelease>,
    key: Option<SharingKey>,
}

/// Everybody who waits.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingServices {
    waiters: BTreeMap<ServiceTurn, WaitingService>,
    by_want: BTreeMap<AwaitedRelease, BTreeSet<ServiceTurn>>,
    by_key: BTreeMap<SharingKey, BTreeSet<ServiceTurn>>,
    /// Groups with room, until somebody finds that there is none; and who was asked
    /// last.
    room: BTreeMap<(GroupName, Family), Option<ServiceTurn>>,
}

impl WaitingServices {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// From now on it waits for these; for nothing: it does not wait.
    pub(super) fn set(&mut self, turn: ServiceTurn, wants: Vec<AwaitedRelease>, key: Option<SharingKey>) {
        self.remove(&turn);
        if wants.is_empty() {
            return;
        }
        for want in &wants {
            self.by_want.entry(want.clone()).or_default().insert(turn.clone());
        }
        if let Some(key) = &key {
            self.by_key.entry(key.clone()).or_default().insert(turn.clone());
        }
        self.waiters.insert(turn, WaitingService { wants, key });
    }

    pub(super) fn remove(&mut self, turn: &ServiceTurn) {
        let Some(waiter) = self.waiters.remove(turn) else { return };
        for want in &waiter.wants {
            take_out(&mut self.by_want, want, turn);
        }
        if let Some(key) = &waiter.key {
            take_out(&mut self.by_key, key, turn);
        }
    }

    /// Something on an address was freed or changed: who wants the address. With
    /// `room`, it may be free altogether: who waits for its group is asked one by one.
    pub(super) fn freed(&mut self, ip: Vip, room: Option<&GroupName>) -> BTreeSet<ServiceTurn> {
        let mut awake = self.by_want.get(&AwaitedRelease::Address(ip)).cloned().unwrap_or_default();
        if let Some(group) = room {
            awake.extend(
                self.by_want.get(&AwaitedRelease::More(group.clone())).into_iter().flatten().cloned(),
            );
            if self.by_want.contains_key(&AwaitedRelease::Room(group.clone(), ip.family())) {
                self.room.insert((group.clone(), ip.family()), None);
            }
        }
        awake
    }

    /// Somebody with this key has an address now, which others with it may join.
    pub(super) fn shared(&self, key: &SharingKey) -> impl Iterator<Item = ServiceTurn> {
        self.by_key.get(key).into_iter().flatten().cloned()
    }

    /// Somebody asked for room and there was none.
    pub(super) fn no_room(&mut self, group: &GroupName, family: Family) {
        self.room.remove(&(group.clone(), family));
    }

    /// The oldest who waits for room there may be, and was not asked yet.
    pub(super) fn oldest(&mut self) -> Option<ServiceTurn> {
        self.room.retain(|place, asked| next_after(&self.by_want, place, asked.as_ref()).is_some());
        self.room.iter().filter_map(|(place, asked)| next_after(&self.by_want, place, asked.as_ref())).min()
    }

    /// It is asked now, and not again for what was free until now.
    pub(super) fn asked(&mut self, turn: &ServiceTurn) {
        for (place, asked) in &mut self.room {
            if next_after(&self.by_want, place, asked.as_ref()).as_ref() == Some(turn) {
                *asked = Some(turn.clone());
            }
        }
    }
}

fn next_after(
    by_want: &BTreeMap<AwaitedRelease, BTreeSet<ServiceTurn>>,
    (group, family): &(GroupName, Family),
    asked: Option<&ServiceTurn>,
) -> Option<ServiceTurn> {
    let waiters = by_want.get(&AwaitedRelease::Room(group.clone(), *family))?;
    let after = asked.map_or(Unbounded, Excluded);
    waiters.range((after, Unbounded)).next().cloned()
}

fn take_out<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ServiceTurn>>, key: &K, turn: &ServiceTurn) {
    if let Some(turns) = index.get_mut(key) {
        turns.remove(turn);
        if turns.is_empty() {
            index.remove(key);
        }
    }
}
