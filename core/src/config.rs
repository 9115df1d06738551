//! What the engine is told once, at its start.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use crate::detector::{DetectorConfig, DetectorConfigError};
use crate::ids::{IfName, InstanceId, NodeName};

/// A Lease longer than this would keep a dead node's addresses away from everybody
/// for minutes: peers count at most this much, so a holder may not ask for more.
pub const LONGEST_LEASE: Duration = Duration::from_secs(300);

/// The kernel's lifetimes end late: its work on them is rounded to whole seconds, and
/// its timers are the coarser the further ahead they are set, by an eighth at worst. The
/// gap between renew deadline and duration must hold that, or a peer could claim first
/// (R3). What was measured stands in `docs/benchmarks.md`.
pub fn kernel_lateness(lifetime: Duration) -> Duration {
    Duration::from_millis(1500) + lifetime / 8
}

/// The longest lifetime, in steps that one can write down, that a Lease of this
/// duration has room for.
fn longest_lifetime(duration: Duration) -> Duration {
    let room = duration.saturating_sub(kernel_lateness(Duration::ZERO)) * 8 / 9;
    Duration::from_millis(u64::try_from(room.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
}

fn shortest_duration(deadline: Duration) -> Duration {
    let room = deadline + kernel_lateness(deadline);
    Duration::from_secs(room.as_secs() + u64::from(room.subsec_nanos() > 0))
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineConfig {
    pub node: NodeName,
    pub instance: InstanceId,
    pub timers: LeaseTimers,
    /// Of addresses whose ServiceGroup does not say it.
    pub fence: FencePolicy,
    pub handoff: HandoffTimes,
    /// How long a regained address, subnet or carrier must be stable (R8).
    pub gain_delay: Duration,
    /// Give local VIPs lifetimes that end at the fence (R3).
    pub kernel_fence: bool,
    /// Repeats of announcements per second and interface; firsts are never held back.
    pub announce_rate: u32,
    /// Interfaces on which others put service addresses by design, so that one
    /// found there is no conflict (kube-proxy's IPVS mode binds all of them).
    pub shadow_interfaces: BTreeSet<IfName>,
    /// The drain mark kept across restarts.
    pub draining: Option<String>,
    pub detector: DetectorConfig,
}

impl EngineConfig {
    pub fn new(node: NodeName, instance: InstanceId) -> Self {
        Self {
            node,
            instance,
            timers: LeaseTimers::default(),
            fence: FencePolicy::Strict,
            handoff: HandoffTimes::default(),
            gain_delay: Duration::from_secs(2),
            kernel_fence: true,
            announce_rate: 1000,
            shadow_interfaces: BTreeSet::from([IfName::new("kube-ipvs0").expect("a valid interface name")]),
            draining: None,
            detector: DetectorConfig::default(),
        }
    }
}

/// What a holder does with an address when it cannot renew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FencePolicy {
    /// Withdraw it at the renew deadline.
    #[default]
    Strict,
    /// Keep it while nobody else claims it on its segment (R14).
    Ride,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffTimes {
    /// The old owner waits for the new one's word this long, from that one's next sign of
    /// life on; see `handoff`.
    pub deadline: Duration,
    /// After the word it keeps the address this much longer: frames in flight,
    /// clients that asked while both answered.
    pub linger: Duration,
}

impl Default for HandoffTimes {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(5), linger: Duration::from_millis(250) }
    }
}

/// The Lease's timers. `duration > renew_deadline > retry_period > 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimers {
    pub duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl Default for LeaseTimers {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            retry_period: Duration::from_secs(2),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeaseTimersError {
    #[error("lease duration {0:?} is not a whole number of seconds, which is all a Lease can say")]
    NotWholeSeconds(Duration),
    #[error("lease duration {0:?} is longer than {LONGEST_LEASE:?}, the most that other nodes will count")]
    TooLong(Duration),
    #[error("the retry period must be longer than zero")]
    NoRetry,
    #[error("the renew deadline {deadline:?} must be longer than the retry period {retry:?}")]
    DeadlineTooShort { deadline: Duration, retry: Duration },
    #[error(
        "the lease duration {duration:?} must exceed the renew deadline {deadline:?} by at least {:?}: the kernel, \
         which may be that late, has to remove an address before another node may claim it. Set the renew deadline \
         to {:?} at most, or the duration to {:?} at least",
        kernel_lateness(*deadline),
        longest_lifetime(*duration),
        shortest_duration(*deadline)
    )]
    NoMargin { duration: Duration, deadline: Duration },
    #[error(
        "the renew deadline {deadline:?} must exceed a third of the lease duration {duration:?} by a second"
    )]
    RenewedTooLate { deadline: Duration, duration: Duration },
}

impl LeaseTimers {
    pub fn checked(self) -> Result<Self, LeaseTimersError> {
        let Self { duration, renew_deadline: deadline, retry_period: retry } = self;
        if duration.subsec_nanos() != 0 {
            return Err(LeaseTimersError::NotWholeSeconds(duration));
        }
        if duration > LONGEST_LEASE {
            return Err(LeaseTimersError::TooLong(duration));
        }
        if retry.is_zero() {
            return Err(LeaseTimersError::NoRetry);
        }
        if deadline <= retry {
            return Err(LeaseTimersError::DeadlineTooShort { deadline, retry });
        }
        if duration < deadline + kernel_lateness(deadline) {
            return Err(LeaseTimersError::NoMargin { duration, deadline });
        }
        // Kernel lifetimes are floored to whole seconds: less room than this and a
        // healthy node's addresses would blink between two renewals.
        if deadline < self.renew_every() + Duration::from_secs(1) {
            return Err(LeaseTimersError::RenewedTooLate { deadline, duration });
        }
        Ok(self)
    }

    /// One renewal every third of the duration.
    pub fn renew_every(self) -> Duration {
        self.duration / 3
    }

    /// How much life a rider gives an address at a time: what a healthy one has left when its
    /// next renewal is due, so that a daemon that dies can be restarted in time, and until the
    /// next is given.
    pub fn ride_step(self) -> Duration {
        let left = self.renew_deadline.saturating_sub(self.renew_every());
        (left + self.ride_every()).min(self.renew_deadline)
    }

    pub fn ride_every(self) -> Duration {
        self.retry_period.min(self.renew_deadline / 3)
    }

    /// After a failure: well within the retry period, so that a node is back in
    /// the election soon after the API server is.
    pub fn retry_every(self) -> Duration {
        self.retry_period / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timers(duration: u64, deadline: u64, retry: u64) -> LeaseTimers {
        LeaseTimers {
            duration: Duration::from_secs(duration),
            renew_deadline: Duration::from_secs(deadline),
            retry_period: Duration::from_secs(retry),
        }
    }

    #[test]
    fn the_defaults_are_valid() {
        LeaseTimers::default().checked().unwrap();
        timers(5, 3, 1).checked().unwrap();
        timers(60, 40, 10).checked().unwrap();
        timers(300, 200, 10).checked().unwrap();
    }

    /// The longer a lifetime, the later the kernel may end it.
    #[test]
    fn the_margin_grows_with_the_deadline() {
        let refused = |duration, deadline| {
            let error = timers(duration, deadline, 1).checked().unwrap_err();
            assert!(matches!(error, LeaseTimersError::NoMargin { .. }), "{error}");
            error.to_string()
        };
        let words = refused(10, 8);
        assert!(words.contains("at least 2.5s"), "{words}");
        assert!(
            words.contains("deadline to 7.5s at most") && words.contains("duration to 11s at least"),
            "{words}"
        );
        refused(60, 55);
        refused(300, 290);
        for duration in 5..=300 {
            let timers = LeaseTimers {
                duration: Duration::from_secs(duration),
                renew_deadline: longest_lifetime(Duration::from_secs(duration)),
                retry_period: Duration::from_secs(1),
            };
            timers.checked().unwrap_or_else(|e| panic!("what we advise is refused: {e}"));
            let advised = LeaseTimers { duration: shortest_duration(timers.renew_deadline), ..timers };
            advised.checked().unwrap_or_else(|e| panic!("what we advise is refused: {e}"));
        }
    }

    #[test]
    fn each_bad_relation_has_its_own_words() {
        assert!(matches!(timers(301, 200, 2).checked(), Err(LeaseTimersError::TooLong(_))));
        assert!(matches!(timers(10, 7, 0).checked(), Err(LeaseTimersError::NoRetry)));
        assert!(matches!(timers(10, 2, 2).checked(), Err(LeaseTimersError::DeadlineTooShort { .. })));
        assert!(matches!(timers(10, 9, 2).checked(), Err(LeaseTimersError::NoMargin { .. })));
        assert!(matches!(timers(12, 4, 2).checked(), Err(LeaseTimersError::RenewedTooLate { .. })));
        let uneven = LeaseTimers { duration: Duration::from_millis(10_500), ..LeaseTimers::default() };
        assert!(matches!(uneven.checked(), Err(LeaseTimersError::NotWholeSeconds(_))));
    }
}
