//! Which groups may be used: two groups never give from the same addresses.
//!
//! The older group keeps its ranges, then the lower namespace/name. The answer
//! depends on the groups alone, not on which one was seen first, so a restarted
//! allocator refuses the same ones.

use std::collections::BTreeMap;
use std::fmt;

use super::group::{Group, GroupName};
use super::span::Span;
use crate::ids::{Family, Vip};

/// The overlap a group is refused for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOverlap {
    /// Field of the refused group.
    pub field: String,
    /// The accepted group, and its field.
    pub with: GroupName,
    pub with_field: String,
    /// The addresses both claim.
    pub shared: Span,
}

impl fmt::Display for GroupOverlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, with, with_field, shared } = self;
        write!(
            f,
            "{field}.pool overlaps {with_field}.pool of ServiceGroup {with} in {shared}: take it out of one of them"
        )
    }
}

/// Ranges that are disjoint, and whose each is.
///
/// Only the last one that starts at or below a range's end can overlap it: O(log n) per
/// range, not a comparison of all pairs.
#[derive(Clone, Debug)]
pub struct DisjointRanges<T>(BTreeMap<(Family, u128), (Span, T)>);

impl<T> Default for DisjointRanges<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> DisjointRanges<T> {
    /// What is taken already of a range, and by whom.
    pub fn taken(&self, span: &Span) -> Option<(Span, &T)> {
        let (_, (known, whose)) = self.0.range(..=(span.family(), span.high())).next_back()?;
        Some((known.intersection(span)?, whose))
    }

    /// Takes a range of which nothing is taken.
    pub fn take(&mut self, span: Span, whose: T) {
        self.0.insert((span.family(), span.low()), (span, whose));
    }

    pub fn at(&self, ip: Vip) -> Option<&T> {
        self.taken(&Span::single(ip)).map(|(_, whose)| whose)
    }
}

/// The refused groups and what each overlaps with. All others are accepted.
pub fn admit<'a>(groups: impl IntoIterator<Item = &'a Group>) -> BTreeMap<GroupName, GroupOverlap> {
    let mut groups: Vec<&Group> = groups.into_iter().collect();
    groups.sort_by(|a, b| (a.created(), a.name()).cmp(&(b.created(), b.name())));
    let mut accepted: DisjointRanges<(&Group, &str)> = DisjointRanges::default();
    let mut refused = BTreeMap::new();
    for group in groups {
        let overlap = group.ranges().iter().find_map(|range| {
            let (shared, (with, with_field)) = accepted.taken(&range.span())?;
            Some(GroupOverlap {
                field: range.field().to_owned(),
                with: with.name().clone(),
                with_field: (*with_field).to_owned(),
                shared,
            })
        });
        if let Some(overlap) = overlap {
            refused.insert(group.name().clone(), overlap);
            continue;
        }
        for range in group.ranges() {
            accepted.take(range.span(), (group, range.field()));
        }
    }
    refused
}
