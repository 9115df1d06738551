//! What the monitor knows of the kernel, and what changed for the engine.
//!
//! Only a change of facts becomes an input: refreshing the lifetimes of a thousand
//! addresses makes a thousand netlink events and not one input.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use purelb_core::facts::AddrFacts;
use purelb_core::ids::IfIndex;
use purelb_core::messages::{FactsUpdate, Input, KernelDump};

use crate::netlink::link_table::LinkTable;
use crate::netlink::monitor::default_routes::DefaultRoutes;
use crate::netlink::ownership::AddressOwnership;
use crate::netlink::parse::{KernelAddress, KernelEvent, KernelLink};

/// Two point-to-point addresses may differ in their far end alone.
type AddressKey = (IfIndex, IpNet, Option<IpAddr>);

#[derive(Debug)]
pub(crate) struct MonitorState {
    ownership: AddressOwnership,
    table: LinkTable,
    links: BTreeMap<IfIndex, KernelLink>,
    addresses: BTreeMap<AddressKey, AddrFacts>,
    routes: DefaultRoutes,
    /// Default routes may have changed: they are to be read again.
    pub(crate) routes_stale: bool,
}

impl MonitorState {
    pub(crate) fn new(ownership: AddressOwnership, table: LinkTable) -> Self {
        Self {
            ownership,
            table,
            links: BTreeMap::new(),
            addresses: BTreeMap::new(),
            routes: DefaultRoutes::default(),
            routes_stale: true,
        }
    }

    pub(crate) fn snapshot(&self) -> KernelDump {
        KernelDump {
            links: self.links.values().map(|link| link.facts.clone()).collect(),
            addresses: self.unique_addresses(),
            default_routes: self.routes.defaults.iter().copied().collect(),
        }
    }

    fn unique_addresses(&self) -> Vec<AddrFacts> {
        let mut found: Vec<AddrFacts> = self.addresses.values().cloned().collect();
        found.dedup_by_key(|facts| (facts.index, facts.net));
        found
    }

    /// A complete dump replaces every link and address. The default routes stay as they
    /// are known until they were read again.
    pub(crate) fn replace(&mut self, links: Vec<KernelLink>, addresses: Vec<KernelAddress>) {
        self.links = links.into_iter().map(|link| (link.facts.index, link)).collect();
        self.addresses =
            addresses.into_iter().map(|address| (key(&address), address.facts(&self.ownership))).collect();
        self.routes_stale = true;
        self.table.replace(self.links.clone());
    }

    pub(crate) fn set_routes(&mut self, routes: DefaultRoutes) -> Option<Input> {
        let before = std::mem::replace(&mut self.routes, routes);
        if before.defaults == self.routes.defaults {
            return None;
        }
        Some(Input::DefaultRoutes(self.routes.defaults.iter().copied().collect()))
    }

    pub(crate) fn apply(&mut self, seen: KernelEvent, emit: &mut dyn FnMut(Input)) {
        match seen {
            KernelEvent::Link(link) => self.set_link(link, emit),
            KernelEvent::LinkGone(index) => self.drop_link(index, emit),
            KernelEvent::Address(address) => self.set_address(&address, emit),
            KernelEvent::AddressGone(address) => self.drop_address(key(&address), emit),
            KernelEvent::DefaultRoute => self.routes_stale = true,
            KernelEvent::Nexthop(id) => self.routes_stale |= self.routes.depends_on_nexthop(id),
        }
    }

    fn set_link(&mut self, link: KernelLink, emit: &mut dyn FnMut(Input)) {
        let index = link.facts.index;
        let before = self.links.get(&index);
        if before == Some(&link) {
            return;
        }
        if before.is_none_or(|before| before.facts != link.facts) {
            // IPv4 routes of a link that is set down vanish without a word. Without a
            // carrier they stay.
            self.routes_stale |= !link.facts.up && self.routes.depends_on_link(index);
            emit(Input::Link(FactsUpdate::Set(link.facts.clone())));
        }
        self.links.insert(index, link);
        self.table.replace(self.links.clone());
    }

    /// A link that is gone, or went to another namespace, takes its addresses along;
    /// not every kernel says so for each of them.
    fn drop_link(&mut self, index: IfIndex, emit: &mut dyn FnMut(Input)) {
        let gone: Vec<AddressKey> = self.addresses.keys().filter(|key| key.0 == index).copied().collect();
        for key in gone {
            self.drop_address(key, emit);
        }
        if self.links.remove(&index).is_some() {
            self.routes_stale |= self.routes.depends_on_link(index);
            self.table.replace(self.links.clone());
            emit(Input::Link(FactsUpdate::Gone(index)));
        }
    }

    fn set_address(&mut self, address: &KernelAddress, emit: &mut dyn FnMut(Input)) {
        let facts = address.facts(&self.ownership);
        if self.addresses.get(&key(address)) != Some(&facts) {
            self.addresses.insert(key(address), facts.clone());
            emit(Input::AddressSet(facts));
        }
    }

    fn has_ipv4(&self, index: IfIndex) -> bool {
        // IPv4 comes before IPv6.
        let first = (index, IpNet::V4(Ipv4Net::default()), None);
        let next = self.addresses.range(first..).next();
        next.is_some_and(|((of, net, _), _)| *of == index && net.addr().is_ipv4())
    }

    fn drop_address(&mut self, key: AddressKey, emit: &mut dyn FnMut(Input)) {
        if self.addresses.remove(&key).is_none() {
            return;
        }
        let (index, net, _) = key;
        // Silently the kernel drops IPv4 routes that name the address as their source, and
        // all of a link with the last IPv4 address on it.
        if net.addr().is_ipv4() {
            self.routes_stale |= self.routes.depends_on_source(net.addr())
                || (self.routes.depends_on_link(index) && !self.has_ipv4(index));
        }
        let twin = self
            .addresses
            .range((index, net, None)..)
            .next()
            .filter(|(other, _)| (other.0, other.1) == (index, net));
        match twin {
            Some((_, facts)) => emit(Input::AddressSet(facts.clone())),
            None => emit(Input::AddressGone { index, net }),
        }
    }
}

fn key(address: &KernelAddress) -> AddressKey {
    (address.index, address.net, address.peer)
}

#[cfg(test)]
mod tests;
