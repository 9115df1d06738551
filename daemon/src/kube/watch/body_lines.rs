//! The lines of a watch's body, bounded.

use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};

use crate::kube::client::request_error::{RequestError, clip};

/// Far above what a cluster can store (etcd takes 1.5 MiB): a longer line is passed
/// over, or one object could take all memory.
const LONGEST_LINE: usize = 32 << 20;
/// What stays allocated between events.
const KEEP: usize = 64 << 10;

pub(crate) struct BodyLines {
    body: Body,
    buffer: Vec<u8>,
    /// Up to here there is no line end.
    searched: usize,
    /// The rest of a line that is too long is thrown away.
    skipping: bool,
    longest: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextLine {
    Line(Vec<u8>),
    TooLong,
    End,
    Idle,
}

impl BodyLines {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, buffer: Vec::new(), searched: 0, skipping: false, longest: LONGEST_LINE }
    }

    /// The next line, if one comes before `idle_at`. Safe to give up and ask again.
    pub(crate) async fn next(&mut self, idle_at: Instant) -> Result<NextLine, RequestError> {
        loop {
            if let Some(next) = self.take() {
                return Ok(next);
            }
            let frame = match timeout_at(idle_at, self.body.frame()).await {
                Err(_) => return Ok(NextLine::Idle),
                Ok(None) => return Ok(NextLine::End),
                Ok(Some(Err(e))) => return Err(RequestError::Unreachable(clip(&e.to_string()))),
                Ok(Some(Ok(frame))) => frame,
            };
            if let Some(data) = frame.data_ref() {
                self.buffer.extend_from_slice(data);
            }
        }
    }

    fn take(&mut self) -> Option<NextLine> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|b| *b == b'\n');
            let Some(end) = found.map(|at| at + self.searched) else {
                self.searched = self.buffer.len();
                if self.skipping {
                    self.buffer.clear();
                    self.searched = 0;
                } else if self.buffer.len() > self.longest {
                    self.skipping = true;
                    self.buffer = Vec::new();
                    self.searched = 0;
                    return Some(NextLine::TooLong);
                }
                return None;
            };
            let rest = self.buffer.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            self.searched = 0;
            line.pop();
            if self.buffer.is_empty() && self.buffer.capacity() > KEEP {
                self.buffer = Vec::new();
            }
            if std::mem::take(&mut self.skipping) || line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Some(if line.len() > self.longest { NextLine::TooLong } else { NextLine::Line(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn lines_come_whole_whatever_the_pieces() {
        let mut lines = BodyLines::new(Body::from(b"{\"a\":1}\n\n{\"b\"".to_vec()));
        assert_eq!(lines.next(soon()).await, Ok(NextLine::Line(b"{\"a\":1}".to_vec())));
        // The end comes in the middle of a line: half an event is none.
        assert_eq!(lines.next(soon()).await, Ok(NextLine::End));
    }

    #[tokio::test]
    async fn a_line_without_end_takes_no_more_memory_than_allowed() {
        for piece in [1, 7, 64, 1000] {
            let mut lines = BodyLines { longest: 100, ..BodyLines::new(Body::from(Vec::new())) };
            let text = format!("{}yy\n{{}}\n{}\n[]\n", "x".repeat(500), "z".repeat(101));
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(piece) {
                lines.buffer.extend_from_slice(piece);
                while let Some(next) = lines.take() {
                    seen.push(next);
                }
                assert!(lines.buffer.len() <= 100);
            }
            let line = |text: &str| NextLine::Line(text.into());
            assert_eq!(
                seen,
                [NextLine::TooLong, line("{}"), NextLine::TooLong, line("[]")],
                "in pieces of {piece}"
            );
        }
    }
}
