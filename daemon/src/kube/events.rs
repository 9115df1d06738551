//! Kubernetes events: what the engine has to say about Services and LBNodeAgents.
//!
//! One object per event, never merged with an earlier one: the engine speaks once per
//! change. The queue is bounded and drained at a bounded pace; what does not fit is
//! dropped and counted, for an event must never slow an address down.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Resource;
use kube::api::PostParams;
use kube::core::Request;
use purelb_core::NodeName;
use purelb_core::io::{Event, EventKind, EventObject};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::book::Book;
use super::failure::Failure;
use super::lane::Lane;

/// So many at once, then one per [`PACE`].
const BURST: u32 = 100;
const PACE: Duration = Duration::from_millis(40);
const TIMEOUT: Duration = Duration::from_secs(3);
const TRIES: usize = 3;
/// The API takes 1,024 bytes.
const LONGEST_NOTE: usize = 1000;
/// And object names of 253.
const LONGEST_STEM: usize = 200;

pub(crate) struct Events {
    pub(crate) node: NodeName,
    pub(crate) book: Arc<Book>,
    pub(crate) lane: Arc<Lane>,
}

impl Events {
    pub(crate) async fn run(self, mut queue: mpsc::Receiver<Event>) {
        let mut pace = Pace::new(Instant::now());
        while let Some(event) = queue.recv().await {
            tokio::time::sleep_until(pace.next(Instant::now())).await;
            self.write(&event).await;
        }
    }

    async fn write(&self, event: &Event) {
        let (namespace, body) = self.body(event, Timestamp::now());
        let mut last = None;
        for _ in 0..TRIES {
            match self.post(&namespace, &body).await {
                Ok(()) => return self.lane.counters().events_written.add(),
                // The same name: an earlier try got through.
                Err(failure) if failure.code() == 409 => return self.lane.counters().events_written.add(),
                Err(failure) => {
                    let again = failure.blames_the_endpoint() || failure.code() == 401;
                    last = Some(failure);
                    if !again {
                        break;
                    }
                }
            }
        }
        self.lane.counters().event_failures.add();
        if let Some(error) = last {
            tracing::warn!(%error, kind = ?event.kind, "event not written");
        }
    }

    async fn post(&self, namespace: &str, body: &Value) -> Result<(), Failure> {
        let path = Request::new(KubeEvent::url_path(&(), Some(namespace)));
        let request = path.create(&PostParams::default(), body.to_string().into_bytes());
        let request = request.map_err(|e| Failure::Unreadable(e.to_string()))?;
        self.lane.text(request, Instant::now() + TIMEOUT).await.map(drop)
    }

    fn body(&self, event: &Event, now: Timestamp) -> (String, Value) {
        let (version, kind, key, uid) = match &event.object {
            EventObject::Service(key) => ("v1", "Service", key, self.book.service_uid(key)),
            EventObject::NodeAgent(key) => ("purelb.io/v2", "LBNodeAgent", key, self.book.agent_uid(key)),
        };
        let stem: String = key.name().chars().take(LONGEST_STEM).collect();
        let name = format!("{}.{}", stem.trim_end_matches(['.', '-']), uuid::Uuid::new_v4().simple());
        let mut regarding =
            json!({"apiVersion": version, "kind": kind, "namespace": key.namespace(), "name": key.name()});
        if let Some(uid) = uid {
            regarding["uid"] = json!(uid);
        }
        let mut note = event.message.as_str();
        if note.len() > LONGEST_NOTE {
            note = &note[..note.floor_char_boundary(LONGEST_NOTE)];
        }
        let (reason, kind) = words(event.kind);
        let body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": key.namespace()},
            "eventTime": MicroTime(now),
            "type": kind,
            "reason": reason,
            "action": "Announce",
            "note": note,
            "regarding": regarding,
            "reportingController": "purelbd",
            "reportingInstance": self.node,
        });
        (key.namespace().to_owned(), body)
    }
}

/// The reason as dashboards know it, and how bad it is.
fn words(kind: EventKind) -> (&'static str, &'static str) {
    match kind {
        EventKind::AnnouncingLocal => ("AnnouncingLocal", "Normal"),
        EventKind::AnnouncingNonLocal => ("AnnouncingNonLocal", "Normal"),
        EventKind::AnnouncementFailed => ("AnnouncementFailed", "Warning"),
        EventKind::NoEligibleNodes => ("NoEligibleNodes", "Warning"),
        EventKind::ConfigError => ("ConfigError", "Warning"),
    }
}

/// A bucket of [`BURST`] that fills by one per [`PACE`].
struct Pace {
    /// When the bucket would be full again.
    full_at: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// When the next may go out.
    fn next(&mut self, now: Instant) -> Instant {
        self.full_at = self.full_at.max(now) + PACE;
        self.full_at.checked_sub(PACE * BURST).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests;
