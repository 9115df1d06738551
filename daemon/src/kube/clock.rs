//! The clock that Lease writes are counted on.

use purelb_core::Mono;

/// Now on CLOCK_BOOTTIME, which keeps running through suspend (R2).
pub(crate) fn now() -> Mono {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .expect("every Linux since 2.6.39 has CLOCK_BOOTTIME");
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Mono::from_nanos(part(time.tv_sec()).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec())))
}
