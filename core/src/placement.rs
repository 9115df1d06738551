//! What the cluster asks for: from Services, groups and endpoints to each address.

mod group_index;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::election::Restriction;
use crate::facts::{
    AnnouncingSlot, EndpointFacts, FencePolicy, GroupFacts, PoolType, RangeFacts, ServiceFacts,
};
use crate::ids::{NodeName, ObjectKey, Vip};
use crate::messages::FactsUpdate;

use group_index::{AddressGroup, GroupIndex};

/// What one address is asked to be. Several Services may share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub services: BTreeSet<ObjectKey>,
    /// The ServiceGroup the address belongs to. `None`: to none, so it is served nowhere.
    pub group: Option<String>,
    /// As that group says.
    pub pool: PoolType,
    pub restriction: Restriction,
    pub skip_ipv6_dad: bool,
    /// `None`: as this daemon is configured.
    pub fence_policy: Option<FencePolicy>,
    /// The group's range that contains the address.
    pub range: Option<RangeFacts>,
}

impl Demand {
    /// The prefix length on the interface: the pool's aggregation, or that of the
    /// subnet the interface (local) or the pool (remote) is in.
    pub fn net(&self, vip: Vip, subnet: Option<IpNet>) -> IpNet {
        let bits = vip.family().bits();
        let wanted = self
            .range
            .as_ref()
            .and_then(|r| r.aggregation)
            .or_else(|| subnet.map(|s| s.prefix_len()))
            .or_else(|| self.range.as_ref().map(|r| r.subnet.prefix_len()))
            .unwrap_or(bits);
        IpNet::new(vip.ip(), wanted.min(bits)).unwrap_or_else(|_| vip.host_net())
    }

    /// May this node serve the address, as far as endpoints decide it?
    pub fn permits(&self, node: &NodeName) -> bool {
        match &self.restriction {
            Restriction::Nodes(only) | Restriction::Both { only, .. } => only.contains(node),
            Restriction::None | Restriction::Prefer(_) => true,
        }
    }

    /// There is no endpoint on any node that it could go to.
    pub fn permits_nobody(&self) -> bool {
        match &self.restriction {
            Restriction::Nodes(only) | Restriction::Both { only, .. } => only.is_empty(),
            Restriction::None | Restriction::Prefer(_) => false,
        }
    }
}

/// All Services that are ours, and what hangs on them.
#[derive(Clone, Debug, Default)]
pub struct Demands {
    services: BTreeMap<ObjectKey, ServiceFacts>,
    groups: BTreeMap<String, GroupFacts>,
    /// Which address is whose, by the groups above.
    grounds: GroupIndex,
    /// To which group each address that is asked for belongs, or did when it was last
    /// in one: a group that is taken away does not take what it gave.
    belongs: BTreeMap<Vip, AddressGroup>,
    slices: BTreeMap<ObjectKey, EndpointFacts>,
    slices_of: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    sharing: BTreeMap<Vip, BTreeSet<ObjectKey>>,
    /// Services on which somebody says that it announces the address.
    slotted: BTreeMap<Vip, BTreeSet<ObjectKey>>,
}

fn enter(index: &mut BTreeMap<Vip, BTreeSet<ObjectKey>>, vip: Vip, key: &ObjectKey) {
    index.entry(vip).or_default().insert(key.clone());
}

fn strike(index: &mut BTreeMap<Vip, BTreeSet<ObjectKey>>, vip: Vip, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(&vip) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(&vip);
        }
    }
}

impl Demands {
    /// Each `update_*` returns the addresses it may concern.
    pub fn update_services(&mut self, update: FactsUpdate<ServiceFacts, ObjectKey>) -> BTreeSet<Vip> {
        let mut touched = BTreeSet::new();
        match update {
            FactsUpdate::All(all) => {
                let listed: BTreeSet<ObjectKey> = all.iter().map(|s| s.key.clone()).collect();
                let gone: Vec<ObjectKey> =
                    self.services.keys().filter(|k| !listed.contains(*k)).cloned().collect();
                for key in gone {
                    self.remove_service(&key, &mut touched);
                }
                for service in all {
                    self.set_service(service, &mut touched);
                }
            }
            FactsUpdate::Set(service) => self.set_service(service, &mut touched),
            FactsUpdate::Gone(key) => self.remove_service(&key, &mut touched),
        }
        for vip in &touched {
            self.place(*vip);
        }
        touched
    }

    fn set_service(&mut self, service: ServiceFacts, touched: &mut BTreeSet<Vip>) {
        if self.services.get(&service.key) == Some(&service) {
            return;
        }
        self.remove_service(&service.key.clone(), touched);
        for vip in &service.vips {
            enter(&mut self.sharing, *vip, &service.key);
        }
        for vip in service.slots.keys() {
            enter(&mut self.slotted, *vip, &service.key);
        }
        touched.extend(service.vips.iter().chain(service.slots.keys()));
        self.services.insert(service.key.clone(), service);
    }

    fn remove_service(&mut self, key: &ObjectKey, touched: &mut BTreeSet<Vip>) {
        let Some(service) = self.services.remove(key) else {
            return;
        };
        for vip in &service.vips {
            strike(&mut self.sharing, *vip, key);
        }
        for vip in service.slots.keys() {
            strike(&mut self.slotted, *vip, key);
        }
        touched.extend(service.vips.iter().chain(service.slots.keys()));
    }

    /// Finds the group of an address; true if it is another one, or another kind, than
    /// before.
    fn place(&mut self, vip: Vip) -> bool {
        let Some(services) = self.sharing.get(&vip) else {
            return self.belongs.remove(&vip).is_some();
        };
        let marks = services.iter().filter_map(|key| self.services.get(key)?.group.as_deref());
        let Some(found) = self.grounds.find(vip, marks, &self.groups) else { return false };
        self.belongs.insert(vip, found.clone()) != Some(found)
    }

    pub fn update_groups(&mut self, update: FactsUpdate<GroupFacts, String>) -> BTreeSet<Vip> {
        match update {
            FactsUpdate::All(all) => {
                let fresh: BTreeMap<String, GroupFacts> =
                    all.into_iter().map(|g| (g.name.clone(), g)).collect();
                if fresh == self.groups {
                    return BTreeSet::new();
                }
                self.groups = fresh;
            }
            FactsUpdate::Set(group) => {
                // A group's status changes with every address it gives.
                if self.groups.get(&group.name) == Some(&group) {
                    return BTreeSet::new();
                }
                self.groups.insert(group.name.clone(), group);
            }
            FactsUpdate::Gone(name) => {
                self.groups.remove(&name);
            }
        }
        self.grounds = GroupIndex::of(self.groups.values());
        let asked: Vec<Vip> = self.sharing.keys().copied().collect();
        asked.into_iter().filter(|vip| self.place(*vip)).collect()
    }

    pub fn update_endpoints(&mut self, update: FactsUpdate<EndpointFacts, ObjectKey>) -> BTreeSet<Vip> {
        let mut services = BTreeSet::new();
        match update {
            FactsUpdate::All(all) => {
                services.extend(std::mem::take(&mut self.slices_of).into_keys());
                self.slices.clear();
                for slice in all {
                    self.set_slice(slice, &mut services);
                }
            }
            FactsUpdate::Set(slice) => self.set_slice(slice, &mut services),
            FactsUpdate::Gone(key) => self.remove_slice(&key, &mut services),
        }
        services.iter().filter_map(|s| self.services.get(s)).flat_map(|s| s.vips.iter().copied()).collect()
    }

    fn set_slice(&mut self, slice: EndpointFacts, services: &mut BTreeSet<ObjectKey>) {
        self.remove_slice(&slice.slice.clone(), services);
        self.slices_of.entry(slice.service.clone()).or_default().insert(slice.slice.clone());
        services.insert(slice.service.clone());
        self.slices.insert(slice.slice.clone(), slice);
    }

    fn remove_slice(&mut self, key: &ObjectKey, services: &mut BTreeSet<ObjectKey>) {
        let Some(slice) = self.slices.remove(key) else {
            return;
        };
        if let Some(keys) = self.slices_of.get_mut(&slice.service) {
            keys.remove(key);
            if keys.is_empty() {
                self.slices_of.remove(&slice.service);
            }
        }
        services.insert(slice.service);
    }

    fn endpoints_of(&self, service: &ObjectKey) -> BTreeSet<NodeName> {
        let slices = self.slices_of.get(service).into_iter().flatten();
        slices.filter_map(|k| self.slices.get(k)).flat_map(|s| s.nodes.iter().cloned()).collect()
    }

    pub fn has(&self, vip: Vip) -> bool {
        self.sharing.contains_key(&vip)
    }

    /// Only nodes with endpoints may serve it.
    pub fn needs_endpoints(&self, vip: Vip) -> bool {
        let mut sharers = self.sharing.get(&vip).into_iter().flatten().filter_map(|k| self.services.get(k));
        sharers.any(|s| s.only_local_endpoints)
    }

    pub fn vips(&self) -> impl Iterator<Item = Vip> {
        self.sharing.keys().copied()
    }

    pub fn service(&self, key: &ObjectKey) -> Option<&ServiceFacts> {
        self.services.get(key)
    }

    /// Who says on a Service that it announces the address.
    pub fn slot(&self, vip: Vip) -> Option<&AnnouncingSlot> {
        self.sharing.get(&vip)?.iter().find_map(|key| self.services.get(key)?.slots.get(&vip))
    }

    /// Who says on which Service that it announces the address; and whether the Service
    /// has the address at all.
    pub fn slots_of(&self, vip: Vip) -> impl Iterator<Item = (&ObjectKey, &AnnouncingSlot, bool)> {
        let services = self.slotted.get(&vip).into_iter().flatten().filter_map(|k| self.services.get(k));
        services.filter_map(move |s| Some((&s.key, s.slots.get(&vip)?, s.vips.contains(&vip))))
    }

    pub fn groups(&self) -> impl Iterator<Item = &GroupFacts> {
        self.groups.values()
    }

    /// Who may win the address, if it is asked for and for one node to have.
    pub fn elected(&self, vip: Vip) -> Option<Restriction> {
        let sharers = self.sharing.get(&vip)?;
        // The election is the safe reading: one node instead of all.
        if self.belongs.get(&vip).is_some_and(|b| b.pool == PoolType::Remote) {
            return None;
        }
        let sharers: Vec<&ServiceFacts> = sharers.iter().filter_map(|k| self.services.get(k)).collect();
        Some(self.restriction(&sharers))
    }

    /// The Services that ask for it.
    pub fn services_of(&self, vip: Vip) -> impl Iterator<Item = &ObjectKey> {
        self.sharing.get(&vip).into_iter().flatten()
    }

    /// The group it belongs to, and the kind of that.
    pub fn group_of(&self, vip: Vip) -> Option<(&str, PoolType)> {
        let belongs = self.belongs.get(&vip).filter(|_| self.has(vip))?;
        Some((&belongs.group, belongs.pool))
    }

    /// As its group says.
    pub fn fence_policy(&self, vip: Vip) -> Option<FencePolicy> {
        self.belongs.get(&vip)?.fence_policy
    }

    /// What is asked of an address, or `None` if nobody asks for it.
    pub fn of(&self, vip: Vip) -> Option<Demand> {
        let services = self.sharing.get(&vip)?.clone();
        let sharers: Vec<&ServiceFacts> = services.iter().filter_map(|k| self.services.get(k)).collect();
        let belongs = self.belongs.get(&vip);
        Some(Demand {
            group: belongs.map(|b| b.group.clone()),
            // The election is the safe reading: one node instead of all.
            pool: belongs.map_or(PoolType::Local, |b| b.pool),
            restriction: self.restriction(&sharers),
            skip_ipv6_dad: belongs.is_some_and(|b| b.skip_ipv6_dad),
            fence_policy: belongs.and_then(|b| b.fence_policy),
            range: belongs.and_then(|b| b.range.clone()),
            services,
        })
    }

    /// R10: `externalTrafficPolicy: Local` needs an endpoint on the node. Where
    /// several such Services share the address, the node should have endpoints of all
    /// of them; if none has, one with some is better than no node at all. One that has
    /// no endpoint anywhere can be served nowhere: it does not take the address from
    /// those it shares it with.
    fn restriction(&self, sharers: &[&ServiceFacts]) -> Restriction {
        if sharers.iter().all(|s| !s.only_local_endpoints && !s.prefer_endpoints) {
            return Restriction::None;
        }
        let served = |s: &&&ServiceFacts| !s.only_local_endpoints || !self.endpoints_of(&s.key).is_empty();
        let mut counted: Vec<&ServiceFacts> = sharers.iter().filter(served).copied().collect();
        if counted.is_empty() {
            counted = sharers.to_vec();
        }
        let mut only: Option<BTreeSet<NodeName>> = None;
        let mut any = BTreeSet::new();
        let mut prefer: Option<BTreeSet<NodeName>> = None;
        for service in counted {
            if service.only_local_endpoints {
                let nodes = self.endpoints_of(&service.key);
                any.extend(nodes.iter().cloned());
                only = Some(match only {
                    None => nodes,
                    Some(others) => others.intersection(&nodes).cloned().collect(),
                });
            } else if service.prefer_endpoints {
                prefer.get_or_insert_default().extend(self.endpoints_of(&service.key));
            }
        }
        let only = only.map(|all| if all.is_empty() { any } else { all });
        match (only, prefer) {
            (None, None) => Restriction::None,
            (Some(only), None) => Restriction::Nodes(only),
            (None, Some(prefer)) => Restriction::Prefer(prefer),
            (Some(only), Some(prefer)) => Restriction::Both { only, prefer },
        }
    }
}

#[cfg(test)]
mod tests;
