//! The lease writer: one task that creates, renews, takes over and deletes our Lease.
//!
//! Every write names the version it was made for. So a write that was delayed on its
//! way and given up can never land after a newer one, and two instances can never mix
//! their words. A conflict is looked into at once: another instance is told as such;
//! an outsider's touch (or our own write whose answer was lost) costs one more round,
//! not the renewal.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{Timestamp, ToSpan};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Resource, ResourceExt};
use purelb_api::{lease, names};
use purelb_core::io::{Input, LeaseContent, LeaseError, LeaseMode, LeaseWrite, Renewed};
use purelb_core::{InstanceId, Mono, NodeName};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::failure::Failure;
use super::lane::Lane;
use super::tuning::Tuning;
use crate::clock;

/// Rounds of looking and writing again within one write.
const ROUNDS: usize = 4;
/// Marks that are not used again, though the wall clock may come back to them.
const MARKS: usize = 16;

#[derive(Debug)]
pub(crate) enum Order {
    Write(LeaseWrite),
    Delete,
}

pub(crate) struct Writer {
    pub(crate) node: NodeName,
    pub(crate) instance: InstanceId,
    pub(crate) namespace: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) lane: Arc<Lane>,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) tuning: Tuning,
    pub(crate) state: Known,
}

/// What the writer remembers between writes.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Of the Lease as we last wrote or read it; `None` = look first.
    version: Option<String>,
    marks: VecDeque<Timestamp>,
}

impl Known {
    /// A time for `renewTime` that differs from the last ones, whatever the wall clock
    /// does: peers see that we live by the change alone. In the microseconds a Lease
    /// can say.
    fn mark(&mut self, wall: Timestamp) -> Timestamp {
        let micros = wall.as_microsecond();
        let mut time = Timestamp::from_microsecond(micros).unwrap_or(wall);
        while self.marks.contains(&time) {
            time = time.saturating_add(1.microsecond()).unwrap_or(Timestamp::UNIX_EPOCH);
        }
        self.marks.push_back(time);
        if self.marks.len() > MARKS {
            self.marks.pop_front();
        }
        time
    }
}

type Written = Result<Renewed, LeaseError>;

impl Writer {
    pub(crate) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        while let Some(mut order) = orders.recv().await {
            // The engine has given up what it already replaced.
            while let Ok(newer) = orders.try_recv() {
                order = newer;
            }
            let answer = match order {
                Order::Write(write) => {
                    let (sent_at, result) = self.write(&write).await;
                    if let Err(error) = &result {
                        tracing::warn!(seq = write.seq, mode = ?write.mode, %error, "Lease not written");
                    }
                    Input::LeaseWritten { seq: write.seq, sent_at, result }
                }
                Order::Delete => Input::LeaseDeleted(self.delete().await),
            };
            if self.inputs.send(answer).await.is_err() {
                return;
            }
        }
    }

    fn name(&self) -> String {
        names::lease_name(&self.node)
    }

    fn collection(&self) -> Request {
        Request::new(Lease::url_path(&(), Some(&self.namespace)))
    }

    /// Answers with the moment before the last try was sent: had the server done it and
    /// then fallen silent, peers would count from no earlier.
    async fn write(&mut self, write: &LeaseWrite) -> (Mono, Written) {
        let by = Instant::now() + write.timeout;
        let mut sent_at = clock::now();
        let mut mode = write.mode;
        if mode == LeaseMode::TakeOver {
            self.state.version = None;
        }
        let mut last = LeaseError::Timeout;
        let mut rounds = ROUNDS + self.lane.endpoints();
        while rounds > 0 && Instant::now() < by {
            rounds -= 1;
            let tried = match (mode, self.state.version.clone()) {
                (LeaseMode::Create, _) => {
                    sent_at = clock::now();
                    self.post(write, by).await
                }
                (_, Some(version)) => {
                    sent_at = clock::now();
                    self.patch(write, &version, by).await
                }
                (_, None) => match self.look(by).await {
                    Ok(Some(lease)) => match self.may_write(mode, &lease) {
                        Ok(()) => {
                            self.state.version = lease.resource_version();
                            continue;
                        }
                        Err(error) => return (sent_at, Err(error)),
                    },
                    Ok(None) => return (sent_at, Err(LeaseError::Missing)),
                    Err(failure) => Err(failure),
                },
            };
            let failure = match tried {
                Ok(lease) => return (sent_at, self.wrote(&lease)),
                Err(failure) => failure,
            };
            last = match (mode, failure.code()) {
                (LeaseMode::Create, 409) => {
                    // Ours, if an earlier try did more than we heard of.
                    mode = LeaseMode::Renew;
                    self.state.version = None;
                    match self.look(by).await {
                        Ok(Some(lease)) if instance_of(&lease).as_ref() == Some(&self.instance) => {
                            self.state.version = lease.resource_version();
                            LeaseError::Exists
                        }
                        _ => return (sent_at, Err(LeaseError::Exists)),
                    }
                }
                (LeaseMode::Create, 404) => {
                    return (sent_at, Err(LeaseError::Refused(failure.to_string())));
                }
                (_, 404) => {
                    self.state.version = None;
                    return (sent_at, Err(LeaseError::Missing));
                }
                (_, 409) => {
                    self.state.version = None;
                    LeaseError::Conflict(failure.to_string())
                }
                // Credentials were read again, once; the next endpoint may be well.
                (_, 401) if rounds > self.lane.endpoints() => {
                    rounds = self.lane.endpoints().min(rounds);
                    LeaseError::Refused(failure.to_string())
                }
                (_, 500..) if self.lane.endpoints() > 1 => LeaseError::Refused(failure.to_string()),
                (_, 0) => match failure {
                    Failure::Timeout => LeaseError::Timeout,
                    other => LeaseError::Unreachable(other.to_string()),
                },
                _ => return (sent_at, Err(LeaseError::Refused(failure.to_string()))),
            };
        }
        (sent_at, Err(last))
    }

    /// The first look of a write, and the one after a conflict: whose is it?
    fn may_write(&self, mode: LeaseMode, lease: &Lease) -> Result<(), LeaseError> {
        match instance_of(lease) {
            _ if mode == LeaseMode::TakeOver => Ok(()),
            Some(by) if by == self.instance => Ok(()),
            Some(by) => Err(LeaseError::Taken(by)),
            None => Err(LeaseError::Conflict("the Lease no longer names an instance".to_owned())),
        }
    }

    async fn look(&self, by: Instant) -> Result<Option<Lease>, Failure> {
        let request = self.collection().get(&self.name(), &Default::default());
        match self.lane.call(made(request)?, by).await {
            Ok(lease) => Ok(Some(lease)),
            Err(failure) if failure.code() == 404 => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn post(&mut self, write: &LeaseWrite, by: Instant) -> Result<Lease, Failure> {
        let now = self.state.mark(Timestamp::now());
        let content = &write.content;
        let mut body = lease::create(&self.namespace, &self.node, content, self.endpoint.as_deref(), now);
        without_empty_owner(&mut body, content);
        let request = self.collection().create(&PostParams::default(), body.to_string().into_bytes());
        self.lane.call(made(request)?, by).await
    }

    async fn patch(&mut self, write: &LeaseWrite, version: &str, by: Instant) -> Result<Lease, Failure> {
        let now = self.state.mark(Timestamp::now());
        let content = &write.content;
        let mut body = lease::patch(&self.node, content, self.endpoint.as_deref(), now, version);
        without_empty_owner(&mut body, content);
        let request = self.collection().patch(&self.name(), &PatchParams::default(), &Patch::Merge(body));
        self.lane.call(made(request)?, by).await
    }

    fn wrote(&mut self, lease: &Lease) -> Written {
        self.state.version = lease.resource_version();
        let time = lease.spec.as_ref().and_then(|s| s.renew_time.as_ref());
        Ok(Renewed { renewal: time.map(lease::renewal_mark).unwrap_or_default() })
    }

    /// Deletes the Lease if it is ours; that there is none is as good.
    async fn delete(&mut self) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..ROUNDS {
            let by = Instant::now() + self.tuning.list_timeout;
            let lease = match self.look(by).await {
                Ok(None) => return Ok(()),
                Ok(Some(lease)) => lease,
                Err(failure) => {
                    last = failure.to_string();
                    continue;
                }
            };
            match instance_of(&lease) {
                Some(by) if by == self.instance => {}
                Some(by) => return Err(LeaseError::Taken(by).to_string()),
                None => return Err("the Lease names no instance: left alone".to_owned()),
            }
            let preconditions =
                Preconditions { resource_version: lease.resource_version(), uid: lease.uid() };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let request = self.collection().delete(&self.name(), &params);
            let request = made(request).map_err(|e| e.to_string())?;
            self.state.version = None;
            match self.lane.text(request, by).await {
                Ok(_) => return Ok(()),
                Err(failure) if failure.code() == 404 => return Ok(()),
                Err(failure) => last = failure.to_string(),
            }
        }
        Err(last)
    }
}

fn made(
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<http::Request<Vec<u8>>, Failure> {
    request.map_err(|e| Failure::Unreadable(e.to_string()))
}

fn instance_of(lease: &Lease) -> Option<InstanceId> {
    lease.annotations().get(names::INSTANCE).and_then(|t| InstanceId::new(t).ok())
}

/// Without a Node there is no owner to name; a Lease without one is better than none.
fn without_empty_owner(body: &mut Value, content: &LeaseContent) {
    if content.node_uid.is_empty()
        && let Some(meta) = body["metadata"].as_object_mut()
    {
        meta.remove("ownerReferences");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_never_repeats_whatever_the_wall_clock_does() {
        let mut known = Known::default();
        let at = |us: i64| Timestamp::from_microsecond(us).unwrap();
        let nanos = Timestamp::from_nanosecond(5_000_999).unwrap();
        assert_eq!(known.mark(nanos), at(5_000), "in whole microseconds");
        assert_eq!(known.mark(at(5_000)), at(5_001), "the clock stands");
        assert_eq!(known.mark(at(9_000)), at(9_000));
        assert_eq!(known.mark(at(5_000)), at(5_002), "the clock jumped back to where it was");
        for _ in 0..100 {
            known.mark(at(5_000));
        }
        assert!(known.marks.len() <= MARKS);
    }
}
