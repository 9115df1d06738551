//! Following one kind: list everything, hand it over as one replacement (R5), then
//! watch for changes from there.
//!
//! ```text
//!            ┌──────────── asked to ◀── relist, 410, two openings that failed
//!            ▼
//!   list all pages ──▶ Update::All ──▶ watch from its version ──▶ Set / Gone
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
use purelb_core::io::{Input, Update};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

use super::backoff::{Backoff, up_to};
use super::failure::Failure;
use super::kind::{Event, Item, Kind, Page, Read, cut_annotations};
use super::lane::Lane;
use super::stream::{Lines, Next};
use super::trouble::Trouble;
use super::tuning::Tuning;

/// What every follower is given.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) lane: Arc<Lane>,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) tuning: Tuning,
}

pub(crate) struct Follower<K: Kind> {
    kind: K,
    ground: Ground,
    relist: Arc<Notify>,
    /// A hash of what the engine was told of each object: what changes nothing (a
    /// Node's heartbeat, above all) is not told again.
    told: HashMap<K::Key, u64>,
    hasher: RandomState,
    backoff: Backoff,
    /// The server does not know the field selector; we filter anyway.
    without_fields: bool,
    /// For one page: grows while pages do not come in time, or a slow server would
    /// never be listed.
    patience: Duration,
    /// The same for the beginning of a watch.
    open_patience: Duration,
    trouble: Trouble,
}

const MOST_PATIENCE: Duration = Duration::from_secs(30);

/// Why a watch is over.
enum Over {
    Ended,
    Relist,
    Failed(Failure),
    /// Nobody takes inputs any more.
    Closed,
}

struct Closed;

/// What ended a wait.
#[derive(PartialEq, Eq)]
enum Paused {
    Over,
    Relist,
}

impl<K: Kind> Follower<K> {
    pub(crate) fn new(kind: K, ground: Ground, relist: Arc<Notify>) -> Self {
        let backoff = Backoff::new(ground.tuning.backoff_least, ground.tuning.backoff_most);
        let (told, hasher) = (HashMap::new(), RandomState::new());
        let (patience, open_patience) = (ground.tuning.list_timeout, ground.tuning.open_timeout);
        Self {
            kind,
            ground,
            relist,
            told,
            hasher,
            backoff,
            without_fields: false,
            patience,
            open_patience,
            trouble: Trouble::default(),
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
                Ok(Err(Closed)) => return,
                Err(failure) => {
                    if self.trouble.is_news(&failure.to_string()) {
                        tracing::warn!(source = %K::SOURCE, error = %failure, "listing failed; tried again until it is done");
                    } else {
                        tracing::debug!(source = %K::SOURCE, error = %failure, "listing failed");
                    }
                    self.pause(&failure).await;
                    continue;
                }
            };
            if let Some(times) = self.trouble.over() {
                tracing::info!(source = %K::SOURCE, failed = times, "listed again");
            }
            self.backoff.reset();
            if self.watch(version).await.is_err() {
                return;
            }
        }
    }

    /// Waits before the next try; a request to list again ends the wait, and is told.
    async fn pause(&mut self, failure: &Failure) -> Paused {
        let wait = self.backoff.step().max(failure.retry_after().unwrap_or_default());
        tokio::select! {
            () = tokio::time::sleep(wait) => Paused::Over,
            () = self.relist.notified() => Paused::Relist,
        }
    }

    fn path(&self) -> Request {
        Request::new(K::Object::url_path(&(), self.kind.namespace()))
    }

    fn fields(&self) -> Option<String> {
        self.kind.fields().filter(|_| !self.without_fields).map(str::to_owned)
    }

    async fn list(&mut self) -> Result<Result<String, Closed>, Failure> {
        let mut params = ListParams::default().limit(self.ground.tuning.page);
        params.label_selector = self.kind.labels();
        let (mut all, mut told) = (Vec::new(), HashMap::new());
        let mut seen = HashSet::new();
        loop {
            params.field_selector = self.fields();
            let request = self.path().list(&params);
            let request = request.map_err(|e| Failure::Unreadable(e.to_string()))?;
            let by = Instant::now() + self.patience;
            let text = match self.ground.lane.text(request, by).await {
                Ok(text) => text,
                Err(failure) if failure.code() == 400 && params.field_selector.is_some() => {
                    tracing::info!(source = %K::SOURCE, "no field selector on this server; filtering here");
                    self.without_fields = true;
                    continue;
                }
                // The continuation expired: from the beginning, not with half of it.
                Err(failure) if failure.code() == 410 && params.continue_token.is_some() => {
                    params.continue_token = None;
                    (all, told, seen) = Default::default();
                    continue;
                }
                Err(failure) => {
                    if failure == Failure::Timeout {
                        self.patience = (self.patience * 2).min(MOST_PATIENCE);
                    }
                    return Err(failure);
                }
            };
            let page = Page::<K::Object>::parse(&text).map_err(Failure::Unreadable)?;
            drop(text);
            for item in page.items {
                let Some((key, read)) = self.read(item) else { continue };
                if !seen.insert(key.clone()) {
                    continue;
                }
                let facts = match read {
                    Read::Facts(facts) => Some(facts),
                    Read::Keep => self.kind.last(&key),
                    Read::Not => None,
                };
                if let Some(facts) = facts {
                    told.insert(key, self.hash(&facts));
                    all.push(facts);
                }
            }
            match page.more {
                Some(token) => params.continue_token = Some(token),
                None => {
                    self.told = told;
                    self.patience = self.ground.tuning.list_timeout;
                    if let Some(earlier) = self.kind.earlier(&all)
                        && self.tell(Update::All(earlier)).await.is_err()
                    {
                        return Ok(Err(Closed));
                    }
                    if self.tell(Update::All(all)).await.is_err() {
                        return Ok(Err(Closed));
                    }
                    self.ground.lane.counters().lists.add();
                    self.kind.listed(&seen);
                    return Ok(Ok(page.version));
                }
            }
        }
    }

    fn read(&mut self, item: Item<K::Object>) -> Option<(K::Key, Read<K::Facts>)> {
        match item {
            Item::Object(mut object) => {
                cut_annotations(object.meta_mut());
                let key = self.kind.key(object.meta())?;
                let read = self.kind.read(&key, &object);
                Some((key, read))
            }
            Item::Broken { meta, error } => {
                self.ground.lane.counters().unreadable_objects.add();
                let key = self.kind.key(&meta)?;
                tracing::warn!(source = %K::SOURCE, object = %key, error, "object passed over: not readable");
                let read = self.kind.unreadable(&key, meta.uid.as_deref().unwrap_or_default(), &error);
                Some((key, read))
            }
        }
    }

    fn hash(&self, facts: &K::Facts) -> u64 {
        // Facts are plain data; what cannot be written down is told each time.
        let bytes = serde_json::to_vec(facts).unwrap_or_default();
        self.hasher.hash_one(bytes)
    }

    async fn tell(&mut self, update: Update<K::Facts, K::Key>) -> Result<(), Closed> {
        self.kind.before(&update).await;
        self.ground.inputs.send(K::input(update)).await.map_err(|_| Closed)
    }

    /// Watches, and watches again, until a new listing is needed.
    async fn watch(&mut self, mut version: String) -> Result<(), Closed> {
        let mut failures = 0;
        loop {
            let before = version.clone();
            match self.watch_once(&mut version).await {
                Over::Closed => return Err(Closed),
                Over::Relist => return Ok(()),
                Over::Ended => failures = 0,
                Over::Failed(failure) => {
                    if version != before {
                        failures = 0;
                        self.backoff.reset();
                    }
                    failures += 1;
                    if failure.code() == 410 {
                        self.ground.lane.counters().watches_stale.add();
                        return Ok(());
                    }
                    tracing::info!(source = %K::SOURCE, error = %failure, "watch broke");
                    let paused = self.pause(&failure).await;
                    // A version from another life (a restored etcd) would never be served.
                    if failures >= 2 || paused == Paused::Relist {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn open(&mut self, version: &str) -> Result<Lines, Failure> {
        let tuning = &self.ground.tuning;
        let lasts = tuning.watch_lasts / 2 + up_to(tuning.watch_lasts / 2);
        let params = WatchParams {
            label_selector: self.kind.labels(),
            field_selector: self.fields(),
            timeout: u32::try_from(lasts.as_secs().max(1)).ok(),
            ..WatchParams::default()
        };
        let request = self.path().watch(&params, version);
        let request = request.map_err(|e| Failure::Unreadable(e.to_string()))?;
        let by = Instant::now() + self.open_patience;
        let way = self.ground.lane.way();
        let counters = self.ground.lane.counters();
        counters.requests.add();
        counters.watches_opened.add();
        let opened = async {
            let response = way.client.send(request.map(Body::from)).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            let code = response.status().as_u16();
            let body = http_body_util::BodyExt::collect(response.into_body()).await.map_err(|e| {
                let e: Box<dyn std::error::Error + Send + Sync> = Box::new(e);
                kube::Error::Service(e)
            })?;
            let status = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
            Err(Failure::of_status(code, &status))
        };
        let opened = match timeout_at(by, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(Failure::Timeout),
        };
        match opened {
            Ok(response) => {
                self.open_patience = self.ground.tuning.open_timeout;
                Ok(Lines::new(response.into_body()))
            }
            Err(failure) => {
                if failure == Failure::Timeout {
                    self.open_patience = (self.open_patience * 2).min(MOST_PATIENCE);
                }
                self.ground.lane.failed(&way, &failure).await;
                Err(failure)
            }
        }
    }

    async fn watch_once(&mut self, version: &mut String) -> Over {
        let way = self.ground.lane.way();
        let opened = Instant::now();
        let mut lines = match self.open(version).await {
            Ok(lines) => lines,
            Err(failure) => return Over::Failed(failure),
        };
        let relist = self.relist.clone();
        loop {
            let idle_at = Instant::now() + self.ground.tuning.idle;
            let next = tokio::select! {
                next = lines.next(idle_at) => next,
                () = relist.notified() => return Over::Relist,
            };
            let line = match next {
                Ok(Next::Line(line)) => line,
                Ok(Next::TooLong) => {
                    self.ground.lane.counters().unreadable_objects.add();
                    tracing::warn!(source = %K::SOURCE, "an event was too long and was passed over");
                    continue;
                }
                Ok(Next::End) => {
                    // One that ends at once, again and again, must not become a loop.
                    if opened.elapsed() < Duration::from_secs(1) {
                        let ended = Failure::Unreachable("the watch ended at once".to_owned());
                        if self.pause(&ended).await == Paused::Relist {
                            return Over::Relist;
                        }
                    } else {
                        self.backoff.reset();
                    }
                    return Over::Ended;
                }
                Ok(Next::Idle) => {
                    self.ground.lane.counters().watches_idle.add();
                    self.ground.lane.failed(&way, &Failure::Timeout).await;
                    return Over::Failed(Failure::Timeout);
                }
                Err(failure) => {
                    self.ground.lane.failed(&way, &failure).await;
                    return Over::Failed(failure);
                }
            };
            match self.event(&line, version).await {
                Ok(None) => {}
                Ok(Some(failure)) => {
                    failure.count(self.ground.lane.counters());
                    return Over::Failed(failure);
                }
                Err(Closed) => return Over::Closed,
            }
        }
    }

    async fn event(&mut self, line: &[u8], version: &mut String) -> Result<Option<Failure>, Closed> {
        let event = Event::<K::Object>::parse(line);
        let meta = match &event {
            Event::Set(Item::Object(object)) => Some(object.meta()),
            Event::Set(Item::Broken { meta, .. }) | Event::Gone(meta) | Event::Bookmark(meta) => {
                Some(&**meta)
            }
            Event::Error(_) | Event::Garbage(_) => None,
        };
        let reached = meta.and_then(|m| m.resource_version.clone()).filter(|v| !v.is_empty());
        match event {
            Event::Set(item) => {
                if let Some((key, read)) = self.read(item) {
                    match read {
                        Read::Facts(facts) => self.set(key, facts).await?,
                        Read::Not => self.gone(key).await?,
                        Read::Keep => {}
                    }
                }
            }
            Event::Gone(meta) => {
                if let Some(key) = self.kind.key(&meta) {
                    self.kind.gone(&key);
                    self.gone(key).await?;
                }
            }
            Event::Bookmark(_) => {}
            Event::Error(status) => {
                let code = if status.reason == "Expired" { 410 } else { status.code };
                return Ok(Some(Failure::of_status(code, &status)));
            }
            Event::Garbage(error) => {
                self.ground.lane.counters().unreadable_objects.add();
                tracing::warn!(source = %K::SOURCE, error, "an event was passed over: not readable");
            }
        }
        if let Some(reached) = reached {
            *version = reached;
        }
        Ok(None)
    }

    async fn set(&mut self, key: K::Key, facts: K::Facts) -> Result<(), Closed> {
        let hash = self.hash(&facts);
        if self.told.insert(key, hash) == Some(hash) {
            return Ok(());
        }
        self.tell(Update::Set(facts)).await
    }

    async fn gone(&mut self, key: K::Key) -> Result<(), Closed> {
        if self.told.remove(&key).is_none() {
            return Ok(());
        }
        self.tell(Update::Gone(key)).await
    }
}
