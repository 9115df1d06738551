//! The free numbers of one range, as disjoint intervals.
//!
//! A full /16 is an empty map, an untouched /64 is one entry: taking the lowest,
//! taking a given one and giving one back are each O(log intervals), where a scan
//! for the first free address would walk every address in use.

use std::collections::BTreeMap;

/// Disjoint, never touching, inclusive intervals: first -> last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FreeSet {
    intervals: BTreeMap<u128, u128>,
}

impl FreeSet {
    pub(super) fn full(first: u128, last: u128) -> Self {
        Self { intervals: BTreeMap::from([(first, last)]) }
    }

    pub(super) fn lowest(&self) -> Option<u128> {
        self.intervals.first_key_value().map(|(first, _)| *first)
    }

    fn around(&self, n: u128) -> Option<(u128, u128)> {
        let (first, last) = self.intervals.range(..=n).next_back()?;
        (*last >= n).then_some((*first, *last))
    }

    #[cfg(test)]
    pub(super) fn contains(&self, n: u128) -> bool {
        self.around(n).is_some()
    }

    /// Takes one number; false if it was not free.
    pub(super) fn remove(&mut self, n: u128) -> bool {
        let Some((first, last)) = self.around(n) else {
            return false;
        };
        if first < n {
            self.intervals.insert(first, n - 1);
        } else {
            self.intervals.remove(&first);
        }
        if n < last {
            self.intervals.insert(n + 1, last);
        }
        true
    }

    /// Takes every number of `first..=last` that is free.
    pub(super) fn remove_span(&mut self, first: u128, last: u128) {
        while let Some((from, to)) =
            self.intervals.range(..=last).next_back().map(|(a, b)| (*a, *b)).filter(|(_, to)| *to >= first)
        {
            self.intervals.remove(&from);
            if to > last {
                self.intervals.insert(last + 1, to);
            }
            if from < first {
                self.intervals.insert(from, first - 1);
            }
        }
    }

    /// Gives one number back, joining its neighbours; false if it was free already.
    pub(super) fn insert(&mut self, n: u128) -> bool {
        if self.around(n).is_some() {
            return false;
        }
        let left = n.checked_sub(1).and_then(|below| self.around(below));
        let right = n.checked_add(1).and_then(|above| self.around(above));
        if let Some((first, _)) = right {
            self.intervals.remove(&first);
        }
        let first = left.map_or(n, |(first, _)| first);
        let last = right.map_or(n, |(_, last)| last);
        self.intervals.insert(first, last);
        true
    }

    #[cfg(test)]
    pub(super) fn intervals(&self) -> Vec<(u128, u128)> {
        self.intervals.iter().map(|(a, b)| (*a, *b)).collect()
    }
}
