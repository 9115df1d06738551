//! Get, list and watch.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kinds::Kind;
use super::path::Query;
use super::present::Form;
use super::selector::Selector;
use super::status::Refusal;
use super::store::{ChangeKind, Key, Notice, Store, Stored};

/// A bookmark is sent this long before a watch ends by its own timeout.
const BEFORE_THE_END: Duration = Duration::from_secs(2);

/// How long a watch lasts that names no timeout.
const WATCH_LASTS: Duration = Duration::from_secs(30 * 60);

fn parameter<'a>(query: &'a Query, name: &str) -> &'a str {
    query.get(name).map_or("", String::as_str)
}

fn version_of(query: &Query) -> Result<Option<u64>, Refusal> {
    let text = parameter(query, "resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    let refused = |error: std::num::ParseIntError| {
        Refusal::internal(format!("resourceVersion: Invalid value: {text:?}: {error}"))
    };
    text.parse().map(Some).map_err(refused)
}

fn selector_of(kind: &Kind, namespace: &str, query: &Query) -> Result<Selector, Refusal> {
    let (labels, fields) = (parameter(query, "labelSelector"), parameter(query, "fieldSelector"));
    Selector::parse(kind, namespace, labels, fields)
}

/// GET of one object.
pub(crate) fn get(store: &Store, kind: &Kind, key: &Key) -> Result<Value, Refusal> {
    let state = store.lock();
    let found = state.get(&kind.storage(), key).ok_or_else(|| Refusal::not_found(kind, &key.1))?;
    Ok(kind.shown(&found.value))
}

/// Where the next page begins: the version of the first page and the last key shown.
fn continue_token(version: u64, last: &Key) -> String {
    let text = json!({"rv": version, "ns": last.0, "name": last.1}).to_string();
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_token(token: &str) -> Option<(u64, Key)> {
    let bytes = (0..token.len()).step_by(2).map(|at| u8::from_str_radix(token.get(at..at + 2)?, 16).ok());
    let value: Value = serde_json::from_slice(&bytes.collect::<Option<Vec<_>>>()?).ok()?;
    let text = |name: &str| value[name].as_str().map(str::to_string);
    Some((value["rv"].as_u64()?, (text("ns")?, text("name")?)))
}

/// GET of a collection.
pub(crate) fn list(store: &Store, kind: &Kind, namespace: &str, query: &Query) -> Result<Value, Refusal> {
    let selector = selector_of(kind, namespace, query)?;
    let asked = version_of(query)?;
    let matching = parameter(query, "resourceVersionMatch");
    let invalid = |why: &str| Refusal::invalid_options("ListOptions", "resourceVersionMatch", why);
    match (matching, asked) {
        ("", _) | ("NotOlderThan" | "Exact", Some(1..)) | ("NotOlderThan", Some(0)) => {}
        ("Exact", Some(0)) => {
            return Err(invalid(
                "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        ("NotOlderThan" | "Exact", None) => {
            return Err(invalid(
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        (other, _) => return Err(invalid(&format!("Unsupported value: {other:?}"))),
    }
    let state = store.lock();
    let newest = state.version();
    if let Some(asked) = asked.filter(|asked| *asked > newest) {
        return Err(Refusal::too_large_version(asked, newest));
    }
    let limit = parameter(query, "limit").parse::<usize>().unwrap_or(0);
    let (version, after) = match parameter(query, "continue") {
        "" if matching == "Exact" => (asked.unwrap_or(newest), None),
        "" => (newest, None),
        token => {
            let (version, last) = read_token(token).ok_or_else(|| {
                Refusal::bad_request("continue key is not valid: it was not given by this server")
            })?;
            (version, Some(last))
        }
    };
    let found = state.list_at(&kind.storage(), &selector, version).map_err(|refusal| {
        let again = "The provided continue parameter is too old to display a consistent list result. \
                     You must start a new list without the continue parameter.";
        if after.is_some() { Refusal::expired(again) } else { refusal }
    })?;
    drop(state);
    let mut left = found.into_iter().filter(|(key, _)| after.as_ref().is_none_or(|after| key > after));
    let page = left.by_ref().take(if limit == 0 { usize::MAX } else { limit }).collect::<Vec<_>>();
    let remaining = left.count();
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if let (1.., Some((last, _))) = (remaining, page.last()) {
        metadata["continue"] = continue_token(version, last).into();
        if selector.takes_all() {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    Ok(json!({
        "kind": format!("{}List", kind.kind),
        "apiVersion": kind.api_version(),
        "metadata": metadata,
        "items": page.iter().map(|(_, object)| item(kind, object)).collect::<Vec<_>>(),
    }))
}

/// An object inside a list: built-in kinds leave out what the list says already.
fn item(kind: &Kind, object: &Stored) -> Value {
    let mut shown = kind.shown(&object.value);
    if !kind.is_custom()
        && let Some(map) = shown.as_object_mut()
    {
        map.remove("kind");
        map.remove("apiVersion");
    }
    shown
}

/// How the server behaves on watches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchManners {
    pub(crate) bookmark_every: Duration,
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": kind, "object": object}).to_string();
    text.push('\n');
    text.into()
}

fn told(kind: &Kind, form: Form, notice: &Notice) -> Bytes {
    let word = match notice.kind {
        ChangeKind::Added => "ADDED",
        ChangeKind::Modified => "MODIFIED",
        ChangeKind::Deleted => "DELETED",
    };
    line(word, &form.object(kind, kind.shown(&notice.object.value)))
}

fn bookmark(kind: &Kind, form: Form, version: u64, ends_initial: bool) -> Bytes {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if ends_initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
    let empty = kind.shaped(object.clone()).unwrap_or(object);
    line("BOOKMARK", &form.object(kind, empty))
}

/// GET with `watch=true`: the lines of the answer, as they happen.
pub(crate) fn watch(
    store: &Store,
    kind: &Kind,
    namespace: &str,
    query: &Query,
    form: Form,
    manners: WatchManners,
) -> Result<impl Stream<Item = Bytes> + Send + use<>, Refusal> {
    let selector = selector_of(kind, namespace, query)?;
    let asked = version_of(query)?;
    let initial = match parameter(query, "sendInitialEvents") {
        "" => None,
        value => Some(value == "true" || value == "1"),
    };
    let matching = parameter(query, "resourceVersionMatch");
    let bookmarks = ["true", "1"].contains(&parameter(query, "allowWatchBookmarks"));
    if initial.is_some() != (matching == "NotOlderThan") {
        let why = "Forbidden: sendInitialEvents and resourceVersionMatch NotOlderThan go together";
        return Err(Refusal::invalid_options("ListOptions", "sendInitialEvents", why));
    }
    let seconds = parameter(query, "timeoutSeconds").parse::<u64>().ok().filter(|seconds| *seconds > 0);
    let end = Instant::now() + seconds.map_or(WATCH_LASTS, Duration::from_secs);

    let storage = kind.storage();
    let mut state = store.lock();
    // A watch from no version in particular begins with everything there is.
    let from_now = initial == Some(true) || (initial.is_none() && asked.unwrap_or(0) == 0);
    let begun = if from_now {
        let newest = state.version();
        let all = state.list_at(&storage, &selector, newest)?;
        let added = all.into_iter().map(|(_, object)| Notice { kind: ChangeKind::Added, object });
        Ok((added.collect(), state.subscribe(&storage, &selector)))
    } else {
        let newest = state.version();
        let since =
            if initial == Some(false) && asked.unwrap_or(0) == 0 { newest } else { asked.unwrap_or(newest) };
        state.watch_since(&storage, &selector, since)
    };
    let began_at = state.version();
    drop(state);

    let kind = *kind;
    let (first, receiver) = match begun {
        Ok((notices, receiver)) => {
            let mut lines = notices.iter().map(|notice| told(&kind, form, notice)).collect::<Vec<_>>();
            if initial == Some(true) && bookmarks {
                lines.push(bookmark(&kind, form, began_at, true));
            }
            (lines, Some(receiver))
        }
        // The real server, too, opens the watch and then says that it cannot.
        Err(refusal) => (vec![line("ERROR", &refusal.body())], None),
    };
    let live = Live {
        kind,
        form,
        receiver,
        store: store.clone(),
        end,
        next_bookmark: bookmarks.then(|| next_bookmark(Instant::now(), end, manners)),
        manners,
        last_told: began_at,
    };
    Ok(stream::iter(first).chain(stream::unfold(live, Live::next)))
}

/// At the next interval, or shortly before the end if that is sooner.
fn next_bookmark(now: Instant, end: Instant, manners: WatchManners) -> Instant {
    let regular = now + manners.bookmark_every;
    match end.checked_sub(BEFORE_THE_END) {
        Some(last) if last > now => regular.min(last),
        _ => regular,
    }
}

struct Live {
    kind: Kind,
    form: Form,
    receiver: Option<tokio::sync::mpsc::Receiver<Notice>>,
    store: Store,
    end: Instant,
    next_bookmark: Option<Instant>,
    manners: WatchManners,
    last_told: u64,
}

impl Live {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let receiver = self.receiver.as_mut()?;
        let bookmark_at = self.next_bookmark.unwrap_or(self.end + WATCH_LASTS);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(self.end) => None,
            notice = receiver.recv() => {
                let notice = notice?;
                self.last_told = notice.object.version;
                Some((told(&self.kind, self.form, &notice), self))
            }
            () = tokio::time::sleep_until(bookmark_at) => {
                // Nothing is queued for this watcher, and the lock keeps it so: what
                // the store has reached by now, this watcher has seen.
                let version = {
                    let state = self.store.lock();
                    if receiver.is_empty() { state.version() } else { self.last_told }
                };
                self.last_told = version;
                self.next_bookmark = Some(next_bookmark(Instant::now(), self.end, self.manners));
                Some((bookmark(&self.kind, self.form, version, false), self))
            }
        }
    }
}
