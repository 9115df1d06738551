//! The one clock of the lab: `CLOCK_BOOTTIME`, the clock the daemon counts on, so that
//! probes, claims, address events and log lines can be laid side by side.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use purelb_core::Mono;

/// The time now.
pub fn now() -> Mono {
    mono(read(ClockId::CLOCK_BOOTTIME))
}

/// Sleeps until `at`, and does not drift: the wait is for a point, not for a while.
pub(super) fn sleep_until(at: Mono) {
    let nanos = at.as_nanos();
    let point = TimeSpec::new((nanos / NANOS) as i64, (nanos % NANOS) as i64);
    // A signal ends the sleep early; the point stays the same.
    while clock_nanosleep(ClockId::CLOCK_BOOTTIME, ClockNanosleepFlags::TIMER_ABSTIME, &point)
        .is_err_and(|e| e == nix::errno::Errno::EINTR)
    {}
}

/// A kernel packet timestamp, which is wall-clock time, on the lab's clock. Good as
/// long as the wall clock is not set between the packet and this call.
pub(super) fn from_wall(stamp: TimeSpec) -> Mono {
    let age = mono(read(ClockId::CLOCK_REALTIME)).since(mono(stamp));
    now() - age
}

/// Lets the calling thread run ahead of ordinary work, so that a compiler in the next
/// terminal does not look like an outage. Where that is not allowed, things go on as
/// they are: the prober reports how late it was.
#[allow(unsafe_code)]
pub(super) fn prefer_this_thread() {
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameter is a plain struct that outlives the call; 0 is this thread.
    unsafe {
        let mut parameter: libc::sched_param = std::mem::zeroed();
        parameter.sched_priority = 1;
        libc::sched_setscheduler(0, policy, &raw const parameter);
    }
}

const NANOS: u64 = 1_000_000_000;

fn read(clock: ClockId) -> TimeSpec {
    clock_gettime(clock).expect("Linux has had this clock since 2.6.39")
}

fn mono(time: TimeSpec) -> Mono {
    Mono::from_nanos(time.tv_sec() as u64 * NANOS + time.tv_nsec() as u64)
}
