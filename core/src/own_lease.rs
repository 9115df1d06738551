//! Keeping our own Lease: when to write it, what a silence means, whose it is.
//!
//! One write at a time. A write goes out when a third of the duration has passed,
//! when the content changed, or soon after a failure. Every success must come back
//! through the watch: if it does not, we no longer see what others do, and have to
//! look for ourselves before somebody acts on what we missed.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::LeaseTimers;
use crate::facts::LeaseFacts;
use crate::ids::{InstanceId, NodeName};
use crate::messages::{LeaseContent, LeaseError, LeaseMode, LeaseRenewal, LeaseWrite};
use crate::reason::FenceCause;
use crate::time::Mono;

/// Time for the adapter to report its own timeout before the engine assumes it.
const ANSWER_GRACE: Duration = Duration::from_millis(250);
/// Renewals whose echo is awaited: the oldest, and the last ones.
const ECHOES: usize = 8;

#[derive(Clone, Debug)]
struct OutstandingWrite {
    seq: u64,
    content: LeaseContent,
    give_up: Mono,
    /// The Lease was lost since: whatever the answer, it is about the one that was.
    void: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LeaseHold {
    /// Not ours yet: nothing was written by this instance.
    Unowned,
    /// Written by us. `echoed`: the watch has shown one of these writes, so that what
    /// it shows from now on is newer than our first one.
    Ours { echoed: bool },
    /// Another instance took it; we stay out while that one lives.
    Displaced { by: InstanceId },
}

/// What became of the Lease in the eyes of this module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    Renewed { sent: Mono },
    Failed { error: String },
    Lost { cause: FenceCause },
}

#[derive(Clone, Debug)]
pub struct OwnLease {
    node: NodeName,
    instance: InstanceId,
    timers: LeaseTimers,
    seq: u64,
    outstanding: Option<OutstandingWrite>,
    /// Last content known to be written.
    written: Option<LeaseContent>,
    hold: LeaseHold,
    /// What the watch last showed under our name.
    seen: Option<LeaseFacts>,
    /// By then the next write goes out, whether or not anything changed.
    next: Mono,
    /// A failure keeps even changed content waiting until `next`.
    backing_off: bool,
    /// A write is wanted that is sent from now on: the one under way is none.
    hurried: bool,
    awaited: VecDeque<(String, Mono)>,
    relisted: bool,
    /// When the last of our writes that came back was sent: what others had written
    /// by then has reached us as well.
    looked: Option<Mono>,
    /// We were fenced then: others may have acted since, so that only a write sent
    /// later tells by its return that we know of it.
    fenced: Option<Mono>,
    /// It was deleted while it listed addresses: whoever saw that waits for us for as long
    /// as it would have lasted, unless a later word says that we have none.
    owes_word: bool,
}

impl OwnLease {
    pub fn new(node: NodeName, instance: InstanceId, timers: LeaseTimers) -> Self {
        Self {
            node,
            instance,
            timers,
            seq: 0,
            outstanding: None,
            written: None,
            hold: LeaseHold::Unowned,
            seen: None,
            next: Mono::ZERO,
            backing_off: false,
            hurried: false,
            awaited: VecDeque::new(),
            relisted: false,
            looked: None,
            fenced: None,
            owes_word: false,
        }
    }

    /// The watch shows our Lease, or its absence.
    pub fn observed(&mut self, seen: Option<&LeaseFacts>) -> Option<LeaseOutcome> {
        self.seen = seen.cloned();
        let Some(facts) = seen else {
            if self.echoed() {
                self.awaited.clear();
                self.relisted = false;
                self.void_outstanding();
                return Some(self.deleted());
            }
            if matches!(self.hold, LeaseHold::Displaced { .. }) {
                self.hold = LeaseHold::Unowned;
            }
            return None;
        };
        if facts.instance.as_ref() == Some(&self.instance) {
            // Our instance alone says nothing: the watch may show the past.
            if let Some(position) = self.awaited.iter().position(|(mark, _)| *mark == facts.renewal) {
                let sent = self.awaited.drain(..=position).map(|(_, sent)| sent).max();
                self.came_back(sent);
            }
            return None;
        }
        match &facts.instance {
            // Before our first write came back, the watch may still show the past.
            _ if !self.echoed() => None,
            Some(by) => {
                self.void_outstanding();
                Some(self.taken(by.clone()))
            }
            None => {
                self.void_outstanding();
                Some(self.deleted())
            }
        }
    }

    /// A renewal under way is one of the Lease that we just lost.
    fn void_outstanding(&mut self) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.void = true;
        }
    }

    /// The watch has shown a write of ours, by its mark.
    fn came_back(&mut self, sent: Option<Mono>) {
        self.looked = self.looked.max(sent);
        self.relisted = false;
        if let LeaseHold::Ours { echoed } = &mut self.hold {
            *echoed = true;
        }
    }

    fn echoed(&self) -> bool {
        self.hold == LeaseHold::Ours { echoed: true }
    }

    fn deleted(&mut self) -> LeaseOutcome {
        self.owes_word |= self.lists_addresses();
        self.hold = LeaseHold::Unowned;
        self.written = None;
        self.next = Mono::ZERO;
        self.backing_off = false;
        LeaseOutcome::Lost { cause: FenceCause::Deleted }
    }

    fn taken(&mut self, by: InstanceId) -> LeaseOutcome {
        self.hold = LeaseHold::Displaced { by: by.clone() };
        self.written = None;
        LeaseOutcome::Lost { cause: FenceCause::Taken { by } }
    }

    /// The write to send now, if one is due. `other_lives`: whoever stands in the
    /// Lease now is alive.
    pub fn due(&mut self, now: Mono, wanted: &LeaseContent, other_lives: bool) -> Option<LeaseWrite> {
        if self.outstanding.is_some() {
            return None;
        }
        if matches!(self.hold, LeaseHold::Displaced { .. }) {
            if other_lives {
                return None;
            }
            self.hold = LeaseHold::Unowned;
            self.next = now;
        }
        let changed = self.written.as_ref() != Some(wanted);
        if now < self.next && (self.backing_off || !changed) {
            return None;
        }
        let mode = match (&self.hold, &self.seen) {
            (LeaseHold::Ours { .. }, _) => LeaseMode::Renew,
            (_, Some(_)) => LeaseMode::TakeOver,
            (_, None) => LeaseMode::Create,
        };
        self.seq += 1;
        self.hurried = false;
        // A hung request must not eat the time of the ones that would succeed.
        let timeout = self.timers.retry_period / 2;
        let give_up = now + timeout + ANSWER_GRACE;
        self.outstanding =
            Some(OutstandingWrite { seq: self.seq, content: wanted.clone(), give_up, void: false });
        Some(LeaseWrite { seq: self.seq, mode, content: wanted.clone(), timeout })
    }

    /// Somebody waits for a write of ours, sent from now on, to come back. Failures
    /// keep their pace.
    pub fn hurry(&mut self, now: Mono) {
        self.hurried = true;
        if !self.backing_off {
            self.next = self.next.min(now);
        }
    }

    /// The answer to a write.
    pub fn answered(
        &mut self,
        now: Mono,
        seq: u64,
        sent: Mono,
        result: Result<LeaseRenewal, LeaseError>,
    ) -> LeaseOutcome {
        let content = match self.outstanding.take() {
            Some(o) if o.seq == seq && o.void && result.is_ok() => return LeaseOutcome::Renewed { sent },
            Some(o) if o.seq == seq => Some(o.content),
            // Late: we gave it up and another is under way.
            other => {
                self.outstanding = other;
                None
            }
        };
        match result {
            Ok(LeaseRenewal { renewal }) => {
                if !matches!(self.hold, LeaseHold::Ours { .. }) {
                    self.hold = LeaseHold::Ours { echoed: false };
                    self.awaited.clear();
                }
                // A late answer is good news of the past; the write that followed it
                // decides what stands in the Lease and what the watch will show.
                if content.is_some() {
                    self.written = content;
                    self.owes_word = false;
                    self.next = if self.hurried { now } else { sent + self.timers.renew_every() };
                    self.backing_off = false;
                    self.await_echo(renewal, sent);
                }
                LeaseOutcome::Renewed { sent }
            }
            Err(error) => {
                self.back_off(now);
                match error {
                    LeaseError::Missing => {
                        self.seen = None;
                        self.deleted()
                    }
                    LeaseError::Taken(by) => self.taken(by),
                    // Its watch event is on the way, or was missed: either way it is there.
                    LeaseError::Exists => {
                        self.hold = LeaseHold::Unowned;
                        self.seen.get_or_insert_with(|| placeholder(&self.node));
                        LeaseOutcome::Failed { error: error.to_string() }
                    }
                    _ => LeaseOutcome::Failed { error: error.to_string() },
                }
            }
        }
    }

    fn await_echo(&mut self, renewal: String, sent: Mono) {
        let shown = self.seen.as_ref().is_some_and(|s| s.renewal == renewal);
        if !shown {
            self.awaited.push_back((renewal, sent));
            // Not the first: for how long nothing has come back is counted from it.
            if self.awaited.len() > ECHOES {
                self.awaited.remove(1);
            }
            return;
        }
        // The watch was faster than the answer.
        self.awaited.clear();
        self.came_back(Some(sent));
    }

    /// We had to let go of everything at `since`: what others did from then on is
    /// known only once a write sent later has come back.
    pub fn was_fenced(&mut self, since: Mono) {
        self.fenced = self.fenced.max(Some(since));
    }

    /// A write sent since the fence came back, or may yet.
    pub fn will_confirm(&self) -> bool {
        let awaited = self.awaited.back().map(|(_, sent)| *sent);
        self.looked.max(awaited) >= self.fenced
    }

    /// A write nobody answered.
    pub fn expire(&mut self, now: Mono) -> Option<LeaseOutcome> {
        self.outstanding.take_if(|o| now >= o.give_up)?;
        self.back_off(now);
        Some(LeaseOutcome::Failed { error: LeaseError::Timeout.to_string() })
    }

    /// Tries of several nodes drift apart, or all would return in one instant.
    fn back_off(&mut self, now: Mono) {
        let every = self.timers.retry_every();
        let salt =
            self.node.as_str().bytes().fold(self.seq, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
        let jitter = every * u32::try_from(salt % 32).unwrap_or(0) / 128;
        self.next = now + every + jitter;
        self.backing_off = true;
    }

    /// Leases should be listed again: a renewal has not come back in time. Once per
    /// silence.
    pub fn wants_relist(&mut self, now: Mono) -> bool {
        let late = self.awaited.front().is_some_and(|(_, sent)| now >= *sent + self.timers.retry_period);
        let ask = late && !self.relisted;
        self.relisted |= ask;
        ask
    }

    /// We have not seen a change of ours for as long as others wait for one.
    pub fn view_is_stale(&self, now: Mono) -> bool {
        self.stale_at().is_some_and(|at| now >= at)
    }

    /// When our picture becomes too old, unless a write of ours comes back before.
    pub fn stale_at(&self) -> Option<Mono> {
        self.awaited.front().map(|(_, sent)| *sent + self.timers.renew_deadline)
    }

    /// Our picture of the others' Leases holds everything written before then.
    pub fn looked(&self) -> Option<Mono> {
        self.looked
    }

    /// What the Lease says, as far as we know: the last content that was written.
    pub fn written(&self) -> Option<&LeaseContent> {
        self.written.as_ref()
    }

    /// Our Lease as the watch shows it, once it has shown a write of ours, and after a
    /// fence one sent since: then what others wrote before has reached us as well.
    pub fn confirmed(&self) -> Option<&LeaseFacts> {
        let ours = self.echoed() && self.looked >= self.fenced;
        self.seen.as_ref().filter(|s| ours && s.instance.as_ref() == Some(&self.instance))
    }

    /// Our Lease, as far as we know, names addresses as ours.
    pub fn lists_addresses(&self) -> bool {
        self.is_ours() && self.written.as_ref().is_some_and(|w| !w.announced.is_empty())
    }

    /// Somebody may wait for us because of what our Lease said when it was deleted.
    pub fn owes_word(&self) -> bool {
        self.owes_word
    }

    pub fn is_ours(&self) -> bool {
        matches!(self.hold, LeaseHold::Ours { .. })
    }

    pub fn seen(&self) -> Option<&LeaseFacts> {
        self.seen.as_ref()
    }

    /// When the write under way counts as failed.
    pub fn write_gives_up(&self) -> Option<Mono> {
        self.outstanding.as_ref().map(|o| o.give_up)
    }

    /// Look again by then. `None` while another instance keeps us out: its expiry is
    /// the membership's deadline.
    pub fn deadline(&self, now: Mono) -> Option<Mono> {
        let write = match (&self.outstanding, &self.hold) {
            (Some(o), _) => Some(o.give_up),
            (None, LeaseHold::Displaced { .. }) => None,
            (None, _) => Some(self.next),
        };
        let relist =
            self.awaited.front().filter(|_| !self.relisted).map(|(_, s)| *s + self.timers.retry_period);
        let stale = self.stale_at().filter(|at| *at > now);
        [write, relist, stale].into_iter().flatten().min()
    }
}

/// A Lease we know exists and have not seen.
fn placeholder(node: &NodeName) -> LeaseFacts {
    LeaseFacts {
        node: node.clone(),
        instance: None,
        duration_seconds: 0,
        renewal: String::new(),
        subnets: Default::default(),
        draining: None,
        announced: None,
        declined: None,
        rank: None,
        macs: None,
        control_endpoint: None,
    }
}

#[cfg(test)]
mod tests;
