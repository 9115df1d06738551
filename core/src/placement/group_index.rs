//! To which ServiceGroup an address belongs, and so how it is served.
//!
//! A Service says it, too: `allocated-from`, `pool-type`. But whoever may edit the Service
//! can write that, and an address that counts as remote goes, with its prefix route, to
//! every node. So the groups themselves are asked, in this order:
//!
//! 1. the accepted group whose range has the address,
//! 2. the group that retains it: it gave the address before its ranges were edited,
//! 3. a group whose range lies in the same subnet, a local one before a remote one,
//! 4. for an address in nobody's subnet: the group that the Service names, if that is one
//!    whose book somebody else keeps (NetBox, external). Its addresses are known to the
//!    allocator alone; the cluster's admission policy keeps tenants from naming it.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::facts::{FencePolicy, GroupFacts, PoolType, RangeFacts};
use crate::ids::{Family, Vip};
use crate::pools::{DisjointRanges, Span};

/// What a group says of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddressGroup {
    pub(super) group: String,
    pub(super) pool: PoolType,
    pub(super) skip_ipv6_dad: bool,
    pub(super) fence_policy: Option<FencePolicy>,
    /// The range the address is in, or was.
    pub(super) range: Option<RangeFacts>,
}

impl AddressGroup {
    fn to(group: &GroupFacts, range: Option<&RangeFacts>) -> Self {
        Self {
            group: group.name.clone(),
            pool: group.pool,
            skip_ipv6_dad: group.skip_ipv6_dad,
            fence_policy: group.fence_policy,
            range: range.cloned(),
        }
    }
}

/// Which addresses are whose. Groups whose ranges overlap an older one's are not accepted,
/// as in the allocator.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupIndex {
    ranges: DisjointRanges<AddressGroup>,
    retained: BTreeMap<Vip, AddressGroup>,
    /// All ranges, best first.
    subnets: Vec<AddressGroup>,
}

impl GroupIndex {
    pub(super) fn of<'a>(groups: impl Iterator<Item = &'a GroupFacts>) -> Self {
        let mut groups: Vec<&GroupFacts> = groups.collect();
        groups.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let mut grounds = Self::default();
        for group in groups {
            let spans: Vec<(Span, &RangeFacts)> =
                group.ranges.iter().filter_map(|r| Some((span(r)?, r))).collect();
            for vip in &group.retained {
                let near = group.ranges.iter().find(|r| r.subnet.contains(&vip.ip()));
                grounds.retained.entry(*vip).or_insert_with(|| AddressGroup::to(group, near));
            }
            if spans.iter().any(|(span, _)| grounds.ranges.taken(span).is_some()) {
                continue;
            }
            for (span, range) in spans {
                let whose = AddressGroup::to(group, Some(range));
                // Two ranges of one group may not overlap either; the first counts.
                if grounds.ranges.taken(&span).is_none() {
                    grounds.ranges.take(span, whose.clone());
                }
                grounds.subnets.push(whose);
            }
        }
        grounds.subnets.sort_by_key(|b| b.pool != PoolType::Local);
        grounds
    }

    /// `marks`: the groups that the Services with the address name.
    pub(super) fn find<'a>(
        &self,
        vip: Vip,
        marks: impl Iterator<Item = &'a str>,
        groups: &BTreeMap<String, GroupFacts>,
    ) -> Option<AddressGroup> {
        let in_subnet = |b: &&AddressGroup| b.range.as_ref().is_some_and(|r| r.subnet.contains(&vip.ip()));
        let known = self.ranges.at(vip).or_else(|| self.retained.get(&vip));
        if let Some(known) = known.or_else(|| self.subnets.iter().find(in_subnet)) {
            return Some(known.clone());
        }
        let mut named = marks.filter_map(|name| groups.get(name));
        named.find(|group| group.provided).map(|group| AddressGroup::to(group, given(vip, group).as_ref()))
    }
}

/// What a provider's address is known by: itself, with the length its group asks for. One
/// number for both families: up to /32 it is meant for IPv4, and would be half a continent
/// of IPv6; past that for IPv6. The other family's address stays alone.
fn given(vip: Vip, group: &GroupFacts) -> Option<RangeFacts> {
    let meant_for = |length: u8| if length <= Family::V4.bits() { Family::V4 } else { Family::V6 };
    let length = group.aggregation.filter(|length| meant_for(*length) == vip.family())?;
    let subnet = IpNet::new(vip.ip(), length).ok()?.trunc();
    Some(RangeFacts { subnet, first: vip.ip(), last: vip.ip(), aggregation: Some(length) })
}

fn span(range: &RangeFacts) -> Option<Span> {
    Span::of_addresses(range.first, range.last)
}
