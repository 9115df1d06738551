//! What the follower needs to know of a kind of object, and how pages and events are
//! read: one object that cannot be read is passed over, all others count.

use std::collections::HashSet;
use std::hash::Hash;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::Resource;
use purelb_core::io::{Input, Source, Update};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an object is to us.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read<F> {
    Facts(F),
    /// Not ours, or no longer.
    Not,
    /// Not usable now: what was known of it stays (R11).
    Keep,
}

pub(crate) trait Kind: Send + 'static {
    type Object: Resource<DynamicType = ()> + DeserializeOwned + Send;
    type Key: Clone + Eq + Hash + Ord + std::fmt::Display + Send + Sync;
    type Facts: Serialize + Clone + Send + Sync;
    const SOURCE: Source;

    /// `None`: all namespaces.
    fn namespace(&self) -> Option<&str>;

    fn labels(&self) -> Option<String> {
        None
    }

    fn fields(&self) -> Option<&'static str> {
        None
    }

    fn key(&self, meta: &ObjectMeta) -> Option<Self::Key>;

    fn read(&mut self, key: &Self::Key, object: &Self::Object) -> Read<Self::Facts>;

    /// The object's JSON is not what its kind says.
    fn unreadable(&mut self, _key: &Self::Key, _uid: &str, _error: &str) -> Read<Self::Facts> {
        Read::Keep
    }

    /// The last facts of an object, for one that must be kept across a listing.
    fn last(&self, _key: &Self::Key) -> Option<Self::Facts> {
        None
    }

    /// What a listing of these would have been while all of it was right, if that is
    /// known and some of it no longer is. Told before the listing itself: so a process that
    /// starts comes to see what one that went on has seen.
    fn earlier(&mut self, _all: &[Self::Facts]) -> Option<Vec<Self::Facts>> {
        None
    }

    fn input(update: Update<Self::Facts, Self::Key>) -> Input;

    /// Before the engine hears of it.
    fn before(&mut self, _update: &Update<Self::Facts, Self::Key>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The object was deleted, whether or not it was told.
    fn gone(&mut self, _key: &Self::Key) {}

    /// After a complete listing, in which these were, was handed over.
    fn listed(&mut self, _seen: &HashSet<Self::Key>) {}
}

/// One object of a page or an event.
pub(crate) enum Item<T> {
    Object(T),
    Broken { meta: Box<ObjectMeta>, error: String },
}

/// One page of a listing.
pub(crate) struct Page<T> {
    pub(crate) version: String,
    pub(crate) more: Option<String>,
    pub(crate) items: Vec<Item<T>>,
}

#[derive(Deserialize)]
struct RawPage<T> {
    #[serde(default)]
    metadata: ListMeta,
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
struct JustMeta {
    #[serde(default)]
    metadata: Box<ObjectMeta>,
}

impl<T: DeserializeOwned> Page<T> {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(page) = serde_json::from_str::<RawPage<T>>(text) {
            let items = page.items.into_iter().flatten().map(Item::Object).collect();
            return Ok(Self::of(page.metadata, items));
        }
        // One of them is broken: find out which, at the price of a second look.
        let page: RawPage<Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let items = page.items.into_iter().flatten().map(item).collect();
        Ok(Self::of(page.metadata, items))
    }

    fn of(meta: ListMeta, items: Vec<Item<T>>) -> Self {
        let more = meta.continue_.filter(|token| !token.is_empty());
        Self { version: meta.resource_version.unwrap_or_default(), more, items }
    }
}

fn item<T: DeserializeOwned>(value: Value) -> Item<T> {
    let meta = JustMeta::deserialize(&value).map(|m| m.metadata).unwrap_or_default();
    match serde_json::from_value(value) {
        Ok(object) => Item::Object(object),
        Err(e) => Item::Broken { meta, error: e.to_string() },
    }
}

/// All annotations of an object together may have this much.
const LONGEST_ANNOTATION: usize = 256 << 10;

/// No real server stores longer ones; whatever they are, reading them must not take
/// the time that a renewal needs.
pub(crate) fn cut_annotations(meta: &mut ObjectMeta) {
    for text in meta.annotations.iter_mut().flat_map(|a| a.values_mut()) {
        if text.len() > LONGEST_ANNOTATION {
            text.truncate(text.floor_char_boundary(LONGEST_ANNOTATION));
            text.shrink_to_fit();
        }
    }
}

/// One line of a watch.
pub(crate) enum Event<T> {
    Set(Item<T>),
    Gone(Box<ObjectMeta>),
    Bookmark(Box<ObjectMeta>),
    Error(Box<kube::core::Status>),
    /// Not an event at all.
    Garbage(String),
}

#[derive(Deserialize)]
struct Line<T> {
    #[serde(rename = "type")]
    kind: String,
    object: T,
}

fn inner<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice::<Line<T>>(line).map(|l| l.object).map_err(|e| e.to_string())
}

impl<T: DeserializeOwned> Event<T> {
    pub(crate) fn parse(line: &[u8]) -> Self {
        let kind = match serde_json::from_slice::<Line<IgnoredAny>>(line) {
            Ok(line) => line.kind,
            Err(e) => return Self::Garbage(e.to_string()),
        };
        // What is deleted or marks a place need not be a whole object.
        let meta = || inner::<JustMeta>(line).map(|m| m.metadata);
        match kind.as_str() {
            "ADDED" | "MODIFIED" => match inner(line) {
                Ok(object) => Self::Set(Item::Object(object)),
                Err(error) => match meta() {
                    Ok(meta) => Self::Set(Item::Broken { meta, error }),
                    Err(error) => Self::Garbage(error),
                },
            },
            "DELETED" => meta().map_or_else(Self::Garbage, Self::Gone),
            "BOOKMARK" => meta().map_or_else(Self::Garbage, Self::Bookmark),
            "ERROR" => inner(line).map_or_else(Self::Garbage, |s| Self::Error(Box::new(s))),
            other => Self::Garbage(format!("event of type {:?}", super::failure::clip(other))),
        }
    }
}

#[cfg(test)]
mod tests;
