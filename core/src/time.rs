//! Time as the engine sees it: a point on a monotonic clock that keeps running
//! through suspend, handed in with every call. Nothing in this crate reads a clock.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on this host's monotonic clock (`CLOCK_BOOTTIME` in the daemon), in
/// nanoseconds. Only meaningful on the host that made it: two hosts' values are
/// never compared (R2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mono(u64);

impl Mono {
    pub const ZERO: Self = Self(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long until `later`; zero if it has passed.
    pub fn until(self, later: Self) -> Duration {
        later.since(self)
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Mono {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}

impl AddAssign<Duration> for Mono {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Mono {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(d)))
    }
}

impl fmt::Display for Mono {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Mono::ZERO - Duration::from_secs(1), Mono::ZERO);
        let far = Mono::from_nanos(u64::MAX) + Duration::from_secs(1);
        assert_eq!(far, Mono::from_nanos(u64::MAX));
        assert_eq!(Mono::from_millis(u64::MAX), Mono::from_nanos(u64::MAX));
    }

    #[test]
    fn differences_are_never_negative() {
        let (a, b) = (Mono::from_millis(100), Mono::from_millis(350));
        assert_eq!(b.since(a), Duration::from_millis(250));
        assert_eq!(a.since(b), Duration::ZERO);
        assert_eq!(a.until(b), Duration::from_millis(250));
    }

    #[test]
    fn survives_serialisation() {
        let t = Mono::from_nanos(123_456_789_012);
        let text = format!("{}", t.as_nanos());
        assert_eq!(Mono::from_nanos(text.parse().unwrap()), t);
        assert_eq!(t.to_string(), "123.456s");
    }
}
