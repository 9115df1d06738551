//! Figures for a group's status and metrics.

use super::address_pools::AddressPools;
use super::group::GroupName;
use crate::ids::{Family, Vip};

/// One family of a group. `size == in_use + available`, saturating where the ranges
/// together have more than 2^128 addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyStats {
    /// Addresses Services can get.
    pub size: u128,
    pub in_use: u64,
    pub available: u128,
    /// Addresses Services hold from this group that it would not give today: their
    /// range was taken out or they are excluded now. Not part of `in_use`.
    pub outside: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeStats {
    pub field: String,
    pub family: Family,
    pub size: u128,
    pub in_use: u64,
    pub available: u128,
}

/// A group without accepted ranges has size 0, and may still have addresses outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    pub v4: FamilyStats,
    pub v6: FamilyStats,
    pub ranges: Vec<RangeStats>,
}

impl GroupStats {
    pub fn family(&self, family: Family) -> &FamilyStats {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn family_mut(&mut self, family: Family) -> &mut FamilyStats {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

impl AddressPools {
    /// What Services hold from the group outside its ranges.
    pub fn retained<'a>(&'a self, group: &'a GroupName) -> impl Iterator<Item = Vip> + 'a {
        self.ledger.of_group(group).filter(move |ip| self.group_of(*ip) != Some(group))
    }

    /// Sizes cost O(ranges), `outside` one lookup per address held from the group.
    pub fn stats(&self, group: &GroupName) -> GroupStats {
        let mut stats = GroupStats::default();
        let stocks = self.groups.get(group).into_iter().flat_map(|g| &g.stocks);
        for stock in stocks {
            let range = RangeStats {
                field: stock.range.field().to_owned(),
                family: stock.range.family(),
                size: stock.range.size(),
                in_use: stock.in_use,
                available: stock.available(),
            };
            let family = stats.family_mut(range.family);
            family.size = family.size.saturating_add(range.size);
            family.in_use += range.in_use;
            family.available = family.available.saturating_add(range.available);
            stats.ranges.push(range);
        }
        for ip in self.ledger.of_group(group) {
            let given_today = self.group_of(ip) == Some(group)
                && self.range_of(ip).is_some_and(|range| range.why_excluded(ip).is_none());
            if !given_today {
                stats.family_mut(ip.family()).outside += 1;
            }
        }
        stats
    }
}
