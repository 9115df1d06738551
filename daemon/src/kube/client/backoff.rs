//! Waiting between tries: longer each time, and never all nodes in one instant.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, next: least }
    }

    /// How long to wait now: between half of the step and all of it.
    pub(crate) fn step(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.most);
        step / 2 + random_below(step / 2)
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.least;
    }
}

/// A random time below `most`.
pub(crate) fn random_below(most: Duration) -> Duration {
    // The standard library seeds every hasher anew: random enough to drift apart.
    let chance = RandomState::new().hash_one(0u8) >> 11;
    most.mul_f64(chance as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_its_bound_with_jitter_and_starts_over() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(5000));
        let steps: Vec<Duration> = (0..20).map(|_| backoff.step()).collect();
        assert!((ms(50)..=ms(100)).contains(&steps[0]), "{steps:?}");
        assert!(steps[10..].iter().all(|s| (ms(2500)..=ms(5000)).contains(s)), "{steps:?}");
        assert!(steps[10..].windows(2).any(|w| w[0] != w[1]), "no jitter: {steps:?}");
        backoff.reset();
        assert!(backoff.step() <= ms(100));
    }
}
