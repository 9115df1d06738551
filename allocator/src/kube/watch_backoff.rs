//! How long a watch that broke waits before it is opened again.

use std::time::Duration;

use kube::runtime::utils::Backoff;

const FIRST: Duration = Duration::from_millis(100);
/// Only the leader watches, a handful of kinds: no crowd that would come back at once. So
/// it is there within a second after the API server is.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Pause {
    next: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = self.next;
        self.next = (now * 2).min(LONGEST);
        Some(now)
    }
}

impl Backoff for Pause {
    fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_start_over() {
        let mut pause = Pause::default();
        let seen: Vec<u128> = pause.by_ref().take(6).map(|d| d.as_millis()).collect();
        assert_eq!(seen, [100, 200, 400, 800, 1000, 1000]);
        pause.reset();
        assert_eq!(pause.next(), Some(FIRST));
    }
}
