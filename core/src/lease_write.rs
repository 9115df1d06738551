//! One write of our Lease, and the rounds it may take: look, write, look again.
//!
//! ```text
//!   Create ──▶ 409 ──▶ look: ours? ──▶ patch          TakeOver ──▶ look ──▶ patch
//!                        └ another's: Exists
//!   Renew ──▶ patch ──▶ 409 ──▶ look: ours? ──▶ patch
//!                                 └ another's: Taken
//! ```
//! Every write names the version it was made for. So a write that was delayed on its
//! way and given up can never land after a newer one, and two instances can never mix
//! their words. A conflict is looked into at once: another instance is told as such; an
//! outsider's touch (or our own write whose answer was lost) costs one more round, not
//! the renewal.
//!
//! Whoever talks to the API server sends each [`LeaseRequest`] and brings its [`LeaseReply`].

use std::collections::VecDeque;

use crate::ids::InstanceId;
use crate::messages::{LeaseError, LeaseMode, LeaseRenewal};

/// Rounds of looking and writing again within one write.
const ROUNDS: usize = 4;
/// Marks that are not used again, though the wall clock may come back to them.
const MARKS: usize = 16;

/// What is remembered between writes.
#[derive(Clone, Debug, Default)]
pub struct LeaseMemory {
    /// Of the Lease as we last wrote or read it; `None` = look first.
    version: Option<String>,
    marks: VecDeque<i64>,
}

impl LeaseMemory {
    /// A time for `renewTime`, in microseconds, that differs from the last ones whatever
    /// the wall clock does: peers see that we live by the change alone.
    pub fn mark(&mut self, wall: i64) -> i64 {
        let mut time = wall;
        while self.marks.contains(&time) {
            time = time.saturating_add(1);
        }
        self.marks.push_back(time);
        if self.marks.len() > MARKS {
            self.marks.pop_front();
        }
        time
    }

    /// What was known of it counts no more.
    pub fn forget(&mut self) {
        self.version = None;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    Look,
    Create,
    Patch { version: String },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseReply {
    /// The Lease as it stands: looked at, made or changed.
    Lease { instance: Option<InstanceId>, version: Option<String>, renewal: String },
    /// Looked at, and there is none.
    Absent,
    /// The server's code, 0 if it gave none; and why, in words.
    Failed { code: u16, timeout: bool, error: String },
}

pub type LeaseWriteResult = Result<LeaseRenewal, LeaseError>;

#[derive(Clone, Debug)]
pub struct LeaseAttempt {
    mode: LeaseMode,
    instance: InstanceId,
    /// API servers that may be tried one after the other.
    endpoints: usize,
    rounds: usize,
    /// A creation found one: is it ours after all?
    found: bool,
    last: LeaseError,
}

impl LeaseAttempt {
    pub fn new(mode: LeaseMode, instance: InstanceId, endpoints: usize, memory: &mut LeaseMemory) -> Self {
        if mode == LeaseMode::TakeOver {
            memory.forget();
        }
        let rounds = ROUNDS + endpoints;
        Self { mode, instance, endpoints, rounds, found: false, last: LeaseError::Timeout }
    }

    /// What to send next. `None`: enough was tried, see [`Self::given_up`].
    pub fn request(&mut self, memory: &LeaseMemory) -> Option<LeaseRequest> {
        if self.found {
            return Some(LeaseRequest::Look);
        }
        self.rounds = self.rounds.checked_sub(1)?;
        Some(match (self.mode, &memory.version) {
            (LeaseMode::Create, _) => LeaseRequest::Create,
            (_, Some(version)) => LeaseRequest::Patch { version: version.clone() },
            (_, None) => LeaseRequest::Look,
        })
    }

    /// The end of the write, if this reply is one.
    pub fn replied(
        &mut self,
        memory: &mut LeaseMemory,
        request: &LeaseRequest,
        reply: LeaseReply,
    ) -> Option<LeaseWriteResult> {
        if std::mem::take(&mut self.found) {
            return self.found_one(memory, reply);
        }
        match (request, reply) {
            (LeaseRequest::Look, LeaseReply::Lease { instance, version, .. }) => {
                if let Err(error) = self.may_write(instance) {
                    return Some(Err(error));
                }
                memory.version = version;
                None
            }
            (_, LeaseReply::Lease { version, renewal, .. }) => {
                memory.version = version;
                Some(Ok(LeaseRenewal { renewal }))
            }
            (_, LeaseReply::Absent) => Some(Err(LeaseError::Missing)),
            (_, LeaseReply::Failed { code, timeout, error }) => self.failed(memory, code, timeout, error),
        }
    }

    /// Ours, if an earlier try did more than we heard of.
    fn found_one(&mut self, memory: &mut LeaseMemory, reply: LeaseReply) -> Option<LeaseWriteResult> {
        match reply {
            LeaseReply::Lease { instance: Some(by), version, .. } if by == self.instance => {
                memory.version = version;
                None
            }
            _ => Some(Err(LeaseError::Exists)),
        }
    }

    /// The first look of a write, and the one after a conflict: whose is it?
    fn may_write(&self, instance: Option<InstanceId>) -> Result<(), LeaseError> {
        match instance {
            _ if self.mode == LeaseMode::TakeOver => Ok(()),
            Some(by) if by == self.instance => Ok(()),
            Some(by) => Err(LeaseError::Taken(by)),
            None => Err(LeaseError::Conflict("the Lease no longer names an instance".to_owned())),
        }
    }

    fn failed(
        &mut self,
        memory: &mut LeaseMemory,
        code: u16,
        timeout: bool,
        error: String,
    ) -> Option<LeaseWriteResult> {
        self.last = match (self.mode, code) {
            (LeaseMode::Create, 409) => {
                self.mode = LeaseMode::Renew;
                self.found = true;
                memory.forget();
                LeaseError::Exists
            }
            (LeaseMode::Create, 404) => return Some(Err(LeaseError::Refused(error))),
            (_, 404) => {
                memory.forget();
                return Some(Err(LeaseError::Missing));
            }
            (_, 409) => {
                memory.forget();
                LeaseError::Conflict(error)
            }
            // Credentials were read again, once; the next endpoint may be well.
            (_, 401) if self.rounds > self.endpoints => {
                self.rounds = self.endpoints;
                LeaseError::Refused(error)
            }
            (_, 500..) if self.endpoints > 1 => LeaseError::Refused(error),
            (_, 0) if timeout => LeaseError::Timeout,
            (_, 0) => LeaseError::Unreachable(error),
            _ => return Some(Err(LeaseError::Refused(error))),
        };
        None
    }

    /// The time or the rounds are used up: what failed last.
    pub fn given_up(self) -> LeaseError {
        self.last
    }
}

#[cfg(test)]
mod tests;
