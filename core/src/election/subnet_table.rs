//! Advertised subnets: cleaning what a member says, and finding who contains an address.
//!
//! A table of exact prefixes, asked once per prefix length in use. Real clusters use a
//! handful of lengths, so a lookup is a handful of map searches, and it returns *all*
//! containing prefixes: there is no longest-prefix match in this election.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::node_table::NodeId;
use crate::Family;

/// What a member advertises, as the table wants it: host bits cleared, IPv4-mapped
/// prefixes written as the IPv4 prefixes they are (their addresses are, see
/// [`crate::Vip`]), sorted, each once.
pub(super) fn clean(subnets: impl IntoIterator<Item = IpNet>) -> Vec<IpNet> {
    let mut clean: Vec<IpNet> = subnets.into_iter().map(|net| unmap(net.trunc())).collect();
    clean.sort_unstable();
    clean.dedup();
    clean
}

fn unmap(net: IpNet) -> IpNet {
    let IpNet::V6(v6) = net else { return net };
    v6.addr()
        .to_ipv4_mapped()
        .zip(v6.prefix_len().checked_sub(96))
        .and_then(|(addr, len)| Ipv4Net::new(addr, len).ok())
        .map_or(net, IpNet::V4)
}

pub(super) fn contain(subnets: &[IpNet], ip: IpAddr) -> bool {
    subnets.iter().any(|net| net.contains(&ip))
}

/// The prefixes of `a` that are not in `b`, without those inside another one: ranges
/// that do not overlap, so that walking them meets each address once. Both are clean.
pub(super) fn widest_missing(a: &[IpNet], b: &[IpNet]) -> Vec<IpNet> {
    let mut widest: Vec<IpNet> = Vec::new();
    for net in a.iter().filter(|net| b.binary_search(net).is_err()) {
        // Sorted by address, then length: a prefix follows the one that contains it.
        if !widest.last().is_some_and(|last| last.contains(net)) {
            widest.push(*net);
        }
    }
    widest
}

/// Who advertises which prefix.
#[derive(Clone, Debug, Default)]
pub(super) struct SubnetTable {
    /// Sorted ids of the members advertising exactly this prefix.
    members: BTreeMap<IpNet, Vec<NodeId>>,
    /// How many prefixes of each length there are.
    lengths: BTreeMap<(Family, u8), usize>,
}

fn length_of(net: &IpNet) -> (Family, u8) {
    (Family::of(net.addr()), net.prefix_len())
}

impl SubnetTable {
    pub(super) fn insert(&mut self, net: IpNet, id: NodeId) {
        let members = self.members.entry(net).or_insert_with(|| {
            *self.lengths.entry(length_of(&net)).or_default() += 1;
            Vec::new()
        });
        if let Err(at) = members.binary_search(&id) {
            members.insert(at, id);
        }
    }

    pub(super) fn remove(&mut self, net: &IpNet, id: NodeId) {
        let Some(members) = self.members.get_mut(net) else {
            return;
        };
        if let Ok(at) = members.binary_search(&id) {
            members.remove(at);
        }
        if !members.is_empty() {
            return;
        }
        self.members.remove(net);
        if let Some(count) = self.lengths.get_mut(&length_of(net)) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length_of(net));
            }
        }
    }

    /// Members with any prefix that contains the address, sorted, each once. Borrowed
    /// where one prefix answers, which is nearly always.
    pub(super) fn containing(&self, ip: IpAddr) -> Cow<'_, [NodeId]> {
        let family = Family::of(ip);
        let mut found = self
            .lengths
            .range((family, 0)..=(family, family.bits()))
            .filter_map(|((_, len), _)| self.members.get(&IpNet::new(ip, *len).ok()?.trunc()));
        let Some(first) = found.next() else {
            return Cow::Borrowed(&[]);
        };
        let mut all = Cow::Borrowed(first.as_slice());
        for more in found {
            all.to_mut().extend_from_slice(more);
        }
        if let Cow::Owned(ids) = &mut all {
            ids.sort_unstable();
            ids.dedup();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn advertised_subnets_are_masked_unmapped_sorted_and_unique() {
        let given = nets(&[
            "fd00::5/64",
            "192.168.1.7/24",
            "::ffff:192.168.1.0/120",
            "192.168.1.0/24",
            "::ffff:0:0/95",
        ]);
        assert_eq!(
            clean(given),
            nets(&["192.168.1.0/24", "::fffe:0:0/95", "fd00::/64"]),
            "a prefix wider than the mapped range stays IPv6"
        );
    }

    #[test]
    fn missing_prefixes_do_not_overlap() {
        let a = clean(nets(&["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16", "11.0.0.0/16", "fd00::/64"]));
        let b = clean(nets(&["10.0.0.0/8", "fd00::/64"]));
        assert_eq!(widest_missing(&a, &[]), nets(&["10.0.0.0/8", "11.0.0.0/16", "fd00::/64"]));
        assert_eq!(widest_missing(&a, &b), nets(&["10.1.0.0/16", "10.2.0.0/16", "11.0.0.0/16"]));
        assert_eq!(widest_missing(&b, &a), []);
    }

    #[test]
    fn every_containing_prefix_counts_and_a_removed_one_does_not() {
        let mut table = SubnetTable::default();
        let [wide, narrow, other] = [NodeId(2), NodeId(1), NodeId(0)];
        table.insert("10.0.0.0/8".parse().unwrap(), wide);
        table.insert("10.1.0.0/16".parse().unwrap(), narrow);
        table.insert("10.1.0.0/16".parse().unwrap(), wide);
        table.insert("::/0".parse().unwrap(), other);
        assert_eq!(*table.containing("10.1.2.3".parse().unwrap()), [narrow, wide]);
        assert_eq!(*table.containing("10.2.2.3".parse().unwrap()), [wide]);
        assert_eq!(*table.containing("::1".parse().unwrap()), [other]);
        table.remove(&"10.1.0.0/16".parse().unwrap(), narrow);
        table.remove(&"10.1.0.0/16".parse().unwrap(), wide);
        assert_eq!(*table.containing("10.1.2.3".parse().unwrap()), [wide]);
        assert_eq!(table.lengths.len(), 2, "a length nobody uses is not asked for");
    }
}
