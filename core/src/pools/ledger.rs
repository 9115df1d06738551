//! Who holds which address. Knows nothing of groups' ranges, so that no edit of a
//! group can take an address away.

use std::collections::{BTreeMap, BTreeSet};

use super::group::GroupName;
use super::sharing_terms::{PodSet, Port, SharingKey, SharingTerms};
use super::span::{Span, address, number};
use crate::ids::{Family, ObjectKey, Vip};

/// One Service's hold on one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressClaim {
    /// The group it was allocated from, where that is known.
    pub group: Option<GroupName>,
    pub terms: SharingTerms,
}

/// Services on one address that have not agreed to share it. Comes from outside
/// only: adopted that way, or ports edited later. Never from an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingConflict {
    pub ip: Vip,
    pub services: Vec<ObjectKey>,
    pub clash: SharingClash,
}

/// What they do not agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharingClash {
    /// Their sharing keys differ.
    Keys,
    /// Several of them use it.
    Port(Port),
    /// Their traffic must stay on the node it arrives at, and their pods differ.
    Pods,
}

/// What stands between a Service and an address.
pub(super) enum SharingObstacle {
    Held { by: ObjectKey },
    Port { port: Port, by: ObjectKey },
    Pods { by: ObjectKey },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Address {
    holders: BTreeMap<ObjectKey, AddressClaim>,
    /// Counts over the holders, so that joining an address shared by thousands does
    /// not walk through them.
    keys: BTreeMap<Option<SharingKey>, usize>,
    ports: BTreeMap<Port, usize>,
    pods: BTreeMap<PodSet, usize>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// By family and number, not by `Vip`: the edge of a wide IPv6 range may be an
    /// IPv4-mapped number, and as a `Vip` it would sort among the IPv4 addresses.
    held: BTreeMap<(Family, u128), Address>,
    by_service: BTreeMap<ObjectKey, BTreeSet<Vip>>,
    by_key: BTreeMap<SharingKey, BTreeMap<Vip, usize>>,
    by_group: BTreeMap<GroupName, BTreeMap<Vip, usize>>,
}

pub(super) fn slot(ip: Vip) -> (Family, u128) {
    (ip.family(), number(ip.ip()))
}

fn vip((family, n): (Family, u128)) -> Vip {
    Vip::new(address(family, n))
}

fn count_up<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    *counts.entry(key).or_default() += 1;
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn count_down_in<K: Ord>(index: &mut BTreeMap<K, BTreeMap<Vip, usize>>, key: &K, ip: Vip) {
    if let Some(counts) = index.get_mut(key) {
        count_down(counts, &ip);
        if counts.is_empty() {
            index.remove(key);
        }
    }
}

impl Address {
    pub(super) fn holders(&self) -> &BTreeMap<ObjectKey, AddressClaim> {
        &self.holders
    }

    fn other_with(&self, service: &ObjectKey, found: impl Fn(&SharingTerms) -> bool) -> Option<&ObjectKey> {
        let mut others = self.holders.iter().filter(|(holder, _)| *holder != service);
        others.find(|(_, claim)| found(&claim.terms)).map(|(holder, _)| holder)
    }

    fn obstacle(&self, service: &ObjectKey, terms: &SharingTerms) -> Option<SharingObstacle> {
        let own = self.holders.get(service).map(|claim| &claim.terms);
        let others = self.holders.len() - usize::from(own.is_some());
        if others == 0 {
            return None;
        }
        let same_key = match &terms.sharing {
            None => 0,
            key => {
                let all = self.keys.get(key).copied().unwrap_or(0);
                all - usize::from(own.is_some_and(|own| own.sharing == *key))
            }
        };
        if same_key < others {
            let by =
                self.other_with(service, |other| terms.sharing.is_none() || other.sharing != terms.sharing)?;
            return Some(SharingObstacle::Held { by: by.clone() });
        }
        let taken = terms.ports.iter().copied().find(|port| {
            let all = self.ports.get(port).copied().unwrap_or(0);
            all > usize::from(own.is_some_and(|own| own.ports.contains(port)))
        });
        if let Some(port) = taken {
            let by = self.other_with(service, |other| other.ports.contains(&port))?;
            return Some(SharingObstacle::Port { port, by: by.clone() });
        }
        self.other_pods(service, terms).map(|by| SharingObstacle::Pods { by })
    }

    /// Somebody here whose traffic must stay on the node, and who has other pods.
    pub(super) fn other_pods(&self, service: &ObjectKey, terms: &SharingTerms) -> Option<ObjectKey> {
        let pods = terms.pods.as_ref()?;
        if self.pods.keys().all(|here| here == pods) {
            return None;
        }
        let differs = |other: &SharingTerms| other.pods.as_ref().is_some_and(|other| other != pods);
        self.other_with(service, differs).cloned()
    }

    fn conflict(&self, ip: Vip) -> Option<SharingConflict> {
        if self.holders.len() < 2 {
            return None;
        }
        let agreed = self.keys.len() == 1 && !self.keys.contains_key(&None);
        let port = || self.ports.iter().find(|(_, n)| **n > 1).map(|(port, _)| SharingClash::Port(*port));
        let clash = match agreed {
            false => SharingClash::Keys,
            true => port().or_else(|| (self.pods.len() > 1).then_some(SharingClash::Pods))?,
        };
        let on_it = |claim: &AddressClaim| match clash {
            SharingClash::Keys => true,
            SharingClash::Port(port) => claim.terms.ports.contains(&port),
            SharingClash::Pods => claim.terms.pods.is_some(),
        };
        let services = self.holders.iter().filter(|(_, claim)| on_it(claim));
        Some(SharingConflict { ip, services: services.map(|(service, _)| service.clone()).collect(), clash })
    }
}

impl Ledger {
    /// Records a claim, replacing the Service's former one on that address. True if
    /// nobody held the address before.
    pub(super) fn put(&mut self, service: &ObjectKey, ip: Vip, claim: AddressClaim) -> bool {
        if let Some(former) = self.held.get_mut(&slot(ip)).and_then(|address| address.holders.remove(service))
        {
            self.forget(ip, &former);
        }
        if let Some(group) = &claim.group {
            count_up(self.by_group.entry(group.clone()).or_default(), ip);
        }
        if let Some(key) = &claim.terms.sharing {
            count_up(self.by_key.entry(key.clone()).or_default(), ip);
        }
        self.by_service.entry(service.clone()).or_default().insert(ip);
        let mut first = false;
        let address = self.held.entry(slot(ip)).or_insert_with(|| {
            first = true;
            Address::default()
        });
        count_up(&mut address.keys, claim.terms.sharing.clone());
        for port in &claim.terms.ports {
            count_up(&mut address.ports, *port);
        }
        if let Some(pods) = &claim.terms.pods {
            count_up(&mut address.pods, pods.clone());
        }
        address.holders.insert(service.clone(), claim);
        first
    }

    /// Takes the claim out of every count; the address entry stays.
    fn forget(&mut self, ip: Vip, claim: &AddressClaim) {
        if let Some(group) = &claim.group {
            count_down_in(&mut self.by_group, group, ip);
        }
        if let Some(key) = &claim.terms.sharing {
            count_down_in(&mut self.by_key, key, ip);
        }
        if let Some(address) = self.held.get_mut(&slot(ip)) {
            count_down(&mut address.keys, &claim.terms.sharing);
            for port in &claim.terms.ports {
                count_down(&mut address.ports, port);
            }
            if let Some(pods) = &claim.terms.pods {
                count_down(&mut address.pods, pods);
            }
        }
    }

    /// Ends a claim. How many others still hold the address; None: it was not held
    /// by that Service.
    pub(super) fn remove(&mut self, service: &ObjectKey, ip: Vip) -> Option<usize> {
        let claim = self.held.get_mut(&slot(ip))?.holders.remove(service)?;
        self.forget(ip, &claim);
        if let Some(addresses) = self.by_service.get_mut(service) {
            addresses.remove(&ip);
            if addresses.is_empty() {
                self.by_service.remove(service);
            }
        }
        let left = self.held.get(&slot(ip)).map_or(0, |address| address.holders.len());
        if left == 0 {
            self.held.remove(&slot(ip));
        }
        Some(left)
    }

    pub(super) fn get(&self, ip: Vip) -> Option<&Address> {
        self.held.get(&slot(ip))
    }

    pub(super) fn obstacle(
        &self,
        ip: Vip,
        service: &ObjectKey,
        terms: &SharingTerms,
    ) -> Option<SharingObstacle> {
        self.held.get(&slot(ip))?.obstacle(service, terms)
    }

    pub(super) fn conflict(&self, ip: Vip) -> Option<SharingConflict> {
        self.held.get(&slot(ip))?.conflict(ip)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = (Vip, &Address)> {
        self.held.iter().map(|(at, address)| (vip(*at), address))
    }

    /// Numbers of the held addresses of a span.
    pub(super) fn within(&self, span: &Span) -> impl Iterator<Item = u128> {
        let family = span.family();
        let bounds = (family, span.low())..=(family, span.high());
        self.held.range(bounds).map(|((_, n), _)| *n)
    }

    pub(super) fn of_service(&self, service: &ObjectKey) -> impl Iterator<Item = Vip> {
        self.by_service.get(service).into_iter().flatten().copied()
    }

    pub(super) fn of_key(&self, key: &SharingKey) -> impl Iterator<Item = Vip> {
        self.by_key.get(key).into_iter().flat_map(BTreeMap::keys).copied()
    }

    pub(super) fn of_group(&self, group: &GroupName) -> impl Iterator<Item = Vip> {
        self.by_group.get(group).into_iter().flat_map(BTreeMap::keys).copied()
    }
}
