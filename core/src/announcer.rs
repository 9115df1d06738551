//! When to tell the segment who has an address (R9).
//!
//! The first announcement goes out once the kernel shows the address, and is never
//! dropped. Repeats follow for equipment that missed it; each is checked against
//! ownership again, and gives way when an interface has more to say than its rate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::GarpConfig;
use crate::ids::{IfIndex, IfName, Vip};
use crate::time::Mono;

/// An announcement this far behind its time comes from a process that was held up. Another
/// node may have the address by now, and we have yet to hear of it.
const TOO_LATE: Duration = Duration::from_secs(1);
/// A first announcement that could not be sent is tried again this soon.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// A refresh for which the rate left no room looks again this soon.
const REFRESH_RETRY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
struct AnnouncementSchedule {
    index: IfIndex,
    interface: IfName,
    next: Mono,
    left: u32,
    first: bool,
    verify: bool,
    interval: Duration,
    /// After the last repeat, again every so often.
    refresh: Option<Duration>,
}

/// Repeats allowed per second and interface.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    tokens: u32,
    filled: Mono,
}

/// One announcement to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueAnnouncement {
    pub vip: Vip,
    pub index: IfIndex,
    pub interface: IfName,
    pub first: bool,
    /// Not to be sent later than this.
    pub until: Mono,
}

#[derive(Clone, Debug)]
pub struct Announcer {
    rate: u32,
    schedules: BTreeMap<Vip, AnnouncementSchedule>,
    /// The same by time: with refreshes there is one for every address we hold.
    queue: BTreeSet<(Mono, Vip)>,
    buckets: BTreeMap<IfIndex, TokenBucket>,
    dropped: u64,
}

impl Announcer {
    pub fn new(rate: u32) -> Self {
        Self {
            rate,
            schedules: BTreeMap::new(),
            queue: BTreeSet::new(),
            buckets: BTreeMap::new(),
            dropped: 0,
        }
    }

    /// The kernel shows the address: announce it, from the beginning.
    pub fn start(&mut self, now: Mono, vip: Vip, index: IfIndex, interface: IfName, config: &GarpConfig) {
        let schedule = AnnouncementSchedule {
            index,
            interface,
            next: now + config.delay,
            left: config.count.max(1),
            first: true,
            verify: config.verify,
            interval: config.interval,
            refresh: config.refresh,
        };
        self.put(vip, schedule);
    }

    fn put(&mut self, vip: Vip, schedule: AnnouncementSchedule) {
        self.queue.insert((schedule.next, vip));
        let next = schedule.next;
        if let Some(before) = self.schedules.insert(vip, schedule)
            && before.next != next
        {
            self.queue.remove(&(before.next, vip));
        }
    }

    /// The address is announced and ours: from now on again every so often, or no longer.
    /// What is under way stays as it is.
    pub fn refresh_every(
        &mut self,
        now: Mono,
        vip: Vip,
        index: IfIndex,
        interface: &IfName,
        every: Option<Duration>,
    ) {
        match (self.schedules.get_mut(&vip), every) {
            (Some(schedule), _) if schedule.refresh == every => {}
            (Some(schedule), _) if schedule.left > 0 => schedule.refresh = every,
            (Some(_), None) => self.cancel(vip),
            (_, Some(every)) => {
                let schedule = AnnouncementSchedule {
                    index,
                    interface: interface.clone(),
                    next: now + every,
                    left: 0,
                    first: false,
                    verify: true,
                    interval: Duration::ZERO,
                    refresh: Some(every),
                };
                self.put(vip, schedule);
            }
            (None, None) => {}
        }
    }

    /// The address is no longer ours to announce.
    pub fn cancel(&mut self, vip: Vip) {
        if let Some(schedule) = self.schedules.remove(&vip) {
            self.queue.remove(&(schedule.next, vip));
        }
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
    pub fn due(&mut self, now: Mono, ours: impl Fn(Vip) -> bool) -> Vec<DueAnnouncement> {
        // By address, not by how late each is: which of them the rate lets through does
        // not depend on when they were to be sent.
        let ready: BTreeSet<Vip> =
            self.queue.iter().take_while(|(at, _)| *at <= now).map(|(_, vip)| *vip).collect();
        let mut due = Vec::with_capacity(ready.len());
        for vip in ready {
            let Some(mut schedule) = self.schedules.get(&vip).cloned() else {
                continue;
            };
            self.cancel(vip);
            let refreshing = schedule.left == 0;
            if (schedule.first || schedule.verify || refreshing) && !ours(vip) {
                continue;
            }
            let first = schedule.first;
            let too_late = !first && now.since(schedule.next) > TOO_LATE;
            let sent = DueAnnouncement {
                vip,
                index: schedule.index,
                interface: schedule.interface.clone(),
                first,
                until: now + TOO_LATE,
            };
            schedule.first = false;
            schedule.left = schedule.left.saturating_sub(1);
            schedule.next = now + schedule.interval;
            if schedule.left == 0 {
                schedule.next = now + schedule.refresh.unwrap_or_default();
            }
            let over = schedule.left == 0 && schedule.refresh.is_none();
            if first || (!too_late && self.take_token(now, sent.index)) {
                due.push(sent);
            } else if refreshing && !too_late {
                // With more of them than the rate lets through, each waits for its turn: the
                // last in line would otherwise give way every time.
                schedule.next = now + REFRESH_RETRY;
            } else {
                self.dropped += 1;
            }
            if !over {
                self.put(vip, schedule);
            }
        }
        due
    }

    fn take_token(&mut self, now: Mono, index: IfIndex) -> bool {
        let rate = self.rate;
        let bucket = self.buckets.entry(index).or_insert(TokenBucket { tokens: rate, filled: now });
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
        self.queue.first().map(|(at, _)| *at)
    }

    /// Repeats that gave way to the rate, or came too late.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests;
