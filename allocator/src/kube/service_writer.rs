//! Carries out one decision: annotations first, then the status, then the events.
//!
//! In this order a crash leaves at worst a mark without an address, never an address
//! nobody knows to be ours. Each write asks the guard and names the version it was
//! made for. A write whose end is not known is read back before anything else happens
//! to the Service: what it might have given is not given to another until then.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use purelb_core::ObjectKey;
use purelb_core::allocation::{Change, WriteCertainty};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use crate::kube::patches;
use crate::leader::{Deposed, Guard};

/// No write is waited for longer; what became of it is then read back.
const WRITE_WITHIN: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// What became of a write is known within this after the API server is back.
const LONGEST_RETRY: Duration = Duration::from_secs(1);
/// How often somebody else may write a Service first.
const OVERTAKEN: usize = 3;

/// How a job ended.
#[derive(Debug)]
pub enum Ended {
    Written(Arc<Service>),
    /// Refused by the server or overtaken; this is the Service now, if that was read.
    Refused {
        now: Option<Arc<Service>>,
        sure: WriteCertainty,
        why: String,
    },
    Gone,
    Deposed,
}

/// How fencing a former leader off a Service ended.
#[derive(Debug)]
pub enum Fence {
    /// This is the Service now, and what was sent for it before is refused.
    Done(Arc<Service>),
    Gone,
    Deposed,
    /// Not yet, and why.
    Not(String),
}

/// Writes with one client, as the leader only.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    guard: Guard,
}

enum Failure {
    /// The server said no, or nobody asked it.
    Refused(String),
    Conflict,
    Gone,
    Deposed,
    /// It may have happened.
    Unknown(String),
}

impl From<Deposed> for Failure {
    fn from(_: Deposed) -> Self {
        Self::Deposed
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) => match status.code {
                404 => Self::Gone,
                409 => Self::Conflict,
                429 => Self::Refused(status.message.clone()),
                400..500 => Self::Refused(status.message.clone()),
                _ => Self::Unknown(error.to_string()),
            },
            _ => Self::Unknown(error.to_string()),
        }
    }
}

impl Writer {
    pub fn new(client: Client, guard: Guard) -> Self {
        Self { client, guard }
    }

    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    fn services(&self, key: &ObjectKey) -> Api<Service> {
        Api::namespaced(self.client.clone(), key.namespace())
    }

    /// Brings a Service to what was decided.
    pub async fn carry_out(&self, key: &ObjectKey, service: Arc<Service>, change: &Change) -> Ended {
        let before = patches::version(service.as_ref());
        let outcome = self.write(key, service, change).await;
        match outcome {
            Ok(written) => {
                for note in &change.notes {
                    let (reason, warning) = (note.kind.as_str(), note.kind.is_warning());
                    self.tell(written.as_ref(), reason, warning, &note.message).await;
                }
                Ended::Written(written)
            }
            Err(Failure::Deposed) => Ended::Deposed,
            Err(Failure::Gone) => Ended::Gone,
            Err(Failure::Refused(why)) => {
                warn!(service = %key, why, "the API server refuses a write");
                Ended::Refused { now: None, sure: WriteCertainty::Known, why }
            }
            Err(Failure::Conflict) => self.read_back(key, &before, "somebody else wrote".into()).await,
            Err(Failure::Unknown(why)) => {
                warn!(service = %key, why, "a write may or may not have happened");
                self.read_back(key, &before, why).await
            }
        }
    }

    async fn write(
        &self,
        key: &ObjectKey,
        mut service: Arc<Service>,
        change: &Change,
    ) -> Result<Arc<Service>, Failure> {
        let api = self.services(key);
        if let Some(body) = patches::annotations(&service, change) {
            service = self.patch(&api, key, &body, Part::Object).await?;
        }
        if let Some(body) = patches::status(&service, change, Timestamp::now()) {
            service = self.patch(&api, key, &body, Part::Status).await?;
        }
        Ok(service)
    }

    async fn patch(
        &self,
        api: &Api<Service>,
        key: &ObjectKey,
        body: &Value,
        part: Part,
    ) -> Result<Arc<Service>, Failure> {
        self.guard.check()?;
        let (params, body) = (PatchParams::default(), Patch::Merge(body));
        let write = async {
            match part {
                Part::Object => api.patch(key.name(), &params, &body).await,
                Part::Status => api.patch_status(key.name(), &params, &body).await,
            }
        };
        match timeout(WRITE_WITHIN, write).await {
            Ok(answer) => Ok(Arc::new(answer?)),
            Err(_) => Err(Failure::Unknown(format!("no answer within {WRITE_WITHIN:?}"))),
        }
    }

    /// What the Service is now; asked for a while. One that cannot be read must not keep
    /// its place among the writes: it is tried again later, and what it might have been
    /// given stays taken until then.
    async fn read_back(&self, key: &ObjectKey, before: &str, why: String) -> Ended {
        let api = self.services(key);
        let mut wait = FIRST_RETRY;
        let until = Instant::now() + WRITE_WITHIN;
        loop {
            if self.guard.check().is_err() {
                return Ended::Deposed;
            }
            if Instant::now() > until {
                warn!(service = %key, why, "what became of a write is not known; trying again later");
                return Ended::Refused { now: None, sure: WriteCertainty::Unknown, why };
            }
            match timeout(WRITE_WITHIN, api.get_opt(key.name())).await {
                Ok(Ok(None)) => return Ended::Gone,
                Ok(Ok(Some(now))) => {
                    // Still the version it was made for: the write may yet arrive.
                    let sure = if patches::version(&now) == before {
                        WriteCertainty::Unknown
                    } else {
                        WriteCertainty::Known
                    };
                    return Ended::Refused { now: Some(Arc::new(now)), sure, why };
                }
                Ok(Err(error)) => debug!(service = %key, %error, "cannot read a Service back"),
                Err(_) => debug!(service = %key, "reading a Service back was not answered"),
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_RETRY);
        }
    }

    /// Makes sure that nothing a former leader sent for this Service can still arrive:
    /// its writes name a version that is then the past. One try.
    pub async fn fence(&self, key: &ObjectKey, mut service: Arc<Service>, leader: &str) -> Fence {
        let api = self.services(key);
        for _ in 0..OVERTAKEN {
            let body = patches::fence(&service, leader);
            let mut answer = self.patch(&api, key, &body, Part::Object).await;
            // Policies that watch over the object often leave its status alone, and for a
            // Service the status takes annotations as well.
            if let Err(Failure::Refused(why)) = &answer {
                warn!(service = %key, why, "a policy keeps the former leader from being fenced off");
                match self.patch(&api, key, &body, Part::Status).await {
                    Err(Failure::Refused(_) | Failure::Unknown(_)) => {}
                    other => answer = other,
                }
            }
            match answer {
                Ok(now) if patches::version(now.as_ref()) != patches::version(service.as_ref()) => {
                    return Fence::Done(now);
                }
                Ok(_) => return Fence::Not("the write changed nothing".to_owned()),
                Err(Failure::Deposed) => return Fence::Deposed,
                Err(Failure::Gone) => return Fence::Gone,
                Err(Failure::Refused(why) | Failure::Unknown(why)) => return Fence::Not(why),
                Err(Failure::Conflict) => {}
            }
            match timeout(WRITE_WITHIN, api.get_opt(key.name())).await {
                Ok(Ok(Some(now))) => service = Arc::new(now),
                Ok(Ok(None)) => return Fence::Gone,
                Ok(Err(error)) => return Fence::Not(error.to_string()),
                Err(_) => return Fence::Not(format!("not read within {WRITE_WITHIN:?}")),
            }
        }
        Fence::Not("somebody else writes it all the time".to_owned())
    }

    /// An event. It follows the fact; one that gets lost changes nothing.
    pub async fn tell(&self, service: &Service, reason: &str, warning: bool, message: &str) {
        let name = event_name(&service.name_any());
        let event = patches::event(service, name, reason, warning, message, Timestamp::now());
        self.send_event(&event).await;
    }

    pub async fn send_event(&self, event: &Event) {
        if self.guard.check().is_err() {
            return;
        }
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        match timeout(WRITE_WITHIN, api.create(&PostParams::default(), event)).await {
            Ok(Ok(_)) => {}
            // One with a fixed name was there already.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
            Ok(Err(error)) => debug!(%error, reason = event.reason, "an event was not taken"),
            Err(_) => debug!(reason = event.reason, "an event was not answered"),
        }
    }
}

#[derive(Clone, Copy)]
enum Part {
    Object,
    Status,
}

fn event_name(object: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let room: String = object.chars().take(200).collect();
    format!("{room}.{}", &id[..16])
}
