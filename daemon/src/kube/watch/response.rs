//! The pages of a listing and the events of a watch. One object that cannot be read is passed
//! over, all others count.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::kube::client::request_error::clip;

/// One object of a page or an event.
pub(crate) enum RawObject<T> {
    Object(T),
    Broken { meta: Box<ObjectMeta>, error: String },
}

/// One page of a listing.
pub(crate) struct ListPage<T> {
    pub(crate) version: String,
    pub(crate) more: Option<String>,
    pub(crate) items: Vec<RawObject<T>>,
}

#[derive(Deserialize)]
struct RawPage<T> {
    #[serde(default)]
    metadata: ListMeta,
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
struct MetadataOnly {
    #[serde(default)]
    metadata: Box<ObjectMeta>,
}

impl<T: DeserializeOwned> ListPage<T> {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(page) = serde_json::from_str::<RawPage<T>>(text) {
            let items = page.items.into_iter().flatten().map(RawObject::Object).collect();
            return Ok(Self::from_parts(page.metadata, items));
        }
        // One of them is broken: find out which, at the price of a second look.
        let page: RawPage<Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let items = page.items.into_iter().flatten().map(raw_object).collect();
        Ok(Self::from_parts(page.metadata, items))
    }

    fn from_parts(meta: ListMeta, items: Vec<RawObject<T>>) -> Self {
        let more = meta.continue_.filter(|token| !token.is_empty());
        Self { version: meta.resource_version.unwrap_or_default(), more, items }
    }
}

fn raw_object<T: DeserializeOwned>(value: Value) -> RawObject<T> {
    let meta = MetadataOnly::deserialize(&value).map(|m| m.metadata).unwrap_or_default();
    match serde_json::from_value(value) {
        Ok(object) => RawObject::Object(object),
        Err(e) => RawObject::Broken { meta, error: e.to_string() },
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
pub(crate) enum WatchEvent<T> {
    Set(RawObject<T>),
    Gone(Box<ObjectMeta>),
    Bookmark(Box<ObjectMeta>),
    Error(Box<kube::core::Status>),
    /// Not an event at all.
    Garbage(String),
}

#[derive(Deserialize)]
struct EventLine<T> {
    #[serde(rename = "type")]
    kind: String,
    object: T,
}

fn event_object<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice::<EventLine<T>>(line).map(|l| l.object).map_err(|e| e.to_string())
}

impl<T: DeserializeOwned> WatchEvent<T> {
    pub(crate) fn parse(line: &[u8]) -> Self {
        let kind = match serde_json::from_slice::<EventLine<IgnoredAny>>(line) {
            Ok(line) => line.kind,
            Err(e) => return Self::Garbage(e.to_string()),
        };
        // What is deleted or marks a place need not be a whole object.
        let meta = || event_object::<MetadataOnly>(line).map(|m| m.metadata);
        match kind.as_str() {
            "ADDED" | "MODIFIED" => match event_object(line) {
                Ok(object) => Self::Set(RawObject::Object(object)),
                Err(error) => match meta() {
                    Ok(meta) => Self::Set(RawObject::Broken { meta, error }),
                    Err(error) => Self::Garbage(error),
                },
            },
            "DELETED" => meta().map_or_else(Self::Garbage, Self::Gone),
            "BOOKMARK" => meta().map_or_else(Self::Garbage, Self::Bookmark),
            "ERROR" => event_object(line).map_or_else(Self::Garbage, |s| Self::Error(Box::new(s))),
            other => Self::Garbage(format!("event of type {:?}", clip(other))),
        }
    }
}

#[cfg(test)]
mod tests;
