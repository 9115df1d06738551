//! What the cluster asks for: from Services, groups and endpoints to each address.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::election::Restriction;
use crate::facts::{EndpointFacts, GroupFacts, PoolType, RangeFacts, ServiceFacts};
use crate::ids::{NodeName, ObjectKey, Vip};
use crate::io::Update;

/// What one address is asked to be. Several Services may share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub services: BTreeSet<ObjectKey>,
    pub pool: PoolType,
    pub restriction: Restriction,
    pub skip_ipv6_dad: bool,
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
}

/// All Services that are ours, and what hangs on them.
#[derive(Clone, Debug, Default)]
pub struct Demands {
    services: BTreeMap<ObjectKey, ServiceFacts>,
    groups: BTreeMap<String, GroupFacts>,
    slices: BTreeMap<ObjectKey, EndpointFacts>,
    slices_of: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    sharing: BTreeMap<Vip, BTreeSet<ObjectKey>>,
}

impl Demands {
    /// Each `update_*` returns the addresses it may concern.
    pub fn update_services(&mut self, update: Update<ServiceFacts, ObjectKey>) -> BTreeSet<Vip> {
        let mut touched = BTreeSet::new();
        match update {
            Update::All(all) => {
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
            Update::Set(service) => self.set_service(service, &mut touched),
            Update::Gone(key) => self.remove_service(&key, &mut touched),
        }
        touched
    }

    fn set_service(&mut self, service: ServiceFacts, touched: &mut BTreeSet<Vip>) {
        if self.services.get(&service.key) == Some(&service) {
            return;
        }
        self.remove_service(&service.key.clone(), touched);
        for vip in &service.vips {
            self.sharing.entry(*vip).or_default().insert(service.key.clone());
        }
        touched.extend(&service.vips);
        self.services.insert(service.key.clone(), service);
    }

    fn remove_service(&mut self, key: &ObjectKey, touched: &mut BTreeSet<Vip>) {
        let Some(service) = self.services.remove(key) else {
            return;
        };
        for vip in &service.vips {
            if let Some(keys) = self.sharing.get_mut(vip) {
                keys.remove(key);
                if keys.is_empty() {
                    self.sharing.remove(vip);
                }
            }
        }
        touched.extend(&service.vips);
    }

    pub fn update_groups(&mut self, update: Update<GroupFacts, String>) -> BTreeSet<Vip> {
        let mut names = BTreeSet::new();
        match update {
            Update::All(all) => {
                let fresh: BTreeMap<String, GroupFacts> =
                    all.into_iter().map(|g| (g.name.clone(), g)).collect();
                names.extend(self.groups.keys().chain(fresh.keys()).cloned());
                self.groups = fresh;
            }
            Update::Set(group) => {
                names.insert(group.name.clone());
                self.groups.insert(group.name.clone(), group);
            }
            Update::Gone(name) => {
                self.groups.remove(&name);
                names.insert(name);
            }
        }
        self.services
            .values()
            .filter(|s| s.group.as_ref().is_some_and(|g| names.contains(g)))
            .flat_map(|s| s.vips.iter().copied())
            .collect()
    }

    pub fn update_endpoints(&mut self, update: Update<EndpointFacts, ObjectKey>) -> BTreeSet<Vip> {
        let mut services = BTreeSet::new();
        match update {
            Update::All(all) => {
                services.extend(std::mem::take(&mut self.slices_of).into_keys());
                self.slices.clear();
                for slice in all {
                    self.set_slice(slice, &mut services);
                }
            }
            Update::Set(slice) => self.set_slice(slice, &mut services),
            Update::Gone(key) => self.remove_slice(&key, &mut services),
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

    pub fn vips(&self) -> impl Iterator<Item = Vip> {
        self.sharing.keys().copied()
    }

    pub fn service(&self, key: &ObjectKey) -> Option<&ServiceFacts> {
        self.services.get(key)
    }

    pub fn groups(&self) -> impl Iterator<Item = &GroupFacts> {
        self.groups.values()
    }

    /// The group that the first sharer's addresses came from.
    pub fn group_of(&self, demand: &Demand) -> Option<&str> {
        demand.services.iter().find_map(|key| self.services.get(key)?.group.as_deref())
    }

    /// What is asked of an address, or `None` if nobody asks for it.
    pub fn of(&self, vip: Vip) -> Option<Demand> {
        let services = self.sharing.get(&vip)?.clone();
        let sharers: Vec<&ServiceFacts> = services.iter().filter_map(|k| self.services.get(k)).collect();
        // An address comes from one pool. Should Services disagree, the election is
        // the safe reading: one node instead of all.
        let pool = if sharers.iter().all(|s| s.pool == PoolType::Remote) {
            PoolType::Remote
        } else {
            PoolType::Local
        };
        let group = sharers.iter().find_map(|s| s.group.as_ref()).and_then(|g| self.groups.get(g));
        let range = group.and_then(|g| g.ranges.iter().find(|r| r.subnet.contains(&vip.ip()))).cloned();
        Some(Demand {
            pool,
            restriction: self.restriction(&sharers),
            skip_ipv6_dad: sharers.iter().any(|s| s.skip_ipv6_dad),
            range,
            services,
        })
    }

    /// R10: `externalTrafficPolicy: Local` needs an endpoint on the node. Where
    /// several such Services share the address, the node should have endpoints of all
    /// of them; if none has, one with some is better than no node at all. One that has
    /// no endpoint anywhere can be served nowhere: it does not take the address from
    /// those it shares it with.
    fn restriction(&self, sharers: &[&ServiceFacts]) -> Restriction {
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
