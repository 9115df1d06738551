//! The lease writer: one task that creates, renews, takes over and deletes our Lease.
//! What is sent in which order, and what an answer means, is `core::lease_write`'s.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Resource, ResourceExt};
use purelb_api::{lease, names};
use purelb_core::lease_write::{
    LeaseAttempt, LeaseMemory, LeaseReply, LeaseRequest as Asked, LeaseWriteResult,
};
use purelb_core::messages::{Input, LeaseContent, LeaseError, LeaseWrite};
use purelb_core::{InstanceId, Mono, NodeName};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::host::clock;
use crate::kube::client::api_client::ApiClient;
use crate::kube::client::failure_log::FailureLog;
use crate::kube::client::request_error::RequestError;
use crate::kube::tuning::KubeTuning;

/// Rounds of looking and deleting again.
const DELETE_ROUNDS: usize = 4;

#[derive(Debug)]
pub(crate) enum LeaseOrder {
    Write(LeaseWrite),
    Delete,
}

pub(crate) struct LeaseWriter {
    pub(crate) node: NodeName,
    pub(crate) instance: InstanceId,
    pub(crate) namespace: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) client: Arc<ApiClient>,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) tuning: KubeTuning,
    pub(crate) memory: LeaseMemory,
    pub(crate) failures: FailureLog,
}

impl LeaseWriter {
    pub(crate) async fn run(mut self, mut orders: mpsc::Receiver<LeaseOrder>) {
        while let Some(mut order) = orders.recv().await {
            // The engine has given up what it already replaced.
            while let Ok(newer) = orders.try_recv() {
                order = newer;
            }
            let answer = match order {
                LeaseOrder::Write(write) => {
                    let (sent_at, result) = self.write(&write).await;
                    self.log_result(&write, &result);
                    Input::LeaseWritten { seq: write.seq, sent_at, result }
                }
                LeaseOrder::Delete => Input::LeaseDeleted(self.delete().await),
            };
            if self.inputs.send(answer).await.is_err() {
                return;
            }
        }
    }

    fn log_result(&mut self, write: &LeaseWrite, result: &LeaseWriteResult) {
        let (seq, mode) = (write.seq, write.mode);
        match result {
            Ok(_) => {
                if let Some(times) = self.failures.recovered() {
                    tracing::info!(seq, ?mode, failed = times, "the Lease is written again");
                }
            }
            Err(error) if self.failures.is_new(&error.to_string()) => {
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
    async fn write(&mut self, write: &LeaseWrite) -> (Mono, LeaseWriteResult) {
        let by = Instant::now() + write.timeout;
        let mut sent_at = clock::now();
        let instance = self.instance.clone();
        let mut attempt = LeaseAttempt::new(write.mode, instance, self.client.endpoints(), &mut self.memory);
        while Instant::now() < by
            && let Some(request) = attempt.request(&self.memory)
        {
            let reply = match &request {
                Asked::Look => self
                    .read_lease(by)
                    .await
                    .map_or_else(failure_reply, |l| l.map_or(LeaseReply::Absent, lease_reply)),
                Asked::Create => {
                    sent_at = clock::now();
                    self.create_lease(write, by).await.map_or_else(failure_reply, lease_reply)
                }
                Asked::Patch { version } => {
                    sent_at = clock::now();
                    self.patch_lease(write, version, by).await.map_or_else(failure_reply, lease_reply)
                }
            };
            if let Some(end) = attempt.replied(&mut self.memory, &request, reply) {
                return (sent_at, end);
            }
        }
        (sent_at, Err(attempt.given_up()))
    }

    /// A time for `renewTime` in the microseconds a Lease can say.
    fn next_renew_time(&mut self) -> Timestamp {
        let wall = Timestamp::now();
        Timestamp::from_microsecond(self.memory.mark(wall.as_microsecond())).unwrap_or(wall)
    }

    async fn read_lease(&self, by: Instant) -> Result<Option<Lease>, RequestError> {
        let request = self.collection().get(&self.name(), &Default::default());
        match self.client.request(checked(request)?, by).await {
            Ok(lease) => Ok(Some(lease)),
            Err(failure) if failure.code() == 404 => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn create_lease(&mut self, write: &LeaseWrite, by: Instant) -> Result<Lease, RequestError> {
        let now = self.next_renew_time();
        let content = &write.content;
        let mut body = lease::create(&self.namespace, &self.node, content, self.endpoint.as_deref(), now);
        without_empty_owner(&mut body, content);
        let request = self.collection().create(&PostParams::default(), body.to_string().into_bytes());
        self.client.request(checked(request)?, by).await
    }

    async fn patch_lease(
        &mut self,
        write: &LeaseWrite,
        version: &str,
        by: Instant,
    ) -> Result<Lease, RequestError> {
        let now = self.next_renew_time();
        let content = &write.content;
        let mut body = lease::patch(&self.node, content, self.endpoint.as_deref(), now, version);
        without_empty_owner(&mut body, content);
        let request = self.collection().patch(&self.name(), &PatchParams::default(), &Patch::Merge(body));
        self.client.request(checked(request)?, by).await
    }

    /// Deletes the Lease if it is ours; that there is none is as good.
    async fn delete(&mut self) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..DELETE_ROUNDS {
            let by = Instant::now() + self.tuning.list_timeout;
            let lease = match self.read_lease(by).await {
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
            let request = checked(request).map_err(|e| e.to_string())?;
            self.memory.forget();
            match self.client.request_text(request, by).await {
                Ok(_) => return Ok(()),
                Err(failure) if failure.code() == 404 => return Ok(()),
                Err(failure) => last = failure.to_string(),
            }
        }
        Err(last)
    }
}

fn checked(
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<http::Request<Vec<u8>>, RequestError> {
    request.map_err(|e| RequestError::Unreadable(e.to_string()))
}

fn lease_reply(lease: Lease) -> LeaseReply {
    let time = lease.spec.as_ref().and_then(|s| s.renew_time.as_ref());
    LeaseReply::Lease {
        instance: instance_of(&lease),
        renewal: time.map(lease::renewal_mark).unwrap_or_default(),
        version: lease.resource_version(),
    }
}

fn failure_reply(failure: RequestError) -> LeaseReply {
    LeaseReply::Failed {
        code: failure.code(),
        timeout: failure == RequestError::Timeout,
        error: failure.to_string(),
    }
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
