//! The node's links and addresses as the kernel last showed them (R6).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::facts::{AddrFacts, AgentConfig, AutoInterface, DefaultRoute, LinkFacts};
use crate::ids::{Family, IfIndex, IfName, Vip};
use crate::messages::KernelDump;

/// An address is identified by its interface and its text with prefix length: the
/// same address with another prefix length is another one to the kernel.
pub type AddrKey = (IfIndex, IpNet);

/// Before all keys of a link.
fn first_key(index: IfIndex) -> AddrKey {
    (index, IpNet::V4(Ipv4Net::default()))
}

#[derive(Clone, Debug, Default)]
pub struct KernelState {
    links: BTreeMap<IfIndex, LinkFacts>,
    /// The same links by name: a node with many pods has hundreds.
    names: BTreeSet<(IfName, IfIndex)>,
    addresses: BTreeMap<AddrKey, AddrFacts>,
    by_vip: BTreeMap<Vip, BTreeSet<AddrKey>>,
    /// Addresses with our mark, and those without: there may be thousands of the one kind
    /// where only the other is looked for.
    ours: BTreeSet<AddrKey>,
    others: BTreeSet<AddrKey>,
    default_routes: BTreeSet<DefaultRoute>,
}

impl KernelState {
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

    /// What the link was before.
    pub fn set_link(&mut self, link: LinkFacts) -> Option<LinkFacts> {
        let name = link.name.clone();
        let before = self.links.insert(link.index, link.clone());
        if let Some(before) = &before {
            self.names.remove(&(before.name.clone(), before.index));
        }
        self.names.insert((name, link.index));
        before
    }

    /// With a link go its addresses: the kernel need not say so one by one. They are
    /// returned, with what the link was.
    pub fn remove_link(&mut self, index: IfIndex) -> (Option<LinkFacts>, Vec<AddrFacts>) {
        let link = self.links.remove(&index);
        if let Some(link) = &link {
            self.names.remove(&(link.name.clone(), index));
        }
        let keys: Vec<AddrKey> = self.keys_on(index).collect();
        (link, keys.into_iter().filter_map(|key| self.remove_address(key)).collect())
    }

    /// What was known of the address before.
    pub fn set_address(&mut self, address: AddrFacts) -> Option<AddrFacts> {
        let key = (address.index, address.net);
        self.by_vip.entry(address.vip()).or_default().insert(key);
        let (mine, not) = if address.ours {
            (&mut self.ours, &mut self.others)
        } else {
            (&mut self.others, &mut self.ours)
        };
        not.remove(&key);
        mine.insert(key);
        self.addresses.insert(key, address)
    }

    pub fn remove_address(&mut self, key: AddrKey) -> Option<AddrFacts> {
        let address = self.addresses.remove(&key)?;
        self.ours.remove(&key);
        self.others.remove(&key);
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
        let from = (name.clone(), IfIndex(0));
        let (found, index) = self.names.range(from..).next()?;
        self.links.get(index).filter(|_| found == name)
    }

    pub fn links(&self) -> impl Iterator<Item = &LinkFacts> {
        self.links.values()
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
        self.ours.iter().filter_map(|key| self.addresses.get(key))
    }

    /// Addresses without it.
    pub fn others(&self) -> impl Iterator<Item = &AddrFacts> {
        self.others.iter().filter_map(|key| self.addresses.get(key))
    }

    /// Those of one link.
    pub fn others_on(&self, index: IfIndex) -> impl Iterator<Item = &AddrFacts> {
        let keys = self.others.range(first_key(index)..).take_while(move |(i, _)| *i == index);
        keys.filter_map(|key| self.addresses.get(key))
    }

    pub fn ours_on(&self, index: IfIndex) -> impl Iterator<Item = &AddrFacts> {
        let keys = self.ours.range(first_key(index)..).take_while(move |(i, _)| *i == index);
        keys.filter_map(|key| self.addresses.get(key))
    }

    fn keys_on(&self, index: IfIndex) -> impl Iterator<Item = AddrKey> {
        self.addresses.range(first_key(index)..).map(|(key, _)| *key).take_while(move |(i, _)| *i == index)
    }

    /// Every address on a link, ours or not.
    pub fn vips_on(&self, index: IfIndex) -> impl Iterator<Item = Vip> {
        self.keys_on(index).map(|(_, net)| Vip::new(net.addr()))
    }

    /// Where default routes lead.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.default_routes.iter().filter_map(|route| route.gateway)
    }

    /// Where the default routes of one interface lead.
    pub fn gateways_on(&self, index: IfIndex) -> impl Iterator<Item = IpAddr> {
        let here = self.default_routes.iter().filter(move |route| route.index == index);
        here.filter_map(|route| route.gateway)
    }

    /// Interfaces of the default routes: per family those of the lowest metric.
    pub fn default_interfaces(&self) -> BTreeSet<IfIndex> {
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
