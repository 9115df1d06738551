//! What the writers need of objects the watches have seen: versions, UIDs and the
//! announcing annotations of our Services. Small, since there may be ten thousand.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use purelb_api::names;
use purelb_core::{Family, ObjectKey};

/// A longer annotation is not kept: whoever needs it asks the server.
const LONGEST_TEXT: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenService {
    pub(crate) uid: Box<str>,
    pub(crate) version: Box<str>,
    v4: Box<str>,
    v6: Box<str>,
}

impl SeenService {
    /// Whole, whatever its size.
    pub(crate) fn of(service: &Service) -> Self {
        let text = |family| {
            service
                .annotations()
                .get(names::announcing(family))
                .map(|t| t.as_str().into())
                .unwrap_or_default()
        };
        Self {
            uid: service.uid().unwrap_or_default().into(),
            version: service.resource_version().unwrap_or_default().into(),
            v4: text(Family::V4),
            v6: text(Family::V6),
        }
    }

    pub(crate) fn announcing(&self, family: Family) -> &str {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct SeenObjects {
    services: Mutex<HashMap<ObjectKey, SeenService>>,
    agents: Mutex<HashMap<ObjectKey, Box<str>>>,
    listed: OnceLock<Instant>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SeenObjects {
    pub(crate) fn record_service(&self, key: &ObjectKey, service: &Service) {
        let mut entry = SeenService::of(service);
        if entry.v4.len().max(entry.v6.len()) > LONGEST_TEXT {
            // No version, no patch from it.
            entry = SeenService { uid: entry.uid, version: "".into(), v4: "".into(), v6: "".into() };
        }
        locked(&self.services).insert(key.clone(), entry);
    }

    pub(crate) fn forget_service(&self, key: &ObjectKey) {
        locked(&self.services).remove(key);
    }

    pub(crate) fn retain_services(&self, keys: &HashSet<&ObjectKey>) {
        locked(&self.services).retain(|key, _| keys.contains(key));
        self.listed.get_or_init(Instant::now);
    }

    /// How long ago the Services were listed for the first time.
    pub(crate) fn time_since_listed(&self) -> Option<Duration> {
        self.listed.get().map(Instant::elapsed)
    }

    /// The newest the watch has shown, if it can be patched from.
    pub(crate) fn service(&self, key: &ObjectKey) -> Option<SeenService> {
        locked(&self.services).get(key).filter(|e| !e.version.is_empty()).cloned()
    }

    pub(crate) fn service_uid(&self, key: &ObjectKey) -> Option<Box<str>> {
        locked(&self.services).get(key).map(|e| e.uid.clone())
    }

    pub(crate) fn record_agent(&self, key: &ObjectKey, uid: &str) {
        locked(&self.agents).insert(key.clone(), uid.into());
    }

    pub(crate) fn forget_agent(&self, key: &ObjectKey) {
        locked(&self.agents).remove(key);
    }

    pub(crate) fn agent_uid(&self, key: &ObjectKey) -> Option<Box<str>> {
        locked(&self.agents).get(key).cloned()
    }
}
