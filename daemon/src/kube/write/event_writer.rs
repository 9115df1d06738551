//! Kubernetes events: what the engine has to say about Services and LBNodeAgents.
//!
//! One object per event, never merged with an earlier one: the engine speaks once per
//! change. A trouble that outlives the daemon is no change: the first time a process has
//! it, its event has the name that the process before gave it, and if that event is still
//! there the server refuses a second.
//!
//! ```text
//!   listed ──────── STANDS ────────▶
//!   │ refused: it stood all the time │ refused: it came again, and is told under another name
//! ```
//! The queue is bounded and drained at a bounded pace; what does not fit is dropped and
//! counted, for an event must never slow an address down.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Resource;
use kube::api::PostParams;
use kube::core::Request;
use purelb_core::messages::{Event, EventKind, EventObject};
use purelb_core::{NodeName, ObjectKey};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::kube::client::api_client::ApiClient;
use crate::kube::client::request_error::RequestError;
use crate::kube::seen_objects::SeenObjects;

/// So many at once, then one per [`EVENT_INTERVAL`].
const EVENT_BURST: u32 = 100;
const EVENT_INTERVAL: Duration = Duration::from_millis(40);
const EVENT_TIMEOUT: Duration = Duration::from_secs(3);
const EVENT_TRIES: usize = 3;
/// The API takes 1,024 bytes.
const LONGEST_NOTE: usize = 1000;
/// And object names of 253.
const LONGEST_STEM: usize = 200;

pub(crate) struct EventWriter {
    pub(crate) node: NodeName,
    pub(crate) seen_objects: Arc<SeenObjects>,
    pub(crate) client: Arc<ApiClient>,
    pub(crate) told_warnings: ToldWarnings,
    /// A trouble told so long after the Services were listed did not stand before.
    pub(crate) trouble_stands: Duration,
}

/// Which warnings this process has sent. Bounded: past that it begins anew, and an event that is
/// still there is not told a second time.
#[derive(Debug, Default)]
pub(crate) struct ToldWarnings(HashSet<u64>);

const MOST_TOLD_WARNINGS: usize = 16 * 1024;

/// The last part of an event's name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NameSuffix {
    /// A process before this one may have used it.
    Known(String),
    Fresh(String),
}

impl NameSuffix {
    fn fresh() -> Self {
        Self::Fresh(uuid::Uuid::new_v4().simple().to_string())
    }

    fn text(&self) -> &str {
        match self {
            Self::Known(text) | Self::Fresh(text) => text,
        }
    }
}

impl ToldWarnings {
    /// The first time the same for the same trouble of this node, in this process and in the
    /// next.
    fn suffix(&mut self, trouble: impl Hash) -> NameSuffix {
        let mut hasher = DefaultHasher::new();
        trouble.hash(&mut hasher);
        let hash = hasher.finish();
        if self.0.len() >= MOST_TOLD_WARNINGS {
            self.0.clear();
        }
        if self.0.insert(hash) { NameSuffix::Known(format!("{hash:016x}.1")) } else { NameSuffix::fresh() }
    }
}

impl EventWriter {
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<Event>) {
        let mut pace = EventPace::new(Instant::now());
        while let Some(event) = queue.recv().await {
            tokio::time::sleep_until(pace.next(Instant::now())).await;
            self.write(&event).await;
        }
    }

    async fn write(&mut self, event: &Event) {
        let now = Timestamp::now();
        let mut suffix = self.suffix(event);
        let mut last = None;
        // An earlier try may have got through although it failed.
        let mut maybe_written = false;
        for _ in 0..EVENT_TRIES {
            let (namespace, body) = self.body(event, &suffix, now);
            match self.post(&namespace, &body).await {
                Ok(()) => return self.client.counters().events_written.add(),
                // An earlier process said it, and it was over in between.
                Err(failure)
                    if failure.code() == 409
                        && !maybe_written
                        && matches!(suffix, NameSuffix::Known(_))
                        && self
                            .seen_objects
                            .time_since_listed()
                            .is_some_and(|time| time >= self.trouble_stands) =>
                {
                    suffix = NameSuffix::fresh();
                    last = Some(failure);
                }
                // The same name: an earlier try got through, or an earlier process said it.
                Err(failure) if failure.code() == 409 => return self.client.counters().events_written.add(),
                Err(failure) => {
                    maybe_written |= failure.is_endpoint_fault();
                    let again = maybe_written || failure.code() == 401;
                    last = Some(failure);
                    if !again {
                        break;
                    }
                }
            }
        }
        self.client.counters().event_failures.add();
        if let Some(error) = last {
            tracing::warn!(%error, kind = ?event.kind, "event not written");
        }
    }

    async fn post(&self, namespace: &str, body: &Value) -> Result<(), RequestError> {
        let path = Request::new(KubeEvent::url_path(&(), Some(namespace)));
        let request = path.create(&PostParams::default(), body.to_string().into_bytes());
        let request = request.map_err(|e| RequestError::Unreadable(e.to_string()))?;
        self.client.request_text(request, Instant::now() + EVENT_TIMEOUT).await.map(drop)
    }

    /// Of which object: version, kind, name and UID.
    fn regarding<'e>(
        &self,
        event: &'e Event,
    ) -> (&'static str, &'static str, &'e ObjectKey, Option<Box<str>>) {
        match &event.object {
            EventObject::Service(key) => ("v1", "Service", key, self.seen_objects.service_uid(key)),
            EventObject::NodeAgent(key) => {
                ("purelb.io/v2", "LBNodeAgent", key, self.seen_objects.agent_uid(key))
            }
        }
    }

    fn suffix(&mut self, event: &Event) -> NameSuffix {
        let (_, _, key, uid) = self.regarding(event);
        match reason_and_type(event.kind) {
            (reason, "Warning") => {
                self.told_warnings.suffix((self.node.as_str(), reason, key.to_string(), &uid, &event.message))
            }
            _ => NameSuffix::fresh(),
        }
    }

    fn body(&self, event: &Event, suffix: &NameSuffix, now: Timestamp) -> (String, Value) {
        let (version, kind, key, uid) = self.regarding(event);
        let stem: String = key.name().chars().take(LONGEST_STEM).collect();
        let (reason, severity) = reason_and_type(event.kind);
        let name = format!("{}.{}", stem.trim_end_matches(['.', '-']), suffix.text());
        let mut regarding =
            json!({"apiVersion": version, "kind": kind, "namespace": key.namespace(), "name": key.name()});
        if let Some(uid) = uid {
            regarding["uid"] = json!(uid);
        }
        let mut note = event.message.as_str();
        if note.len() > LONGEST_NOTE {
            note = &note[..note.floor_char_boundary(LONGEST_NOTE)];
        }
        let body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": key.namespace()},
            "eventTime": MicroTime(now),
            "type": severity,
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
fn reason_and_type(kind: EventKind) -> (&'static str, &'static str) {
    match kind {
        EventKind::AnnouncingLocal => ("AnnouncingLocal", "Normal"),
        EventKind::AnnouncingNonLocal => ("AnnouncingNonLocal", "Normal"),
        EventKind::AnnouncementFailed => ("AnnouncementFailed", "Warning"),
        EventKind::NoEligibleNodes => ("NoEligibleNodes", "Warning"),
        EventKind::ConfigError => ("ConfigError", "Warning"),
    }
}

/// A bucket of [`EVENT_BURST`] that fills by one per [`EVENT_INTERVAL`].
struct EventPace {
    /// When the bucket would be full again.
    full_at: Instant,
}

impl EventPace {
    fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// When the next may go out.
    fn next(&mut self, now: Instant) -> Instant {
        self.full_at = self.full_at.max(now) + EVENT_INTERVAL;
        self.full_at.checked_sub(EVENT_INTERVAL * EVENT_BURST).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests;
