//! The lease writer: one task that creates, renews, takes over and deletes our Lease.
//! What is sent in which order, and what an answer means, is `core::lease_write`'s.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Resource, ResourceExt};
use purelb_api::{lease, names};
use purelb_core::io::{Input, LeaseContent, LeaseError, LeaseWrite};
use purelb_core::lease_write::{LeaseAttempt, LeaseMemory, Reply, Request as Asked, Written};
use purelb_core::{InstanceId, Mono, NodeName};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::failure::Failure;
use super::lane::Lane;
use super::trouble::Trouble;
use super::tuning::Tuning;
use crate::clock;

/// Rounds of looking and deleting again.
const ROUNDS: usize = 4;

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
    pub(crate) memory: LeaseMemory,
    pub(crate) trouble: Trouble,
}

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
                    self.say(&write, &result);
                    Input::LeaseWritten { seq: write.seq, sent_at, result }
                }
                Order::Delete => Input::LeaseDeleted(self.delete().await),
            };
            if self.inputs.send(answer).await.is_err() {
                return;
            }
        }
    }

    fn say(&mut self, write: &LeaseWrite, result: &Written) {
        let (seq, mode) = (write.seq, write.mode);
        match result {
            Ok(_) => {
                if let Some(times) = self.trouble.over() {
                    tracing::info!(seq, ?mode, failed = times, "the Lease is written again");
                }
            }
            Err(error) if self.trouble.is_news(&error.to_string()) => {
                tracing::warn!(seq, ?mode, %error, "Lease not written; tried again until it is");
            }
            Err(error) => tracing::debug!(seq, ?mode, %error, "Lease not written"),
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
        let instance = self.instance.clone();
        let mut attempt = LeaseAttempt::new(write.mode, instance, self.lane.endpoints(), &mut self.memory);
        while Instant::now() < by
            && let Some(request) = attempt.request(&self.memory)
        {
            let reply = match &request {
                Asked::Look => self.look(by).await.map_or_else(failed, |l| l.map_or(Reply::Absent, shown)),
                Asked::Create => {
                    sent_at = clock::now();
                    self.post(write, by).await.map_or_else(failed, shown)
                }
                Asked::Patch { version } => {
                    sent_at = clock::now();
                    self.patch(write, version, by).await.map_or_else(failed, shown)
                }
            };
            if let Some(end) = attempt.replied(&mut self.memory, &request, reply) {
                return (sent_at, end);
            }
        }
        (sent_at, Err(attempt.given_up()))
    }

    /// A time for `renewTime` in the microseconds a Lease can say.
    fn mark(&mut self) -> Timestamp {
        let wall = Timestamp::now();
        Timestamp::from_microsecond(self.memory.mark(wall.as_microsecond())).unwrap_or(wall)
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
        let now = self.mark();
        let content = &write.content;
        let mut body = lease::create(&self.namespace, &self.node, content, self.endpoint.as_deref(), now);
        without_empty_owner(&mut body, content);
        let request = self.collection().create(&PostParams::default(), body.to_string().into_bytes());
        self.lane.call(made(request)?, by).await
    }

    async fn patch(&mut self, write: &LeaseWrite, version: &str, by: Instant) -> Result<Lease, Failure> {
        let now = self.mark();
        let content = &write.content;
        let mut body = lease::patch(&self.node, content, self.endpoint.as_deref(), now, version);
        without_empty_owner(&mut body, content);
        let request = self.collection().patch(&self.name(), &PatchParams::default(), &Patch::Merge(body));
        self.lane.call(made(request)?, by).await
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
            self.memory.forget();
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

fn shown(lease: Lease) -> Reply {
    let time = lease.spec.as_ref().and_then(|s| s.renew_time.as_ref());
    Reply::Lease {
        instance: instance_of(&lease),
        renewal: time.map(lease::renewal_mark).unwrap_or_default(),
        version: lease.resource_version(),
    }
}

fn failed(failure: Failure) -> Reply {
    Reply::Failed { code: failure.code(), timeout: failure == Failure::Timeout, error: failure.to_string() }
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
