//! What was asked and heard, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use purelb_core::segment::{QuestionKind, SegmentSighting, SightingKind};

pub const SIGHTING_KINDS: [(SightingKind, &str); 5] = [
    (SightingKind::EchoReply, "echo_reply"),
    (SightingKind::ResolveReply, "resolve_reply"),
    (SightingKind::Announcement, "announcement"),
    (SightingKind::Asker, "asker"),
    (SightingKind::Probe, "probe"),
];

#[derive(Debug, Default)]
pub struct SegmentStats {
    pub echo_questions: AtomicU64,
    pub resolve_questions: AtomicU64,
    /// Questions that did not leave.
    pub question_errors: AtomicU64,
    /// Frames that passed a filter and were read.
    pub frames: AtomicU64,
    /// What was made of them, by [`SIGHTING_KINDS`].
    pub sightings: [AtomicU64; SIGHTING_KINDS.len()],
    /// Frames that found no room in a socket.
    pub lost: AtomicU64,
    /// Times the sockets were read, and those of them for a claim's sake.
    pub reads: AtomicU64,
    pub claim_reads: AtomicU64,
}

impl SegmentStats {
    pub(super) fn count_question(&self, kind: QuestionKind, left: bool) {
        let count = match (left, kind) {
            (false, _) => &self.question_errors,
            (true, QuestionKind::Echo) => &self.echo_questions,
            (true, QuestionKind::Resolve) => &self.resolve_questions,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_sightings(&self, sightings: &[SegmentSighting]) {
        for sighting in sightings {
            let place = SIGHTING_KINDS.iter().position(|(kind, _)| *kind == sighting.kind);
            if let Some(count) = place.and_then(|place| self.sightings.get(place)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
