//! Whether our own Lease is ours beyond doubt, and until when (R2, R3).
//!
//! ```text
//!   renewal sent      answer        renew deadline              duration
//!   ─────┬──────────────┬────────────────┬──────────────────────────┬─────▶
//!        │              │                │ we withdraw              │ at the earliest,
//!        │              │                │ kernel lifetimes end     │ a peer may claim
//!        └── counted from here           └── (late by `kernel_lateness` at most)
//! ```
//!
//! Peers count from when they saw the change, which cannot be before we sent it. So
//! counting from the sending is always the shorter of the two.

use std::time::Duration;

use crate::config::LeaseTimers;
use crate::reason::FenceCause;
use crate::time::Mono;

#[derive(Clone, Debug)]
pub struct Fence {
    timers: LeaseTimers,
    /// When the last renewal that succeeded was sent.
    renewed: Option<Mono>,
    /// Certain loss, and when we learnt of it: no deadline to wait for.
    lost: Option<(Mono, FenceCause)>,
    last_error: Option<String>,
}

impl Fence {
    pub fn new(timers: LeaseTimers) -> Self {
        Self { timers, renewed: None, lost: None, last_error: None }
    }

    /// A renewal sent at `sent` succeeded. Answers may arrive out of order: the
    /// latest sending counts. A write sent before a loss is no recovery from it.
    pub fn renewed(&mut self, sent: Mono) {
        if self.lost.as_ref().is_some_and(|(since, _)| sent < *since) {
            return;
        }
        self.renewed = Some(self.renewed.map_or(sent, |known| known.max(sent)));
        self.lost = None;
        self.last_error = None;
    }

    pub fn failed(&mut self, error: String) {
        self.last_error = Some(error);
    }

    /// Peers may count us out from now on: deleted, taken.
    pub fn lose(&mut self, now: Mono, cause: FenceCause) {
        self.renewed = None;
        self.lost = Some((now, cause));
    }

    /// The moment at which everything must be off this node, unless renewed, or its policy is
    /// to ride (see `engine/ride.rs`).
    pub fn deadline(&self) -> Option<Mono> {
        self.renewed.map(|sent| sent + self.timers.renew_deadline)
    }

    /// The latest moment until which an address may live in the kernel. The same
    /// moment as the deadline: the kernel's lateness fits between it and the
    /// duration (checked with the timers). Lifetimes are whole seconds: `None` if not a
    /// single one is left.
    pub fn kernel_until(&self, now: Mono) -> Option<Mono> {
        self.deadline().filter(|until| now.until(*until) >= Duration::from_secs(1))
    }

    /// `None`: healthy.
    pub fn cause(&self, now: Mono) -> Option<FenceCause> {
        if let Some((_, lost)) = &self.lost {
            return Some(lost.clone());
        }
        match self.deadline() {
            None => Some(FenceCause::NeverRenewed),
            Some(deadline) if now >= deadline => {
                Some(FenceCause::Expired { last_error: self.last_error.clone() })
            }
            Some(_) => None,
        }
    }

    /// Since when the last renewal is too long ago; `None`: it is not, or was lost
    /// for another reason.
    pub fn ran_out(&self, now: Mono) -> Option<Mono> {
        self.deadline().filter(|deadline| self.lost.is_none() && now >= *deadline)
    }
}

#[cfg(test)]
mod tests;
