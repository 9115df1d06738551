//! The pools: accepted groups, their free addresses, and the ledger.

use std::collections::{BTreeMap, BTreeSet};

use super::admission::{GroupOverlap, admit};
use super::error::AllocateError;
use super::free_set::FreeSet;
use super::group::{Group, GroupName};
use super::ledger::{AddressClaim, Ledger, SharingConflict, slot};
use super::range::{ExclusionReason, Range};
use super::sharing_terms::SharingTerms;
use super::span::{address, number};
use crate::ids::{Family, ObjectKey, Vip};

/// A range and what is free in it.
#[derive(Clone, Debug)]
pub(super) struct RangeStock {
    pub(super) range: Range,
    free: FreeSet,
    /// Held addresses a Service may get; the excluded ones some Service holds from
    /// before are not counted, so that size = in use + available.
    pub(super) in_use: u64,
}

impl RangeStock {
    fn new(range: Range, ledger: &Ledger) -> Self {
        let span = range.span();
        let mut free = FreeSet::full(span.low(), span.high());
        for hole in range.holes() {
            free.remove_span(hole.first, hole.last);
        }
        let mut stock = Self { range, free, in_use: 0 };
        for n in ledger.within(&span) {
            stock.take(n);
        }
        stock
    }

    fn take(&mut self, n: u128) {
        self.free.remove(n);
        if self.range.why_number(n).is_none() {
            self.in_use += 1;
        }
    }

    fn give_back(&mut self, n: u128) {
        if self.range.why_number(n).is_none() && self.free.insert(n) {
            self.in_use -= 1;
        }
    }

    pub(super) fn available(&self) -> u128 {
        self.range.size() - u128::from(self.in_use)
    }

    /// The lowest address a Service can get. Addresses ending in .0 and .255 are cut
    /// out when they first turn up: each is met at most once in the stock's life.
    pub(super) fn lowest(&mut self) -> Option<Vip> {
        if self.available() == 0 {
            return None;
        }
        loop {
            let n = self.free.lowest()?;
            if self.range.why_number(n).is_none() {
                return Some(Vip::new(address(self.range.family(), n)));
            }
            self.free.remove(n);
        }
    }
}

/// Where an address lies today.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolPlace {
    /// In a range of an accepted group.
    In { group: GroupName, field: String },
    /// In a range, but no Service would get it now.
    Excluded { group: GroupName, field: String, why: ExclusionReason },
    /// In no range: the range was taken out, or its group is gone or refused.
    Outside,
}

impl PoolPlace {
    pub fn group(&self) -> Option<&GroupName> {
        match self {
            Self::In { group, .. } | Self::Excluded { group, .. } => Some(group),
            Self::Outside => None,
        }
    }
}

/// A held address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAddress {
    pub ip: Vip,
    pub place: PoolPlace,
    pub holders: BTreeMap<ObjectKey, AddressClaim>,
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// Nobody holds the address any more.
    Freed,
    /// So many others share it.
    StillHeldBy(usize),
    /// The Service did not hold it. Nothing changed.
    NotHeld,
}

/// Which groups are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupAdmission {
    pub accepted: BTreeSet<GroupName>,
    pub refused: BTreeMap<GroupName, GroupOverlap>,
}

#[derive(Clone, Debug)]
pub(super) struct AcceptedGroup {
    pub(super) group: Group,
    pub(super) stocks: Vec<RangeStock>,
}

/// A span's end, and which range of which group it is.
#[derive(Clone, Debug)]
struct RangeLocation {
    last: u128,
    group: GroupName,
    stock: usize,
}

/// All pools of the cluster.
#[derive(Clone, Debug, Default)]
pub struct AddressPools {
    pub(super) groups: BTreeMap<GroupName, AcceptedGroup>,
    refused: BTreeMap<GroupName, GroupOverlap>,
    /// Start of every accepted range. They are disjoint: the last one starting at or
    /// below an address is the only one that can contain it.
    index: BTreeMap<(Family, u128), RangeLocation>,
    pub(super) ledger: Ledger,
}

impl AddressPools {
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all groups. No claim is touched: whoever holds an address keeps it,
    /// in today's ranges or not. Of two groups with one name the later counts.
    pub fn set_groups(&mut self, groups: impl IntoIterator<Item = Group>) -> GroupAdmission {
        let groups: BTreeMap<GroupName, Group> =
            groups.into_iter().map(|group| (group.name().clone(), group)).collect();
        self.refused = admit(groups.values());
        self.index.clear();
        let mut former = std::mem::take(&mut self.groups);
        for (name, group) in groups {
            if self.refused.contains_key(&name) {
                continue;
            }
            for (stock, range) in group.ranges().iter().enumerate() {
                let location = RangeLocation { last: range.span().high(), group: name.clone(), stock };
                self.index.insert((range.family(), range.span().low()), location);
            }
            let accepted = match former.remove(&name) {
                Some(same) if same.group == group => same,
                _ => {
                    let fresh = |range: &Range| RangeStock::new(range.clone(), &self.ledger);
                    let stocks = group.ranges().iter().map(fresh).collect();
                    AcceptedGroup { group, stocks }
                }
            };
            self.groups.insert(name, accepted);
        }
        self.admission()
    }

    pub fn admission(&self) -> GroupAdmission {
        GroupAdmission { accepted: self.groups.keys().cloned().collect(), refused: self.refused.clone() }
    }

    /// The accepted group of that name.
    pub fn group(&self, name: &GroupName) -> Option<&Group> {
        self.groups.get(name).map(|accepted| &accepted.group)
    }

    /// The accepted group one of whose ranges contains the address.
    pub fn group_of(&self, ip: Vip) -> Option<&GroupName> {
        self.locate(ip).map(|(group, _)| group)
    }

    /// The range that contains the address.
    pub fn range_of(&self, ip: Vip) -> Option<&Range> {
        let (group, stock) = self.locate(ip)?;
        Some(&self.groups.get(group)?.stocks.get(stock)?.range)
    }

    pub fn place(&self, ip: Vip) -> PoolPlace {
        let Some(((group, _), range)) = self.locate(ip).zip(self.range_of(ip)) else {
            return PoolPlace::Outside;
        };
        let (group, field) = (group.clone(), range.field().to_owned());
        match range.why_excluded(ip) {
            None => PoolPlace::In { group, field },
            Some(why) => PoolPlace::Excluded { group, field, why },
        }
    }

    /// Records what a Service already has, found in its status. Never refused: two
    /// Services on one address are both recorded, whoever came first, and show up in
    /// `conflicts`. Recording again updates the terms.
    pub fn adopt(&mut self, service: &ObjectKey, ip: Vip, claim: AddressClaim) -> PoolPlace {
        self.claim(service, ip, claim);
        self.place(ip)
    }

    pub(super) fn claim(&mut self, service: &ObjectKey, ip: Vip, claim: AddressClaim) {
        if self.ledger.put(service, ip, claim)
            && let Some(stock) = self.stock_mut(ip)
        {
            stock.take(number(ip.ip()));
        }
    }

    /// Ends one Service's hold on one address.
    pub fn release(&mut self, service: &ObjectKey, ip: Vip) -> ReleaseOutcome {
        match self.ledger.remove(service, ip) {
            None => ReleaseOutcome::NotHeld,
            Some(0) => {
                if let Some(stock) = self.stock_mut(ip) {
                    stock.give_back(number(ip.ip()));
                }
                ReleaseOutcome::Freed
            }
            Some(others) => ReleaseOutcome::StillHeldBy(others),
        }
    }

    /// Addresses a Service holds, lowest first.
    pub fn addresses_of(&self, service: &ObjectKey) -> impl Iterator<Item = Vip> {
        self.ledger.of_service(service)
    }

    /// A Service's hold on an address, if it has it.
    pub fn claim_of(&self, service: &ObjectKey, ip: Vip) -> Option<&AddressClaim> {
        self.ledger.get(ip)?.holders().get(service)
    }

    /// Who on the address has `externalTrafficPolicy: Local` and other pods than a
    /// Service with these terms.
    pub fn other_pods(&self, service: &ObjectKey, ip: Vip, terms: &SharingTerms) -> Option<ObjectKey> {
        self.ledger.get(ip)?.other_pods(service, terms)
    }

    /// How many Services hold the address.
    pub fn references(&self, ip: Vip) -> usize {
        self.ledger.get(ip).map_or(0, |address| address.holders().len())
    }

    /// A held address with its holders; None: nobody holds it.
    pub fn held(&self, ip: Vip) -> Option<HeldAddress> {
        self.ledger.get(ip).map(|address| HeldAddress {
            ip,
            place: self.place(ip),
            holders: address.holders().clone(),
        })
    }

    /// Every held address, lowest first.
    pub fn all_held(&self) -> impl Iterator<Item = HeldAddress> {
        self.ledger.addresses().filter_map(|(ip, _)| self.held(ip))
    }

    /// Addresses on which Services sit that did not agree to share.
    pub fn conflicts(&self) -> impl Iterator<Item = SharingConflict> {
        self.ledger.addresses().filter_map(|(ip, _)| self.ledger.conflict(ip))
    }

    pub(super) fn locate(&self, ip: Vip) -> Option<(&GroupName, usize)> {
        let (family, n) = slot(ip);
        let ((found, _), location) = self.index.range(..=(family, n)).next_back()?;
        (*found == family && n <= location.last).then_some((&location.group, location.stock))
    }

    fn stock_mut(&mut self, ip: Vip) -> Option<&mut RangeStock> {
        let (group, stock) = self.locate(ip)?;
        let group = group.clone();
        self.groups.get_mut(&group)?.stocks.get_mut(stock)
    }

    pub(super) fn accepted(&self, name: &GroupName) -> Result<&AcceptedGroup, AllocateError> {
        if let Some(accepted) = self.groups.get(name) {
            return Ok(accepted);
        }
        let group = name.clone();
        match self.refused.get(name) {
            Some(overlap) => Err(AllocateError::GroupRefused { group, overlap: Box::new(overlap.clone()) }),
            None => Err(AllocateError::NoSuchGroup { group }),
        }
    }
}
