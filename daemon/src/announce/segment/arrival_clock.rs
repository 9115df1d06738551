//! When a frame arrived, on the engine's clock. The kernel stamps frames by the wall clock,
//! which may be set at any time.

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use purelb_core::Mono;

use crate::host::clock;

/// Both clocks at one moment, shortly after the frames were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivalClock {
    now: Mono,
    wall: Duration,
}

impl ArrivalClock {
    pub(super) fn read() -> Self {
        let wall = clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, since_epoch);
        Self { now: clock::now(), wall }
    }

    /// `not_before`: the socket held no frame then. If the wall clock was set since the frame
    /// arrived its stamp means nothing, and the moment lies between the two all the same.
    pub(super) fn arrival(&self, stamp: TimeSpec, not_before: Mono) -> Mono {
        let age = self.wall.saturating_sub(since_epoch(stamp));
        (self.now - age).clamp(not_before, self.now.max(not_before))
    }
}

fn since_epoch(time: TimeSpec) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_becomes_a_moment() {
        let clock = ArrivalClock { now: Mono::from_millis(60_000), wall: Duration::from_secs(1_000_000) };
        let arrival = |seconds, nanos, not_before| {
            clock.arrival(TimeSpec::new(seconds, nanos), Mono::from_millis(not_before))
        };
        assert_eq!(arrival(999_999, 750_000_000, 0), Mono::from_millis(59_750));
        assert_eq!(arrival(1_000_005, 0, 59_000), Mono::from_millis(60_000), "the clock was set back");
        assert_eq!(arrival(1, 0, 59_000), Mono::from_millis(59_000), "the clock was set ahead");
        assert_eq!(arrival(1, 0, 60_001), Mono::from_millis(60_001));
    }
}
