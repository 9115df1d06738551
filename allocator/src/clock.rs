//! The one clock: monotonic, and running on through suspend.

use nix::time::{ClockId, clock_gettime};
use purelb_core::Mono;

/// Now, on `CLOCK_BOOTTIME`. A machine that slept through its lease must not wake up
/// believing that it still leads, so a clock that stands still in suspend will not do.
pub fn now() -> Mono {
    let at = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has had CLOCK_BOOTTIME since 2.6.39");
    let seconds = u64::try_from(at.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(at.tv_nsec()).unwrap_or(0);
    Mono::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
