//! The allocator's picture: groups, Services, who holds what, who has to be looked at.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::decision::ProviderQuestion;
use super::facts::{GroupSource, GroupSpec, ServiceAsk, ServiceOwner};
use super::give_back::{GiveBack, ProviderReturns};
use super::waiting_services::{AwaitedRelease, ServiceTurn, WaitingServices};
use crate::ids::{Family, IdError, ObjectKey, Vip};
use crate::pools::{
    AddressClaim, AddressPools, GroupAdmission, GroupName, GroupStats, PoolPlace, ReleaseOutcome,
    SharingTerms,
};

/// A Service and what was decided for it.
#[derive(Clone, Debug)]
pub(super) struct ServiceEntry {
    pub(super) ask: ServiceAsk,
    /// What it is meant to have. Held together with what its status shows.
    pub(super) goal: Vec<Vip>,
    /// A write or a question is under way; a change in between waits for its end.
    pub(super) busy: bool,
    pub(super) again: bool,
    /// It was ours once, in this process's life.
    pub(super) was_ours: bool,
    /// A provider's last answer, and to what.
    pub(super) answer: Option<(ProviderQuestion, Result<Vec<Vip>, String>)>,
    /// Shared addresses it may not stay on: its owner made it incompatible with the
    /// others there.
    pub(super) leaves: BTreeSet<Vip>,
}

/// Whether it is known how a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCertainty {
    Known,
    /// It may still arrive: what it would give stays taken.
    Unknown,
}

/// Everything the allocator knows and decides on.
#[derive(Clone, Debug)]
pub struct Allocations {
    namespace: String,
    default_group: GroupName,
    pools: AddressPools,
    groups: BTreeMap<GroupName, GroupSpec>,
    /// Groups without any usable configuration, and what is wrong with them.
    problems: BTreeMap<GroupName, String>,
    services: BTreeMap<ObjectKey, ServiceEntry>,
    live: BTreeSet<IpNet>,
    /// To be looked at, in order of creation.
    dirty: BTreeSet<ServiceTurn>,
    /// Asked for something they could not get; looked at again when it is freed.
    waiting: WaitingServices,
    returns: ProviderReturns,
}

impl Allocations {
    /// `namespace`: where ServiceGroups are read from. `default_group`: the one used
    /// when nothing else names one.
    pub fn new(namespace: &str, default_group: &str) -> Result<Self, IdError> {
        Ok(Self {
            namespace: namespace.to_owned(),
            default_group: GroupName::of(namespace, default_group)?,
            pools: AddressPools::new(),
            groups: BTreeMap::new(),
            problems: BTreeMap::new(),
            services: BTreeMap::new(),
            live: BTreeSet::new(),
            dirty: BTreeSet::new(),
            waiting: WaitingServices::default(),
            returns: ProviderReturns::default(),
        })
    }

    /// Replaces all groups. Every Service is looked at again; none loses an address.
    pub fn set_groups(
        &mut self,
        groups: impl IntoIterator<Item = GroupSpec>,
        problems: BTreeMap<GroupName, String>,
    ) -> GroupAdmission {
        self.groups = groups.into_iter().map(|group| (group.name.clone(), group)).collect();
        self.problems = problems;
        let ranges = self.groups.values().filter_map(|spec| match &spec.source {
            GroupSource::Ranges { group, .. } => Some(group.clone()),
            GroupSource::Provider => None,
        });
        let admission = self.pools.set_groups(ranges);
        self.dirty.extend(self.services.values().map(order));
        admission
    }

    /// The subnets live nodes advertise. Looks at everybody again if they changed.
    pub fn set_live(&mut self, live: BTreeSet<IpNet>) {
        if live != self.live {
            self.live = live;
            self.dirty.extend(self.services.values().map(order));
        }
    }

    /// A Service as it is now: seen by the watch, or answered to a write.
    pub fn observe(&mut self, ask: ServiceAsk) {
        let key = ask.key.clone();
        if self.services.get(&key).is_some_and(|entry| entry.ask.uid != ask.uid) {
            self.forget(&key);
        }
        match self.services.get_mut(&key) {
            None => {
                let goal = if ask.whose == ServiceOwner::Ours { ask.held.clone() } else { Vec::new() };
                let was_ours = ask.whose == ServiceOwner::Ours;
                let leaves = BTreeSet::new();
                let entry =
                    ServiceEntry { ask, goal, busy: false, again: false, was_ours, answer: None, leaves };
                self.dirty.insert(order(&entry));
                self.services.insert(key.clone(), entry);
            }
            Some(entry) => {
                // Whoever gave up a port or a sharing key made room for others.
                let terms_changed = entry.ask.terms != ask.terms || entry.ask.whose != ask.whose;
                if ask.whose != ServiceOwner::Ours
                    && !(ask.whose == ServiceOwner::NoLoadBalancer && ask.marked)
                {
                    entry.goal.clear();
                } else if ask.whose == ServiceOwner::Ours && !ask.held.is_empty() && !entry.busy {
                    // The status is the truth; one that was emptied by somebody else
                    // is put right again with the same addresses.
                    entry.goal.clone_from(&ask.held);
                }
                entry.was_ours |= ask.whose == ServiceOwner::Ours;
                entry.ask = ask;
                let dirty = order(entry);
                self.dirty.insert(dirty);
                if terms_changed {
                    self.terms_changed(&key);
                }
            }
        }
        self.sync_claims(&key);
    }

    /// Others may join the Service on its addresses now; or it may not stay there
    /// itself. Only what changes under our eyes costs an address: what was found as it
    /// is stays, and is told.
    fn terms_changed(&mut self, key: &ObjectKey) {
        let held: Vec<Vip> = self.pools.addresses_of(key).collect();
        if let Some(entry) = self.services.get_mut(key) {
            let ours = entry.ask.whose == ServiceOwner::Ours;
            let clashes = |ip: &&Vip| ours && self.pools.other_pods(key, **ip, &entry.ask.terms).is_some();
            entry.leaves = held.iter().filter(clashes).copied().collect();
        }
        for ip in held {
            self.dirty.extend(self.waiting.freed(ip, None));
        }
        self.wake_sharers(key);
    }

    /// Who waits with the same sharing key may join it.
    pub(super) fn wake_sharers(&mut self, key: &ObjectKey) {
        let Some(entry) = self.services.get(key) else { return };
        if let Some(sharing) = &entry.ask.terms.sharing {
            self.dirty.extend(self.waiting.shared(sharing));
        }
    }

    /// The Service is gone.
    pub fn forget(&mut self, key: &ObjectKey) {
        let Some(entry) = self.services.remove(key) else { return };
        self.waiting.remove(&order(&entry));
        self.dirty.remove(&order(&entry));
        let held: Vec<Vip> = self.pools.addresses_of(key).collect();
        for ip in held {
            self.drop_claim(key, ip);
        }
    }

    /// Everything listed anew: what is not in the list is gone.
    pub fn retain(&mut self, present: &BTreeSet<ObjectKey>) {
        let missing: Vec<ObjectKey> =
            self.services.keys().filter(|key| !present.contains(*key)).cloned().collect();
        for key in missing {
            self.forget(&key);
        }
    }

    /// The next Service to decide on, the oldest first.
    pub fn take_next(&mut self) -> Option<ObjectKey> {
        loop {
            let waiter = self.waiting.oldest();
            let turn = match (self.dirty.first(), waiter) {
                (Some(dirty), Some(waiter)) => dirty.min(&waiter).clone(),
                (Some(dirty), None) => dirty.clone(),
                (None, Some(waiter)) => waiter,
                (None, None) => return None,
            };
            self.dirty.remove(&turn);
            self.waiting.asked(&turn);
            let (_, key) = turn;
            match self.services.get_mut(&key) {
                Some(entry) if entry.busy => entry.again = true,
                Some(_) => return Some(key),
                None => {}
            }
        }
    }

    /// A decision is being carried out: the Service is left alone until `settled`.
    pub fn busy(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.services.get_mut(key) {
            entry.busy = true;
        }
    }

    /// The decision was carried out, or could not be. `observe` what is there now
    /// before this.
    pub fn settled(&mut self, key: &ObjectKey, sure: WriteCertainty) {
        let Some(entry) = self.services.get_mut(key) else { return };
        entry.busy = false;
        if sure == WriteCertainty::Known
            && entry.ask.whose == ServiceOwner::Ours
            && !entry.ask.held.is_empty()
        {
            entry.goal.clone_from(&entry.ask.held);
        }
        if std::mem::take(&mut entry.again) {
            let dirty = order(entry);
            self.dirty.insert(dirty);
        }
        self.sync_claims(key);
    }

    /// What a provider said. The Service is looked at again.
    pub fn answer(&mut self, key: &ObjectKey, question: ProviderQuestion, answer: Result<Vec<Vip>, String>) {
        if let Some(entry) = self.services.get_mut(key) {
            entry.answer = Some((question, answer));
        }
        self.look_again(key);
    }

    /// A provider's refusal is forgotten, so that it is asked again.
    pub fn ask_again(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.services.get_mut(key) {
            entry.answer = None;
        }
        self.look_again(key);
    }

    /// A provider has something back: whoever it refused may ask again.
    pub fn ask_all_again(&mut self, group: &GroupName) {
        for entry in self.services.values_mut() {
            let refused =
                |(asked, answer): &(ProviderQuestion, Result<_, _>)| asked.group == *group && answer.is_err();
            if entry.answer.as_ref().is_some_and(refused) {
                entry.answer = None;
                self.dirty.insert(order(entry));
            }
        }
    }

    pub fn look_again(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.services.get(key) {
            self.dirty.insert(order(entry));
        }
    }

    /// Decisions that were never carried out are forgotten, and everybody is looked at
    /// again. For a new leader that finds out what its predecessor did last.
    pub fn start_over(&mut self) {
        let keys: Vec<ObjectKey> = self.services.keys().cloned().collect();
        for key in &keys {
            if let Some(entry) = self.services.get_mut(key) {
                entry.goal =
                    if entry.ask.whose == ServiceOwner::Ours { entry.ask.held.clone() } else { Vec::new() };
                let dirty = order(entry);
                self.dirty.insert(dirty);
            }
            self.sync_claims(key);
        }
        self.waiting.clear();
    }

    pub fn service(&self, key: &ObjectKey) -> Option<&ServiceAsk> {
        self.services.get(key).map(|entry| &entry.ask)
    }

    pub fn services(&self) -> impl Iterator<Item = &ServiceAsk> {
        self.services.values().map(|entry| &entry.ask)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn pools(&self) -> &AddressPools {
        &self.pools
    }

    pub fn stats(&self, group: &GroupName) -> GroupStats {
        self.pools.stats(group)
    }

    pub fn groups(&self) -> &BTreeMap<GroupName, GroupSpec> {
        &self.groups
    }

    pub(super) fn returns(&self) -> &ProviderReturns {
        &self.returns
    }

    pub(super) fn returns_mut(&mut self) -> &mut ProviderReturns {
        &mut self.returns
    }

    pub(super) fn pools_mut(&mut self) -> &mut AddressPools {
        &mut self.pools
    }

    pub(super) fn problems(&self) -> &BTreeMap<GroupName, String> {
        &self.problems
    }

    pub(super) fn live(&self) -> &BTreeSet<IpNet> {
        &self.live
    }

    pub(super) fn default_group(&self) -> &GroupName {
        &self.default_group
    }

    /// The full name of a group a Service names.
    pub fn group_name(&self, name: &str) -> Option<GroupName> {
        GroupName::of(&self.namespace, name).ok().filter(|_| !name.contains('/'))
    }

    pub(super) fn entry(&self, key: &ObjectKey) -> Option<&ServiceEntry> {
        self.services.get(key)
    }

    pub(super) fn set_goal(&mut self, key: &ObjectKey, goal: Vec<Vip>) {
        if let Some(entry) = self.services.get_mut(key) {
            entry.goal = goal;
        }
        self.sync_claims(key);
    }

    /// What it waits for; nothing: it does not wait.
    pub(super) fn set_waiting(&mut self, key: &ObjectKey, wants: Vec<AwaitedRelease>) {
        if let Some(entry) = self.services.get(key) {
            self.waiting.set(order(entry), wants, entry.ask.terms.sharing.clone());
        }
    }

    pub(super) fn no_room(&mut self, group: &GroupName, family: Family) {
        self.waiting.no_room(group, family);
    }

    /// Shared addresses the Service has to leave, as things stand.
    pub(super) fn leaves(&self, key: &ObjectKey) -> Vec<Vip> {
        let Some(entry) = self.services.get(key) else { return Vec::new() };
        let still = |ip: &&Vip| self.pools.other_pods(key, **ip, &entry.ask.terms).is_some();
        entry.leaves.iter().filter(still).copied().collect()
    }

    /// Makes the ledger say: this Service holds what its status shows and what it is
    /// meant to have, and nothing else.
    fn sync_claims(&mut self, key: &ObjectKey) {
        let Some(entry) = self.services.get(key) else { return };
        let mut hold: BTreeSet<Vip> = entry.ask.held.iter().copied().collect();
        hold.extend(entry.goal.iter().copied());
        let ours = entry.ask.whose == ServiceOwner::Ours;
        let terms = if ours { entry.ask.terms.clone() } else { SharingTerms::alone() };
        let from = entry.ask.from.as_deref().filter(|_| entry.ask.marked).and_then(|f| self.group_name(f));
        let known: BTreeSet<Vip> = self.pools.addresses_of(key).collect();
        for ip in &hold {
            let group = match self.pools.claim_of(key, *ip) {
                Some(recorded) if recorded.terms == terms => continue,
                Some(recorded) => recorded.group.clone(),
                None if !ours => None,
                // After a move that was half done the annotation names the new group
                // already: where an address lies says more.
                None => match self.pools.place(*ip) {
                    PoolPlace::Outside => from.clone(),
                    place => place.group().cloned(),
                },
            };
            self.pools.adopt(key, *ip, AddressClaim { group, terms: terms.clone() });
            if let Some(sharing) = &terms.sharing {
                self.dirty.extend(self.waiting.shared(sharing));
            }
        }
        for ip in known.difference(&hold) {
            self.drop_claim(key, *ip);
        }
    }

    /// From which group a Service holds an address, if it does.
    pub(super) fn claim_group(&self, key: &ObjectKey, ip: Vip) -> Option<&GroupName> {
        self.pools.claim_of(key, ip)?.group.as_ref()
    }

    fn drop_claim(&mut self, key: &ObjectKey, ip: Vip) {
        let group = self.claim_group(key, ip).cloned();
        if self.pools.release(key, ip) == ReleaseOutcome::NotHeld {
            return;
        }
        if let Some(group) = group.filter(|name| self.may_be_provided(name)) {
            // What it said about these addresses is over.
            if let Some(entry) = self.services.get_mut(key) {
                entry.answer = None;
            }
            self.give_back(GiveBack { group, service: key.clone(), ip: Some(ip) });
        }
        // Also a port on a shared address is room for somebody.
        let room = self.pools.group_of(ip);
        self.dirty.extend(self.waiting.freed(ip, room));
    }

    /// The Service left while nobody looked: what it had is not known any more.
    pub(super) fn give_all_back(&mut self, key: &ObjectKey) {
        let from = self.services.get(key).and_then(|entry| entry.ask.from.clone());
        let group = from.and_then(|name| self.group_name(&name)).filter(|name| self.may_be_provided(name));
        if let Some(group) = group {
            self.give_back(GiveBack { group, service: key.clone(), ip: None });
        }
    }

    /// A group that is gone may have been a provider's. Whoever gives back knows, or not.
    fn may_be_provided(&self, name: &GroupName) -> bool {
        self.groups.get(name).is_none_or(|spec| matches!(spec.source, GroupSource::Provider))
    }

    pub(super) fn is_provided(&self, name: &GroupName) -> bool {
        self.groups.get(name).is_some_and(|spec| matches!(spec.source, GroupSource::Provider))
    }
}

fn order(entry: &ServiceEntry) -> ServiceTurn {
    (entry.ask.created, entry.ask.key.clone())
}
