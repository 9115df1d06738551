//! Does anybody have this address? Asked twice, in both ways.
//!
//! ```text
//!   0 ms    echo and resolution
//!   50 ms   the same again
//!   100 ms  nobody answered, and each of them left, and we listened all the time: nobody's
//! ```
//! Any answer ends it. A question that did not leave, or frames that were lost here: it
//! begins again.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::IfIndex;
use crate::segment::HardwareAddr;
use crate::time::Mono;

/// Between the two rounds, and after the second.
pub(super) const ROUND: Duration = Duration::from_millis(50);
/// A little less, so that it has passed when the timer of the next round is due.
const ANSWER_TIME: Duration = Duration::from_millis(40);
const ROUNDS: u32 = 2;
/// Looked again this soon, should the report of the listening be late.
const AGAIN: Duration = Duration::from_millis(10);
/// Without an outcome by then, there is none to be had.
const PATIENCE: Duration = Duration::from_millis(700);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InquiryPurpose {
    /// May the address of a silent owner be taken (R12)?
    Takeover,
    /// Is an address that is to be put here somebody's? In place of the kernel's own detection.
    Duplicate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InquiryResult {
    Nobody,
    Somebody(HardwareAddr),
    /// Questions did not leave, or we could not listen.
    Failed,
}

#[derive(Clone, Debug)]
pub(super) struct Inquiry {
    pub(super) index: IfIndex,
    pub(super) purpose: InquiryPurpose,
    began: Mono,
    rounds: u32,
    /// When each question of these rounds left.
    sent: BTreeMap<u64, Option<Mono>>,
    pub(super) next: Mono,
    pub(super) result: Option<InquiryResult>,
    pub(super) ended: Mono,
}

impl Inquiry {
    pub(super) fn new(now: Mono, index: IfIndex, purpose: InquiryPurpose) -> Self {
        Self {
            index,
            purpose,
            began: now,
            rounds: 0,
            sent: BTreeMap::new(),
            next: now,
            result: None,
            ended: now,
        }
    }

    /// Another round is to be asked now.
    pub(super) fn is_due(&self, now: Mono) -> bool {
        self.result.is_none() && self.rounds < ROUNDS && now >= self.next
    }

    pub(super) fn asked(&mut self, now: Mono, ids: impl IntoIterator<Item = u64>) {
        self.rounds += 1;
        self.sent.extend(ids.into_iter().map(|id| (id, None)));
        self.next = now + ROUND;
    }

    pub(super) fn left(&mut self, now: Mono, id: u64, result: Result<Mono, ()>) {
        match (self.sent.get_mut(&id), result) {
            (Some(sent), Ok(at)) => *sent = Some(at),
            (Some(_), Err(())) => self.begin_again(now + ROUND),
            (None, _) => {}
        }
    }

    pub(super) fn begin_again(&mut self, at: Mono) {
        if self.result.is_none() {
            (self.rounds, self.next) = (0, at);
            self.sent.clear();
        }
    }

    pub(super) fn heard(&mut self, now: Mono, at: Mono, mac: HardwareAddr) {
        let asked = self.rounds > 0 && at >= self.began;
        if self.result.is_none() && asked {
            self.end(now, InquiryResult::Somebody(mac));
        }
    }

    pub(super) fn conclude(&mut self, now: Mono, listened_until: Mono) {
        if self.result.is_some() || now < self.next || self.rounds < ROUNDS {
            if self.result.is_none() && now >= self.began + PATIENCE {
                self.end(now, InquiryResult::Failed);
            }
            return;
        }
        let over = |sent: &Option<Mono>| sent.is_some_and(|at| listened_until >= at + ANSWER_TIME);
        if self.sent.values().all(over) {
            self.end(now, InquiryResult::Nobody);
        } else if now >= self.began + PATIENCE {
            self.end(now, InquiryResult::Failed);
        } else {
            self.next = now + AGAIN;
        }
    }

    fn end(&mut self, now: Mono, result: InquiryResult) {
        (self.result, self.ended) = (Some(result), now);
        self.sent.clear();
    }
}
