//! Remote addresses by the prefix that comes with them, to find those that a node's own
//! address concerns: it must not be inside.
//!
//! Every pod brings a link, and with some networks an address on it. With thousands of
//! remote addresses none of that may cost a look at each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::ids::{Family, Vip};

#[derive(Clone, Debug, Default)]
pub struct RemotePrefixes {
    of: BTreeMap<Vip, IpNet>,
    by: BTreeMap<IpNet, BTreeSet<Vip>>,
}

impl RemotePrefixes {
    /// Replaces the address's prefix. One of the address alone contains nobody else's.
    pub fn set(&mut self, vip: Vip, net: Option<IpNet>) {
        let net = net.map(|net| net.trunc()).filter(|net| net.prefix_len() < net.max_prefix_len());
        if self.of.get(&vip) == net.as_ref() {
            return;
        }
        if let Some(former) = self.of.remove(&vip)
            && let Some(vips) = self.by.get_mut(&former)
        {
            vips.remove(&vip);
            if vips.is_empty() {
                self.by.remove(&former);
            }
        }
        if let Some(net) = net {
            self.of.insert(vip, net);
            self.by.entry(net).or_default().insert(vip);
        }
    }

    /// Those whose prefix contains this address.
    pub fn around(&self, ip: IpAddr) -> impl Iterator<Item = Vip> {
        let longest = if self.by.is_empty() { 0 } else { Family::of(ip).bits() };
        let nets = (0..longest).filter_map(move |length| Some(IpNet::new(ip, length).ok()?.trunc()));
        nets.filter_map(|net| self.by.get(&net)).flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_by_what_its_prefix_contains() {
        let vip = |text: &str| text.parse::<Vip>().unwrap();
        let net = |text: &str| Some(text.parse::<IpNet>().unwrap());
        let mut prefixes = RemotePrefixes::default();
        let found =
            |prefixes: &RemotePrefixes, ip: &str| prefixes.around(ip.parse().unwrap()).collect::<Vec<_>>();
        prefixes.set(vip("10.1.0.7"), net("10.1.0.7/24"));
        prefixes.set(vip("10.1.9.7"), net("10.1.9.7/16"));
        prefixes.set(vip("10.1.0.8"), net("10.1.0.8/32"));
        prefixes.set(vip("fd00::1"), net("fd00::1/64"));
        assert_eq!(found(&prefixes, "10.1.0.8"), [vip("10.1.9.7"), vip("10.1.0.7")]);
        assert_eq!(found(&prefixes, "10.2.0.1"), []);
        assert_eq!(found(&prefixes, "fd00::99"), [vip("fd00::1")]);
        prefixes.set(vip("10.1.0.7"), net("10.1.0.7/32"));
        prefixes.set(vip("10.1.9.7"), None);
        prefixes.set(vip("fd00::1"), None);
        assert_eq!(found(&prefixes, "10.1.0.8"), []);
        assert!(prefixes.of.is_empty() && prefixes.by.is_empty());
    }
}
