//! What the watcher needs to know of a kind of object.

use std::collections::HashSet;
use std::hash::Hash;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use purelb_core::messages::{FactsUpdate, Input, Source};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What an object is to us.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ObjectReading<F> {
    Facts(F),
    /// Not ours, or no longer.
    NotOurs,
    /// Not usable now: what was known of it stays (R11).
    KeepLast,
}

pub(crate) trait WatchedKind: Send + 'static {
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

    fn read(&mut self, key: &Self::Key, object: &Self::Object) -> ObjectReading<Self::Facts>;

    /// The object's JSON is not what its kind says.
    fn unreadable(&mut self, _key: &Self::Key, _uid: &str, _error: &str) -> ObjectReading<Self::Facts> {
        ObjectReading::KeepLast
    }

    /// The last facts of an object, for one that must be kept across a listing.
    fn last_facts(&self, _key: &Self::Key) -> Option<Self::Facts> {
        None
    }

    /// What a listing of these would have been while all of it was right, if that is
    /// known and some of it no longer is. Told before the listing itself: so a process that
    /// starts comes to see what one that went on has seen.
    fn earlier_listing(&mut self, _all: &[Self::Facts]) -> Option<Vec<Self::Facts>> {
        None
    }

    fn input(update: FactsUpdate<Self::Facts, Self::Key>) -> Input;

    /// Before the engine hears of it.
    fn before_update(
        &mut self,
        _update: &FactsUpdate<Self::Facts, Self::Key>,
    ) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The object was deleted, whether or not it was told.
    fn object_deleted(&mut self, _key: &Self::Key) {}

    /// After a complete listing, in which these were, was handed over.
    fn listing_done(&mut self, _seen: &HashSet<Self::Key>) {}
}
