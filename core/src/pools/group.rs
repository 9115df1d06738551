//! A ServiceGroup as the pools see it: a name, an age, and its ranges in order.

use std::fmt;

use super::error::{RangeError, RangeProblem};
use super::range::Range;
use crate::ids::{Family, IdError, ObjectKey};

/// `namespace/name` of a ServiceGroup. A type of its own, so that a Service's key
/// cannot stand where a group's belongs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(ObjectKey);

impl GroupName {
    pub fn of(namespace: &str, name: &str) -> Result<Self, IdError> {
        ObjectKey::of(namespace, name).map(Self)
    }

    pub fn key(&self) -> &ObjectKey {
        &self.0
    }

    /// The name alone, as in `purelb.io/allocated-from`.
    pub fn name(&self) -> &str {
        self.0.name()
    }
}

impl From<ObjectKey> for GroupName {
    fn from(key: ObjectKey) -> Self {
        Self(key)
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A group whose ranges are disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    name: GroupName,
    created: i64,
    ranges: Vec<Range>,
}

impl Group {
    /// `created`: the object's creation time in seconds; only its order counts.
    /// `ranges`: in declaration order; the order between the families is free.
    pub fn new(name: GroupName, created: i64, ranges: Vec<Range>) -> Result<Self, RangeError> {
        let mut sorted: Vec<&Range> = ranges.iter().collect();
        sorted.sort_by_key(|range| range.span());
        for (below, above) in sorted.iter().zip(sorted.iter().skip(1)) {
            if below.span().overlaps(&above.span()) {
                return Err(RangeError {
                    field: format!("{}.pool", above.field()),
                    problem: RangeProblem::OverlapsSibling {
                        pool: above.span(),
                        other: below.field().to_owned(),
                    },
                });
            }
        }
        Ok(Self { name, created, ranges })
    }

    pub fn name(&self) -> &GroupName {
        &self.name
    }

    pub fn created(&self) -> i64 {
        self.created
    }

    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    pub fn has_family(&self, family: Family) -> bool {
        self.ranges.iter().any(|range| range.family() == family)
    }
}
