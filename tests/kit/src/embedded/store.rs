//! Objects, one counter of versions, and the log of changes watches are served from.
//!
//! ```text
//!   write ── under the lock ──► objects ─┬─► log (bounded; older versions are "expired")
//!                                        └─► every watcher's own bounded queue
//! ```
//! The lock is held for the length of one write or one look, never across an await.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::mpsc;

use super::defaults::Given;
use super::selector::Selector;
use super::status::Refusal;

/// The first version handed out. Well above one, so that version 1 is "too old"
/// from the start, as it is on a server that has been up for a while.
const FIRST_VERSION: u64 = 1000;

/// An object at one version, in the form it is stored in.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) version: u64,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One write.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    storage: String,
    key: Key,
    kind: ChangeKind,
    object: Arc<Stored>,
    before: Option<Arc<Stored>>,
}

/// What a watcher is told of one write.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    pub(crate) kind: ChangeKind,
    pub(crate) object: Arc<Stored>,
}

/// Namespace (empty for cluster-wide kinds) and name: the order of lists.
pub(crate) type Key = (String, String);

#[derive(Debug)]
struct Watcher {
    storage: String,
    selector: Selector,
    queue: mpsc::Sender<Notice>,
}

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    version: u64,
    objects: BTreeMap<String, BTreeMap<Key, Arc<Stored>>>,
    log: VecDeque<Arc<Change>>,
    log_length: usize,
    /// A watch may begin here or later.
    oldest: u64,
    watchers: Vec<Watcher>,
    /// Events a watcher may be behind. One that falls further back is cut off and
    /// counted: it comes back with its last version, as with the real server.
    watch_queue: usize,
    cut_off: u64,
    pub(crate) given: Given,
}

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store(Arc<Mutex<State>>);

impl Store {
    pub(crate) fn new(log_length: usize, watch_queue: usize) -> Store {
        Store(Arc::new(Mutex::new(State {
            version: FIRST_VERSION,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            log_length,
            oldest: FIRST_VERSION,
            watchers: Vec::new(),
            watch_queue,
            cut_off: 0,
            given: Given::default(),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a handler leaves whole objects behind: every commit is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Watchers cut off because they did not keep up.
    pub(crate) fn cut_off(&self) -> u64 {
        self.cut_off
    }

    pub(crate) fn get(&self, storage: &str, key: &Key) -> Option<&Arc<Stored>> {
        self.objects.get(storage)?.get(key)
    }

    pub(crate) fn keys_in(&self, namespace: &str) -> Vec<(String, Key)> {
        let all =
            self.objects.iter().flat_map(|(storage, objects)| objects.keys().map(move |key| (storage, key)));
        all.filter(|(_, key)| key.0 == namespace)
            .map(|(storage, key)| (storage.clone(), key.clone()))
            .collect()
    }

    /// Stores `value` as the next version and tells the watchers. `None` deletes.
    pub(crate) fn commit(&mut self, storage: &str, key: Key, value: Option<Value>) -> Arc<Stored> {
        self.version += 1;
        let version = self.version;
        let stamp = |mut value: Value| {
            value["metadata"]["resourceVersion"] = version.to_string().into();
            Arc::new(Stored { version, value })
        };
        let objects = self.objects.entry(storage.to_string()).or_default();
        let before = objects.get(&key).cloned();
        let (kind, object) = match (value, &before) {
            (Some(value), None) => (ChangeKind::Added, stamp(value)),
            (Some(value), Some(_)) => (ChangeKind::Modified, stamp(value)),
            (None, Some(before)) => (ChangeKind::Deleted, stamp(before.value.clone())),
            (None, None) => panic!("a deletion of {storage} {key:?}, which does not exist"),
        };
        match kind {
            ChangeKind::Deleted => objects.remove(&key),
            _ => objects.insert(key.clone(), object.clone()),
        };
        let change = Arc::new(Change {
            version,
            storage: storage.to_string(),
            key,
            kind,
            object: object.clone(),
            before,
        });
        self.tell(&change);
        self.log.push_back(change);
        while self.log.len() > self.log_length {
            self.forget_one();
        }
        object
    }

    /// Forgets the log: every version but the newest is expired.
    pub(crate) fn compact(&mut self) {
        while !self.log.is_empty() {
            self.forget_one();
        }
        self.oldest = self.version;
    }

    fn forget_one(&mut self) {
        if let Some(change) = self.log.pop_front() {
            self.oldest = change.version;
        }
    }

    fn tell(&mut self, change: &Change) {
        let mut cut_off = 0;
        self.watchers.retain(|watcher| {
            if watcher.queue.is_closed() {
                return false;
            }
            if watcher.storage != change.storage {
                return true;
            }
            let Some(notice) = change.seen_by(&watcher.selector) else {
                return true;
            };
            match watcher.queue.try_send(notice) {
                Ok(()) => true,
                Err(error) => {
                    cut_off += u64::from(matches!(error, mpsc::error::TrySendError::Full(_)));
                    false
                }
            }
        });
        self.cut_off += cut_off;
    }

    /// The objects of a kind as they were at `version`, in the order of lists.
    pub(crate) fn list_at(
        &self,
        storage: &str,
        selector: &Selector,
        version: u64,
    ) -> Result<Vec<(Key, Arc<Stored>)>, Refusal> {
        if version < self.oldest {
            return Err(self.too_old(version));
        }
        let mut objects = self.objects.get(storage).cloned().unwrap_or_default();
        // The log knows what every change replaced: undo what came later.
        let later = self.log.iter().rev().take_while(|change| change.version > version);
        for change in later.filter(|change| change.storage == storage) {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects.into_iter().filter(|(_, object)| selector.matches(&object.value)).collect())
    }

    fn too_old(&self, version: u64) -> Refusal {
        Refusal::expired(format!("too old resource version: {version} ({})", self.oldest))
    }

    /// What happened after `since`, and a queue of what happens from now on.
    pub(crate) fn watch_since(
        &mut self,
        storage: &str,
        selector: &Selector,
        since: u64,
    ) -> Result<(Vec<Notice>, mpsc::Receiver<Notice>), Refusal> {
        if since < self.oldest {
            return Err(self.too_old(since));
        }
        let missed = self.log.iter().filter(|change| change.version > since && change.storage == storage);
        let missed = missed.filter_map(|change| change.seen_by(selector)).collect();
        Ok((missed, self.subscribe(storage, selector)))
    }

    /// A queue of what happens from now on.
    pub(crate) fn subscribe(&mut self, storage: &str, selector: &Selector) -> mpsc::Receiver<Notice> {
        let (queue, receiver) = mpsc::channel(self.watch_queue);
        self.watchers.push(Watcher { storage: storage.to_string(), selector: selector.clone(), queue });
        receiver
    }

    /// Ends every watch, as a server does that goes away.
    pub(crate) fn end_watches(&mut self) {
        self.watchers.clear();
    }
}

impl Change {
    /// The change as a watcher with this selector sees it: an object that comes to
    /// match was added, one that ceases to match was deleted.
    fn seen_by(&self, selector: &Selector) -> Option<Notice> {
        let before = self.before.as_ref().is_some_and(|before| selector.matches(&before.value));
        let now = self.kind != ChangeKind::Deleted && selector.matches(&self.object.value);
        let kind = match (before, now) {
            (false, false) => return None,
            (false, true) => ChangeKind::Added,
            (true, true) => ChangeKind::Modified,
            (true, false) => ChangeKind::Deleted,
        };
        if kind == ChangeKind::Deleted && self.kind != ChangeKind::Deleted {
            // The watcher is shown the object as it last knew it, at the new version.
            let mut value = self.before.as_ref()?.value.clone();
            value["metadata"]["resourceVersion"] = self.version.to_string().into();
            return Some(Notice { kind, object: Arc::new(Stored { version: self.version, value }) });
        }
        Some(Notice { kind, object: self.object.clone() })
    }
}
