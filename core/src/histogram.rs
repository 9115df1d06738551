//! Values counted by how large they were: what a histogram needs, and no more.
//!
//! Fixed bounds, so that the picture stays small and a figure of one node can be added
//! to another's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const BOUNDS: usize = 13;

/// Upper bounds of times, in microseconds: from one look at an address to beyond any
/// deadline of ours.
pub const TIME_BOUNDS: [u64; BOUNDS] = [
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000,
];
/// Upper bounds of shares of a whole, in thousandths: fine where it gets dangerous.
pub const SHARE_BOUNDS: [u64; BOUNDS] = [50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 800, 1_000];

/// How many values were at most each bound, the last place for those beyond all of
/// them; and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    pub counts: [u64; BOUNDS + 1],
    pub sum: u64,
}

impl Histogram {
    pub fn record_time(&mut self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), &TIME_BOUNDS);
    }

    /// `part` of `whole`, which is counted as whole if it is longer.
    pub fn record_share(&mut self, part: Duration, whole: Duration) {
        let share = (part.as_micros() * 1_000).checked_div(whole.as_micros()).unwrap_or(0);
        self.add(u64::try_from(share).unwrap_or(u64::MAX).min(1_000), &SHARE_BOUNDS);
    }

    fn add(&mut self, value: u64, bounds: &[u64; BOUNDS]) {
        let place = bounds.iter().position(|bound| value <= *bound).unwrap_or(BOUNDS);
        self.counts[place] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_under_the_first_bound_that_holds_them() {
        let mut times = Histogram::default();
        for millis in [1, 3, 20_000] {
            times.record_time(Duration::from_millis(millis));
        }
        assert_eq!((times.counts[0], times.counts[2], times.counts[BOUNDS]), (1, 1, 1));
        assert_eq!((times.count(), times.sum), (3, 20_004_000));
    }

    #[test]
    fn shares_of_nothing_and_of_less_than_the_part_stay_within_the_whole() {
        let mut shares = Histogram::default();
        let second = Duration::from_secs(1);
        shares.record_share(second, Duration::ZERO);
        shares.record_share(second, second / 2);
        shares.record_share(second / 4, second);
        assert_eq!((shares.counts[0], shares.counts[BOUNDS - 1], shares.counts[4]), (1, 1, 1));
        assert_eq!(shares.counts[BOUNDS], 0);
    }
}
