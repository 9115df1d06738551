//! The node's links and addresses as the kernel last showed them (R6).

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::facts::{AddrFacts, AgentConfig, AutoInterface, DefaultRoute, LinkFacts};
use crate::ids::{Family, IfIndex, IfName, Vip};
use crate::io::KernelDump;

/// An address is identified by its interface and its text with prefix length: the
/// same address with another prefix length is another one to the kernel.
pub type AddrKey = (IfIndex, IpNet);

#[derive(Clone, Debug, Default)]
pub struct Kernel {
    links: BTreeMap<IfIndex, LinkFacts>,
    addresses: BTreeMap<AddrKey, AddrFacts>,
    by_vip: BTreeMap<Vip, BTreeSet<AddrKey>>,
    default_routes: BTreeSet<DefaultRoute>,
}

impl Kernel {
    pub fn replace(&mut self, dump: KernelDump) {
        *self = Self::default();
        for link in dump.links {
            self.set_link(link);
        }
        for address in dump.addresses {
            self.set_address(address);
        }
        self.set_default_routes(dump.default_routes);
    }

    pub fn set_link(&mut self, link: LinkFacts) {
        self.links.insert(link.index, link);
    }

    pub fn replace_links(&mut self, links: Vec<LinkFacts>) {
        self.links = links.into_iter().map(|l| (l.index, l)).collect();
    }

    /// With a link go its addresses: the kernel need not say so one by one.
    pub fn remove_link(&mut self, index: IfIndex) {
        self.links.remove(&index);
        let gone: Vec<AddrKey> = self.addresses.keys().filter(|(i, _)| *i == index).copied().collect();
        for key in gone {
            self.remove_address(key);
        }
    }

    pub fn set_address(&mut self, address: AddrFacts) {
        let key = (address.index, address.net);
        self.by_vip.entry(address.vip()).or_default().insert(key);
        self.addresses.insert(key, address);
    }

    pub fn remove_address(&mut self, key: AddrKey) -> Option<AddrFacts> {
        let address = self.addresses.remove(&key)?;
        let vip = address.vip();
        if let Some(keys) = self.by_vip.get_mut(&vip) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_vip.remove(&vip);
            }
        }
        Some(address)
    }

    pub fn set_default_routes(&mut self, routes: Vec<DefaultRoute>) {
        self.default_routes = routes.into_iter().collect();
    }

    pub fn link(&self, index: IfIndex) -> Option<&LinkFacts> {
        self.links.get(&index)
    }

    pub fn link_named(&self, name: &IfName) -> Option<&LinkFacts> {
        self.links.values().find(|l| l.name == *name)
    }

    pub fn name_of(&self, index: IfIndex) -> Option<&IfName> {
        self.links.get(&index).map(|l| &l.name)
    }

    pub fn address(&self, key: AddrKey) -> Option<&AddrFacts> {
        self.addresses.get(&key)
    }

    /// Everything the kernel shows of one address, on whatever interface.
    pub fn of_vip(&self, vip: Vip) -> impl Iterator<Item = &AddrFacts> {
        self.by_vip.get(&vip).into_iter().flatten().filter_map(|key| self.addresses.get(key))
    }

    /// Addresses with our mark (R4).
    pub fn ours(&self) -> impl Iterator<Item = &AddrFacts> {
        self.addresses.values().filter(|a| a.ours)
    }

    pub fn addresses(&self) -> impl Iterator<Item = &AddrFacts> {
        self.addresses.values()
    }

    /// Interfaces of the default routes: per family those of the lowest metric.
    fn default_interfaces(&self) -> BTreeSet<IfIndex> {
        let mut found = BTreeSet::new();
        for family in [Family::V4, Family::V6] {
            let of_family = || self.default_routes.iter().filter(|r| r.family == family);
            if let Some(lowest) = of_family().map(|r| r.metric).min() {
                found.extend(of_family().filter(|r| r.metric == lowest).map(|r| r.index));
            }
        }
        found
    }

    /// The interfaces that the configuration lets VIPs live on.
    pub fn selected(&self, config: &AgentConfig) -> BTreeSet<IfIndex> {
        let mut selected: BTreeSet<IfIndex> = match &config.auto {
            AutoInterface::DefaultRoute => self.default_interfaces(),
            // The pattern was compiled when the object was accepted; one that does
            // not compile here selects nothing.
            AutoInterface::Pattern(pattern) => regex::Regex::new(pattern)
                .map(|re| {
                    self.links.values().filter(|l| re.is_match(l.name.as_str())).map(|l| l.index).collect()
                })
                .unwrap_or_default(),
            AutoInterface::None => BTreeSet::new(),
        };
        selected.extend(self.links.values().filter(|l| config.interfaces.contains(&l.name)).map(|l| l.index));
        selected.retain(|i| self.links.get(i).is_some_and(|l| !l.loopback && l.name != config.dummy));
        selected
    }
}

#[cfg(test)]
mod tests;
