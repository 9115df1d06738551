//! When to tell the segment who has an address (R9).
//!
//! The first announcement goes out once the kernel shows the address, and is never
//! dropped. Repeats follow for equipment that missed it; each is checked against
//! ownership again, and gives way when an interface has more to say than its rate.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::facts::GarpConfig;
use crate::ids::{IfIndex, IfName, Vip};
use crate::time::Mono;

/// A repeat this far behind its time comes from a process that was held up. Another node
/// may have the address by now, and we have yet to hear of it.
const TOO_LATE: Duration = Duration::from_secs(1);
/// A first announcement that could not be sent is tried again this soon.
const FIRST_RETRY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
struct Schedule {
    index: IfIndex,
    interface: IfName,
    next: Mono,
    left: u32,
    first: bool,
    verify: bool,
    interval: Duration,
}

/// Repeats allowed per second and interface.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u32,
    filled: Mono,
}

/// One announcement to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub vip: Vip,
    pub index: IfIndex,
    pub interface: IfName,
    pub first: bool,
}

#[derive(Clone, Debug)]
pub struct Announcer {
    rate: u32,
    schedules: BTreeMap<Vip, Schedule>,
    buckets: BTreeMap<IfIndex, Bucket>,
    dropped: u64,
}

impl Announcer {
    pub fn new(rate: u32) -> Self {
        Self { rate, schedules: BTreeMap::new(), buckets: BTreeMap::new(), dropped: 0 }
    }

    /// The kernel shows the address: announce it, from the beginning.
    pub fn start(&mut self, now: Mono, vip: Vip, index: IfIndex, interface: IfName, config: &GarpConfig) {
        let schedule = Schedule {
            index,
            interface,
            next: now + config.delay,
            left: config.count.max(1),
            first: true,
            verify: config.verify,
            interval: config.interval,
        };
        self.schedules.insert(vip, schedule);
    }

    /// The address is no longer ours to announce.
    pub fn cancel(&mut self, vip: Vip) {
        self.schedules.remove(&vip);
    }

    /// A first announcement did not get out.
    pub fn failed(&mut self, now: Mono, vip: Vip, index: IfIndex, interface: IfName, config: &GarpConfig) {
        self.start(
            now + FIRST_RETRY,
            vip,
            index,
            interface,
            &GarpConfig { delay: Duration::ZERO, ..config.clone() },
        );
    }

    /// What is to be sent now. `ours`: the address is in the kernel and ours at this
    /// very moment.
    pub fn due(&mut self, now: Mono, ours: impl Fn(Vip) -> bool) -> Vec<Due> {
        let ready: Vec<Vip> = self.schedules.iter().filter(|(_, s)| s.next <= now).map(|(v, _)| *v).collect();
        let mut due = Vec::with_capacity(ready.len());
        for vip in ready {
            let Some(schedule) = self.schedules.get_mut(&vip) else {
                continue;
            };
            if (schedule.first || schedule.verify) && !ours(vip) {
                self.schedules.remove(&vip);
                continue;
            }
            let first = schedule.first;
            let too_late = !first && now.since(schedule.next) > TOO_LATE;
            let sent = Due { vip, index: schedule.index, interface: schedule.interface.clone(), first };
            schedule.first = false;
            schedule.left -= 1;
            schedule.next = now + schedule.interval;
            if schedule.left == 0 {
                self.schedules.remove(&vip);
            }
            if first || (!too_late && self.take_token(now, sent.index)) {
                due.push(sent);
            } else {
                self.dropped += 1;
            }
        }
        due
    }

    fn take_token(&mut self, now: Mono, index: IfIndex) -> bool {
        let rate = self.rate;
        let bucket = self.buckets.entry(index).or_insert(Bucket { tokens: rate, filled: now });
        let gained = now.since(bucket.filled).as_nanos().saturating_mul(u128::from(rate)) / 1_000_000_000;
        if gained > 0 {
            bucket.tokens = u32::try_from(gained).unwrap_or(u32::MAX).saturating_add(bucket.tokens).min(rate);
            bucket.filled = now;
        }
        let allowed = bucket.tokens > 0;
        bucket.tokens = bucket.tokens.saturating_sub(1);
        allowed
    }

    pub fn deadline(&self) -> Option<Mono> {
        self.schedules.values().map(|s| s.next).min()
    }

    /// Repeats that gave way to the rate, or came too late.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests;
