//! What a Service asks for, and what it got.

use std::fmt;

use super::error::AllocateError;
use super::group::GroupName;
use super::ledger::SharingConflict;
use super::range::Range;
use super::sharing_terms::SharingTerms;
use crate::ids::{Family, ObjectKey, Vip};

/// Families a Service wants, as its `ipFamilyPolicy` and `ipFamilies` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// SingleStack.
    One(Family),
    /// RequireDualStack: both, or nothing.
    Both { first: Family },
    /// PreferDualStack: both where possible, else the one there is.
    Either { first: Family },
}

impl Families {
    /// The wanted families, the primary one first.
    pub fn order(self) -> impl Iterator<Item = Family> {
        let (first, both) = match self {
            Self::One(family) => (family, false),
            Self::Both { first } | Self::Either { first } => (first, true),
        };
        let second = match first {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        };
        std::iter::once(first).chain(both.then_some(second))
    }

    pub fn wants(self, family: Family) -> bool {
        self.order().any(|wanted| wanted == family)
    }
}

/// How to choose among the ranges of a family.
#[derive(Clone, Copy)]
pub enum RangePick<'a> {
    /// The lowest free address of the first range, in declaration order, that has one.
    FirstFit,
    /// The lowest free address of the range with the fewest in use.
    Balanced,
    /// Multi-pool: one address from every range the caller calls eligible.
    EveryRange(&'a dyn Fn(&Range) -> bool),
}

impl fmt::Debug for RangePick<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstFit => "FirstFit",
            Self::Balanced => "Balanced",
            Self::EveryRange(_) => "EveryRange",
        })
    }
}

/// A request brings a Service to the addresses it should have. What it already
/// holds in the group counts, so asking twice gives the same answer, and a Service
/// that turns dual-stack gets only what it lacks.
#[derive(Clone, Debug)]
pub struct AddressRequest<'a> {
    pub service: &'a ObjectKey,
    pub group: &'a GroupName,
    pub families: Families,
    /// Explicit addresses, at most one per family. A family without one is chosen
    /// by `pick`. An explicit address is given or the request refused; it is never
    /// replaced by another.
    pub explicit: &'a [Vip],
    /// Addresses it holds and may not keep.
    pub leaves: &'a [Vip],
    pub terms: SharingTerms,
    pub pick: RangePick<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantKind {
    /// Nobody held it before.
    New,
    /// Held by others with the same sharing key.
    Shared,
    /// The Service had it already.
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedAddress {
    pub ip: Vip,
    pub how: GrantKind,
}

/// Something a request could do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    pub family: Family,
    /// Multi-pool: the range that gave nothing.
    pub field: Option<String>,
    pub why: AllocateError,
}

/// The answer to a request; never without an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressGrant {
    /// The primary family first, within a family in the order of the ranges.
    pub addresses: Vec<GrantedAddress>,
    /// The second family of PreferDualStack, or ranges of a multi-pool.
    pub missing: Vec<Shortfall>,
    /// Addresses the Service still holds that this request did not ask for: to be
    /// released once the Service shows the new ones (new first, then release).
    pub surplus: Vec<Vip>,
    /// Kept addresses the Service's ports or key no longer go along with the
    /// others' on it.
    pub conflicts: Vec<SharingConflict>,
}

impl AddressGrant {
    pub fn ips(&self) -> impl Iterator<Item = Vip> {
        self.addresses.iter().map(|granted| granted.ip)
    }
}
