//! The daemon's clock and its timer: CLOCK_BOOTTIME, which keeps running through
//! suspend (R2). A timer on any other clock would sleep on after the machine woke up,
//! while a peer has long taken the addresses over.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use purelb_core::Mono;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Now, on the clock that every [`Mono`] of this host stands on.
pub fn now() -> Mono {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .expect("every Linux since 2.6.39 has CLOCK_BOOTTIME");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
    Mono::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// One deadline at a time.
#[derive(Debug)]
pub struct BootTimer {
    timer: AsyncFd<Fd>,
    armed: Option<Mono>,
}

#[derive(Debug)]
struct Fd(TimerFd);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl BootTimer {
    /// Inside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
        Ok(Self { timer: watch(Fd(timer))?, armed: None })
    }

    /// Replaces the deadline.
    pub fn arm(&mut self, at: Option<Mono>) -> io::Result<()> {
        if self.armed == at {
            return Ok(());
        }
        match at {
            Some(at) => {
                // The value zero would disarm it.
                let nanos = i64::try_from(at.as_nanos().max(1)).unwrap_or(i64::MAX);
                let time = TimeSpec::new(nanos / 1_000_000_000, nanos % 1_000_000_000);
                let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
                self.timer.get_ref().0.set(Expiration::OneShot(time), flags)?;
            }
            None => self.timer.get_ref().0.unset()?,
        }
        self.armed = at;
        Ok(())
    }

    /// Waits for the deadline; for ever, if there is none. Safe to give up and ask again.
    pub async fn passed(&mut self) -> io::Result<()> {
        loop {
            let mut guard = self.timer.readable().await?;
            let read = guard.try_io(|fd| {
                let mut count = [0u8; 8];
                nix::unistd::read(&fd.get_ref().0, &mut count).map_err(io::Error::from)
            });
            match read {
                Ok(Ok(_)) => {
                    self.armed = None;
                    return Ok(());
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_not_yet) => {}
            }
        }
    }
}

#[allow(unsafe_code)]
fn watch(timer: Fd) -> io::Result<AsyncFd<Fd>> {
    // SAFETY: the descriptor is owned by `timer`, which the result keeps and never gives
    // out by value: it stays open and the same for as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_timer_keeps_its_deadline_and_takes_another() {
        let mut timer = BootTimer::new().unwrap();
        let (far, near) = (now() + Duration::from_secs(3600), now() + Duration::from_millis(20));
        timer.arm(Some(far)).unwrap();
        timer.arm(Some(near)).unwrap();
        timer.passed().await.unwrap();
        assert!(now() >= near);
        timer.arm(Some(Mono::ZERO)).unwrap();
        timer.passed().await.unwrap();
        timer.arm(None).unwrap();
        let wait = tokio::time::timeout(Duration::from_millis(30), timer.passed());
        assert!(wait.await.is_err(), "a timer without a deadline fired");
    }
}
