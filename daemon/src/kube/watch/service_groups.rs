//! ServiceGroups: the pools.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use purelb_api::{ServiceGroup, service_group};
use purelb_core::ObjectKey;
use purelb_core::facts::{ConfigProblem, GroupFacts};
use purelb_core::messages::{FactsUpdate, Input, Source};
use purelb_core::pools::RangeRules;

use super::watched_kind::{ObjectReading, WatchedKind};
use crate::kube::LastGoodConfig;
use crate::kube::client::request_error::clip;

/// Which addresses are given is the allocator's decision; whatever it gave is announced.
const ANY_ADDRESS: RangeRules =
    RangeRules { skip_last_octet: false, skip_subnet_edges: false, reserved: Vec::new() };

/// A group that is wrong keeps its last good self (R11). Saying so on the object is the
/// allocator's: one writer, not one per node.
pub(crate) struct ServiceGroupKind {
    pub(crate) namespace: String,
    pub(crate) last_good: LastGoodConfig,
    pub(crate) problems: GroupProblems,
}

/// What is wrong with which group, for those who ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupProblems(Arc<Mutex<BTreeMap<String, ConfigProblem>>>);

impl GroupProblems {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ConfigProblem>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<ConfigProblem> {
        self.lock().values().cloned().collect()
    }
}

impl WatchedKind for ServiceGroupKind {
    type Object = ServiceGroup;
    type Key = String;
    type Facts = GroupFacts;
    const SOURCE: Source = Source::ServiceGroups;

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn key(&self, meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }

    fn read(&mut self, key: &String, object: &ServiceGroup) -> ObjectReading<GroupFacts> {
        match service_group::parse(object, &ANY_ADDRESS) {
            Ok(config) => {
                self.problems.lock().remove(key);
                let facts = GroupFacts { retained: service_group::retained(object), ..config.facts() };
                self.last_good.keep_group(&object.uid().unwrap_or_default(), &facts);
                ObjectReading::Facts(facts)
            }
            Err(problem) => {
                self.last_good.forget_group_unless(key, &object.uid().unwrap_or_default());
                self.reject(key, problem)
            }
        }
    }

    fn unreadable(&mut self, key: &String, uid: &str, error: &str) -> ObjectReading<GroupFacts> {
        self.last_good.forget_group_unless(key, uid);
        let Ok(object) = ObjectKey::of(&self.namespace, key) else { return ObjectReading::KeepLast };
        self.reject(key, ConfigProblem { object, field: "spec".to_owned(), message: clip(error) })
    }

    fn object_deleted(&mut self, key: &String) {
        self.last_good.retain_groups(|name| name != key);
        self.problems.lock().remove(key);
    }

    fn listing_done(&mut self, seen: &HashSet<String>) {
        self.last_good.retain_groups(|name| seen.contains(name));
        self.problems.lock().retain(|key, _| seen.contains(key));
    }

    fn last_facts(&self, key: &String) -> Option<GroupFacts> {
        self.last_good.group(key)
    }

    fn input(update: FactsUpdate<GroupFacts, String>) -> Input {
        Input::Groups(update)
    }
}

impl ServiceGroupKind {
    fn reject(&self, key: &str, problem: ConfigProblem) -> ObjectReading<GroupFacts> {
        let ConfigProblem { object, field, message } = &problem;
        tracing::warn!(%object, field, message, "ServiceGroup rejected, the last good one stays");
        self.problems.lock().insert(key.to_owned(), problem);
        ObjectReading::KeepLast
    }
}
