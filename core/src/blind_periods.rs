//! Could we have seen what others wrote?
//!
//! ```text
//!   our writes    ✓────✓────✗───✗───✗───✓
//!   came back     ✓────✓                └✓
//!                      └─── blind ───────┘└── retry period ──▶ our clock
//! ```
//! While nothing we write comes back we see nothing of the others, and they may see as
//! little: the API server was away for everybody. Who expires in such a time is dead, or
//! about to be back like ourselves. The first one back would claim everything and hand it
//! over within a second, so the others get the time that a retry takes.

use std::time::Duration;

use crate::config::LeaseTimers;
use crate::time::Mono;

#[derive(Clone, Copy, Debug)]
struct BlindPeriod {
    /// The last write before it that came back was sent then.
    from: Mono,
    /// The first one after it came back then.
    back: Mono,
    /// The last one, if it went on.
    to: Mono,
}

#[derive(Clone, Debug)]
pub struct BlindPeriods {
    timers: LeaseTimers,
    looked: Option<Mono>,
    /// A write failed since one came back.
    troubled: bool,
    blind: Option<BlindPeriod>,
}

impl BlindPeriods {
    pub fn new(timers: LeaseTimers) -> Self {
        Self { timers, looked: None, troubled: false, blind: None }
    }

    /// A write of ours failed.
    pub fn failed(&mut self) {
        self.troubled = true;
    }

    /// `looked`: when the last of our writes that came back was sent.
    pub fn update(&mut self, now: Mono, looked: Option<Mono>) {
        let Some(sent) = looked.filter(|at| self.looked.is_none_or(|known| *at > known)) else {
            return;
        };
        let troubled = std::mem::take(&mut self.troubled);
        let Some(before) = self.looked.replace(sent) else {
            return;
        };
        let late = now.since(sent) > self.timers.retry_period;
        let paused = sent.since(before) > self.timers.renew_every() + self.timers.retry_period;
        if troubled || late || paused {
            // One that goes on after a moment of sight is the same; but who could have been seen
            // for a whole duration is dead, however troubled our writes are.
            let goes_on = |b: &BlindPeriod| now < b.to + self.grace() && now < b.back + self.timers.duration;
            let (from, back) = self.blind.filter(goes_on).map_or((before, now), |b| (b.from, b.back));
            self.blind = Some(BlindPeriod { from, back, to: now });
        }
    }

    fn grace(&self) -> Duration {
        self.timers.retry_period
    }

    /// Until when one that expired then may turn out to live.
    pub fn excuses(&self, expired: Mono) -> Option<Mono> {
        self.blind.filter(|b| b.from <= expired && expired <= b.to).map(|b| b.to + self.grace())
    }
}

#[cfg(test)]
mod tests;
