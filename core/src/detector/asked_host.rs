//! Somebody who is asked again and again: what was asked, what came back.

use std::time::Duration;

use crate::segment::{HardwareAddr, QuestionKind, SightingKind};
use crate::time::Mono;

/// A question that nobody told us the fate of is given up.
const UNTOLD: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenQuestion {
    id: u64,
    asked: Mono,
    /// When it left.
    sent: Option<Mono>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct AskedHost {
    /// That of the last answer.
    pub(super) mac: Option<HardwareAddr>,
    pub(super) answered: Option<Mono>,
    /// Questions in a row that left, and that nobody answered while we listened.
    pub(super) misses: u32,
    /// When the first of those left.
    pub(super) missing_since: Option<Mono>,
    /// It answers resolution, and no echo.
    pub(super) by_resolve: bool,
    open: Option<OpenQuestion>,
    /// Not asked before then.
    pub(super) next: Mono,
}

impl AskedHost {
    pub(super) fn is_waiting(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn asked(&mut self, now: Mono, id: u64) {
        self.open = Some(OpenQuestion { id, asked: now, sent: None });
    }

    /// The question left, or did not: one that did not counts for nothing.
    pub(super) fn left(&mut self, id: u64, result: Result<Mono, ()>) {
        let Some(open) = self.open.as_mut().filter(|open| open.id == id) else { return };
        match result {
            Ok(at) => open.sent = Some(at),
            Err(()) => self.open = None,
        }
    }

    pub(super) fn answered(&mut self, at: Mono, mac: HardwareAddr, kind: SightingKind) {
        if self.answered.is_none() {
            self.next = at;
        }
        self.answered = self.answered.max(Some(at));
        self.mac = Some(mac);
        // It is from before the silence, and late.
        if self.missing_since.is_some_and(|since| at < since) {
            return;
        }
        match kind {
            SightingKind::EchoReply => self.by_resolve = false,
            SightingKind::ResolveReply if self.misses > 0 => self.by_resolve = true,
            _ => {}
        }
        self.start_again();
    }

    /// A stall of ours, or frames that were lost here, are no silence of theirs.
    pub(super) fn start_again(&mut self) {
        (self.misses, self.missing_since, self.open) = (0, None, None);
    }

    /// Has the time of the open question passed while we listened? True: it was a miss.
    pub(super) fn conclude(&mut self, now: Mono, listened_until: Mono, answer_time: Duration) -> bool {
        let Some(open) = &self.open else { return false };
        match open.sent {
            Some(sent) if listened_until >= sent + answer_time => {
                self.misses = self.misses.saturating_add(1);
                self.missing_since.get_or_insert(sent);
                self.open = None;
                true
            }
            None if now >= open.asked + UNTOLD => {
                self.open = None;
                false
            }
            _ => false,
        }
    }

    /// How to ask next. Resolution finds a host whose hardware address is not known, or one that
    /// answers no echo: every other question while it is silent.
    pub(super) fn kind(&self) -> QuestionKind {
        let other = self.misses % 2 == 1;
        if self.mac.is_none() || self.by_resolve != (other && self.misses > 0) {
            QuestionKind::Resolve
        } else {
            QuestionKind::Echo
        }
    }
}
