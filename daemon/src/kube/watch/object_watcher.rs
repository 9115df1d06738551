//! Following one kind: list everything, hand it over as one replacement (R5), then
//! watch for changes from there.
//!
//! ```text
//!            ┌──────────── asked to ◀── relist, 410, two openings that failed
//!            ▼
//!   list all pages ──▶ FactsUpdate::All ──▶ watch from its version ──▶ Set / Gone
//!       ▲  │ failed                        │ ended, broke, silent
//!       └──┘ backoff                       └──▶ watch again from the last version
//! ```
//! Lists ask for the most recent state, never for whatever a cache has: a list that is
//! older than what was seen would let time run backwards. Resuming a watch loses
//! nothing, the server tells (410) when it cannot.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::core::Request;
use purelb_core::messages::{FactsUpdate, Input};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

use super::response::{ListPage, RawObject, WatchEvent, cut_annotations};
use super::watched_kind::{ObjectReading, WatchedKind};
use crate::kube::client::api_client::ApiClient;
use crate::kube::client::backoff::{Backoff, random_below};
use crate::kube::client::failure_log::FailureLog;
use crate::kube::client::request_error::RequestError;
use crate::kube::tuning::KubeTuning;
use crate::kube::watch::body_lines::{BodyLines, NextLine};

/// What every follower is given.
#[derive(Clone)]
pub(crate) struct WatchContext {
    pub(crate) client: Arc<ApiClient>,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) tuning: KubeTuning,
}

pub(crate) struct ObjectWatcher<K: WatchedKind> {
    kind: K,
    context: WatchContext,
    relist: Arc<Notify>,
    /// A hash of what the engine was sent of each object: what changes nothing (a
    /// Node's heartbeat, above all) is not sent again.
    sent: HashMap<K::Key, u64>,
    hasher: RandomState,
    backoff: Backoff,
    /// The server does not know the field selector; we filter anyway.
    without_fields: bool,
    /// For one page: grows while pages do not come in time, or a slow server would
    /// never be listed.
    list_timeout: Duration,
    /// The same for the beginning of a watch.
    open_timeout: Duration,
    failures: FailureLog,
}

const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a watch is over.
enum WatchEnd {
    Ended,
    Relist,
    Failed(RequestError),
    /// Nobody takes inputs any more.
    InputsClosed,
}

struct InputsClosed;

/// What ended a wait.
#[derive(PartialEq, Eq)]
enum PauseEnd {
    Elapsed,
    Relist,
}

impl<K: WatchedKind> ObjectWatcher<K> {
    pub(crate) fn new(kind: K, context: WatchContext, relist: Arc<Notify>) -> Self {
        let backoff = Backoff::new(context.tuning.backoff_least, context.tuning.backoff_most);
        let (sent, hasher) = (HashMap::new(), RandomState::new());
        let (list_timeout, open_timeout) = (context.tuning.list_timeout, context.tuning.open_timeout);
        Self {
            kind,
            context,
            relist,
            sent,
            hasher,
            backoff,
            without_fields: false,
            list_timeout,
            open_timeout,
            failures: FailureLog::default(),
        }
    }

    /// Until nobody takes inputs any more.
    pub(crate) async fn run(mut self) {
        let relist = self.relist.clone();
        loop {
            // Whoever asks now wants to know what is now: an answer that was under way
            // may have been made before. Dropped in the middle of anything, it is
            // replaced by a complete listing.
            let listed = tokio::select! {
                listed = self.list() => listed,
                () = relist.notified() => continue,
            };
            let version = match listed {
                Ok(Ok(version)) => version,
                Ok(Err(InputsClosed)) => return,
                Err(failure) => {
                    if self.failures.is_new(&failure.to_string()) {
                        tracing::warn!(source = %K::SOURCE, error = %failure, "listing failed; tried again until it is done");
                    } else {
                        tracing::debug!(source = %K::SOURCE, error = %failure, "listing failed");
                    }
                    self.pause(&failure).await;
                    continue;
                }
            };
            if let Some(times) = self.failures.recovered() {
                tracing::info!(source = %K::SOURCE, failed = times, "listed again");
            }
            self.backoff.reset();
            if self.watch(version).await.is_err() {
                return;
            }
        }
    }

    /// Waits before the next try; a request to list again ends the wait, and is reported.
    async fn pause(&mut self, failure: &RequestError) -> PauseEnd {
        let wait = self.backoff.step().max(failure.retry_after().unwrap_or_default());
        tokio::select! {
            () = tokio::time::sleep(wait) => PauseEnd::Elapsed,
            () = self.relist.notified() => PauseEnd::Relist,
        }
    }

    fn path(&self) -> Request {
        Request::new(K::Object::url_path(&(), self.kind.namespace()))
    }

    fn fields(&self) -> Option<String> {
        self.kind.fields().filter(|_| !self.without_fields).map(str::to_owned)
    }

    async fn list(&mut self) -> Result<Result<String, InputsClosed>, RequestError> {
        let mut params = ListParams::default().limit(self.context.tuning.page);
        params.label_selector = self.kind.labels();
        let (mut all, mut sent) = (Vec::new(), HashMap::new());
        let mut seen = HashSet::new();
        loop {
            params.field_selector = self.fields();
            let request = self.path().list(&params);
            let request = request.map_err(|e| RequestError::Unreadable(e.to_string()))?;
            let by = Instant::now() + self.list_timeout;
            let text = match self.context.client.request_text(request, by).await {
                Ok(text) => text,
                Err(failure) if failure.code() == 400 && params.field_selector.is_some() => {
                    tracing::info!(source = %K::SOURCE, "no field selector on this server; filtering here");
                    self.without_fields = true;
                    continue;
                }
                // The continuation expired: from the beginning, not with half of it.
                Err(failure) if failure.code() == 410 && params.continue_token.is_some() => {
                    params.continue_token = None;
                    (all, sent, seen) = Default::default();
                    continue;
                }
                Err(failure) => {
                    if failure == RequestError::Timeout {
                        self.list_timeout = (self.list_timeout * 2).min(LONGEST_TIMEOUT);
                    }
                    return Err(failure);
                }
            };
            let page = ListPage::<K::Object>::parse(&text).map_err(RequestError::Unreadable)?;
            drop(text);
            for item in page.items {
                let Some((key, read)) = self.read_object(item) else { continue };
                if !seen.insert(key.clone()) {
                    continue;
                }
                let facts = match read {
                    ObjectReading::Facts(facts) => Some(facts),
                    ObjectReading::KeepLast => self.kind.last_facts(&key),
                    ObjectReading::NotOurs => None,
                };
                if let Some(facts) = facts {
                    sent.insert(key, self.hash(&facts));
                    all.push(facts);
                }
            }
            match page.more {
                Some(token) => params.continue_token = Some(token),
                None => {
                    self.sent = sent;
                    self.list_timeout = self.context.tuning.list_timeout;
                    if let Some(earlier) = self.kind.earlier_listing(&all)
                        && self.send_update(FactsUpdate::All(earlier)).await.is_err()
                    {
                        return Ok(Err(InputsClosed));
                    }
                    if self.send_update(FactsUpdate::All(all)).await.is_err() {
                        return Ok(Err(InputsClosed));
                    }
                    self.context.client.counters().lists.add();
                    self.kind.listing_done(&seen);
                    return Ok(Ok(page.version));
                }
            }
        }
    }

    fn read_object(&mut self, item: RawObject<K::Object>) -> Option<(K::Key, ObjectReading<K::Facts>)> {
        match item {
            RawObject::Object(mut object) => {
                cut_annotations(object.meta_mut());
                let key = self.kind.key(object.meta())?;
                let read = self.kind.read(&key, &object);
                Some((key, read))
            }
            RawObject::Broken { meta, error } => {
                self.context.client.counters().unreadable_objects.add();
                let key = self.kind.key(&meta)?;
                tracing::warn!(source = %K::SOURCE, object = %key, error, "object passed over: not readable");
                let read = self.kind.unreadable(&key, meta.uid.as_deref().unwrap_or_default(), &error);
                Some((key, read))
            }
        }
    }

    fn hash(&self, facts: &K::Facts) -> u64 {
        // Facts are plain data; what cannot be written down is sent each time.
        let bytes = serde_json::to_vec(facts).unwrap_or_default();
        self.hasher.hash_one(bytes)
    }

    async fn send_update(&mut self, update: FactsUpdate<K::Facts, K::Key>) -> Result<(), InputsClosed> {
        self.kind.before_update(&update).await;
        self.context.inputs.send(K::input(update)).await.map_err(|_| InputsClosed)
    }

    /// Watches, and watches again, until a new listing is needed.
    async fn watch(&mut self, mut version: String) -> Result<(), InputsClosed> {
        let mut failures = 0;
        loop {
            let before = version.clone();
            match self.watch_once(&mut version).await {
                WatchEnd::InputsClosed => return Err(InputsClosed),
                WatchEnd::Relist => return Ok(()),
                WatchEnd::Ended => failures = 0,
                WatchEnd::Failed(failure) => {
                    if version != before {
                        failures = 0;
                        self.backoff.reset();
                    }
                    failures += 1;
                    if failure.code() == 410 {
                        self.context.client.counters().watches_stale.add();
                        return Ok(());
                    }
                    tracing::info!(source = %K::SOURCE, error = %failure, "watch broke");
                    let paused = self.pause(&failure).await;
                    // A version from another life (a restored etcd) would never be served.
                    if failures >= 2 || paused == PauseEnd::Relist {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn open_watch(&mut self, version: &str) -> Result<BodyLines, RequestError> {
        let tuning = &self.context.tuning;
        let lasts = tuning.watch_lasts / 2 + random_below(tuning.watch_lasts / 2);
        let params = WatchParams {
            label_selector: self.kind.labels(),
            field_selector: self.fields(),
            timeout: u32::try_from(lasts.as_secs().max(1)).ok(),
            ..WatchParams::default()
        };
        let request = self.path().watch(&params, version);
        let request = request.map_err(|e| RequestError::Unreadable(e.to_string()))?;
        let by = Instant::now() + self.open_timeout;
        let connection = self.context.client.connection();
        let counters = self.context.client.counters();
        counters.requests.add();
        counters.watches_opened.add();
        let opened = async {
            let response = connection.client.send(request.map(Body::from)).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            let code = response.status().as_u16();
            let body = http_body_util::BodyExt::collect(response.into_body()).await.map_err(|e| {
                let e: Box<dyn std::error::Error + Send + Sync> = Box::new(e);
                kube::Error::Service(e)
            })?;
            let status = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
            Err(RequestError::from_status(code, &status))
        };
        let opened = match timeout_at(by, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(RequestError::Timeout),
        };
        match opened {
            Ok(response) => {
                self.open_timeout = self.context.tuning.open_timeout;
                Ok(BodyLines::new(response.into_body()))
            }
            Err(failure) => {
                if failure == RequestError::Timeout {
                    self.open_timeout = (self.open_timeout * 2).min(LONGEST_TIMEOUT);
                }
                self.context.client.request_failed(&connection, &failure).await;
                Err(failure)
            }
        }
    }

    async fn watch_once(&mut self, version: &mut String) -> WatchEnd {
        let connection = self.context.client.connection();
        let opened = Instant::now();
        let mut lines = match self.open_watch(version).await {
            Ok(lines) => lines,
            Err(failure) => return WatchEnd::Failed(failure),
        };
        let relist = self.relist.clone();
        loop {
            let idle_at = Instant::now() + self.context.tuning.idle;
            let next = tokio::select! {
                next = lines.next(idle_at) => next,
                () = relist.notified() => return WatchEnd::Relist,
            };
            let line = match next {
                Ok(NextLine::Line(line)) => line,
                Ok(NextLine::TooLong) => {
                    self.context.client.counters().unreadable_objects.add();
                    tracing::warn!(source = %K::SOURCE, "an event was too long and was passed over");
                    continue;
                }
                Ok(NextLine::End) => {
                    // One that ends at once, again and again, must not become a loop.
                    if opened.elapsed() < Duration::from_secs(1) {
                        let ended = RequestError::Unreachable("the watch ended at once".to_owned());
                        if self.pause(&ended).await == PauseEnd::Relist {
                            return WatchEnd::Relist;
                        }
                    } else {
                        self.backoff.reset();
                    }
                    return WatchEnd::Ended;
                }
                Ok(NextLine::Idle) => {
                    self.context.client.counters().watches_idle.add();
                    self.context.client.request_failed(&connection, &RequestError::Timeout).await;
                    return WatchEnd::Failed(RequestError::Timeout);
                }
                Err(failure) => {
                    self.context.client.request_failed(&connection, &failure).await;
                    return WatchEnd::Failed(failure);
                }
            };
            match self.handle_line(&line, version).await {
                Ok(None) => {}
                Ok(Some(failure)) => {
                    failure.count_in(self.context.client.counters());
                    return WatchEnd::Failed(failure);
                }
                Err(InputsClosed) => return WatchEnd::InputsClosed,
            }
        }
    }

    async fn handle_line(
        &mut self,
        line: &[u8],
        version: &mut String,
    ) -> Result<Option<RequestError>, InputsClosed> {
        let event = WatchEvent::<K::Object>::parse(line);
        let meta = match &event {
            WatchEvent::Set(RawObject::Object(object)) => Some(object.meta()),
            WatchEvent::Set(RawObject::Broken { meta, .. })
            | WatchEvent::Gone(meta)
            | WatchEvent::Bookmark(meta) => Some(&**meta),
            WatchEvent::Error(_) | WatchEvent::Garbage(_) => None,
        };
        let reached = meta.and_then(|m| m.resource_version.clone()).filter(|v| !v.is_empty());
        match event {
            WatchEvent::Set(item) => {
                if let Some((key, read)) = self.read_object(item) {
                    match read {
                        ObjectReading::Facts(facts) => self.send_set(key, facts).await?,
                        ObjectReading::NotOurs => self.send_gone(key).await?,
                        ObjectReading::KeepLast => {}
                    }
                }
            }
            WatchEvent::Gone(meta) => {
                if let Some(key) = self.kind.key(&meta) {
                    self.kind.object_deleted(&key);
                    self.send_gone(key).await?;
                }
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => {
                let code = if status.reason == "Expired" { 410 } else { status.code };
                return Ok(Some(RequestError::from_status(code, &status)));
            }
            WatchEvent::Garbage(error) => {
                self.context.client.counters().unreadable_objects.add();
                tracing::warn!(source = %K::SOURCE, error, "an event was passed over: not readable");
            }
        }
        if let Some(reached) = reached {
            *version = reached;
        }
        Ok(None)
    }

    async fn send_set(&mut self, key: K::Key, facts: K::Facts) -> Result<(), InputsClosed> {
        let hash = self.hash(&facts);
        if self.sent.insert(key, hash) == Some(hash) {
            return Ok(());
        }
        self.send_update(FactsUpdate::Set(facts)).await
    }

    async fn send_gone(&mut self, key: K::Key) -> Result<(), InputsClosed> {
        if self.sent.remove(&key).is_none() {
            return Ok(());
        }
        self.send_update(FactsUpdate::Gone(key)).await
    }
}
