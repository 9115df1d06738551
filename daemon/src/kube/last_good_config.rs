//! The last good configuration, kept on disk (R11).
//!
//! An object that is wrong leaves its last good self in use. That must not end with the
//! process: a bad edit and an upgrade would together empty a node. So what was read last
//! without fault is written down, and what is written down is used for one purpose only:
//! when an object is wrong, and the same object (by its UID) was right before.
//!
//! A file that is not as it should be is set aside and said (`host/checked_file.rs`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use purelb_core::ObjectKey;
use purelb_core::facts::{AgentFacts, GroupFacts};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::host::checked_file::CheckedFile;

/// In the state directory.
const LAST_GOOD_FILE: &str = "last-good";
const FILE_FORMAT: &str = "purelb-last-good 1";
/// Thousands of groups with all the ranges there may be.
const LARGEST_FILE: u64 = 64 << 20;

/// What one object said, and which object that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptObject<F> {
    uid: String,
    facts: F,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KeptConfig {
    agents: BTreeMap<ObjectKey, KeptObject<AgentFacts>>,
    groups: BTreeMap<String, KeptObject<GroupFacts>>,
}

/// Shared by those who read the objects.
#[derive(Clone, Debug)]
pub struct LastGoodConfig {
    /// `None`: kept in memory only.
    file: Option<CheckedFile>,
    content: Arc<Mutex<KeptConfig>>,
    changed: Arc<Notify>,
}

impl LastGoodConfig {
    /// Forgets with the process.
    pub fn in_memory() -> Self {
        Self { file: None, content: Arc::default(), changed: Arc::default() }
    }

    /// Reads what an earlier process left. Blocks for a moment.
    pub fn in_directory(state: &Path) -> Self {
        let path = state.join(LAST_GOOD_FILE);
        let file = CheckedFile::new(path, FILE_FORMAT, LARGEST_FILE, "the last good configuration");
        let content = file.read(|_: &KeptConfig| None).unwrap_or_default();
        Self { file: Some(file), content: Arc::new(Mutex::new(content)), changed: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, KeptConfig> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut KeptConfig)) {
        let mut content = self.lock();
        let before = content.clone();
        change(&mut content);
        if *content != before {
            self.changed.notify_one();
        }
    }

    pub(crate) fn keep_agent(&self, uid: &str, facts: &AgentFacts) {
        let kept = KeptObject { uid: uid.to_owned(), facts: facts.clone() };
        self.change(|content| drop(content.agents.insert(facts.key.clone(), kept)));
    }

    /// What this object said when it was last right.
    pub(crate) fn agent(&self, key: &ObjectKey, uid: &str) -> Option<AgentFacts> {
        self.lock().agents.get(key).filter(|kept| kept.uid == uid).map(|kept| kept.facts.clone())
    }

    pub(crate) fn retain_agents(&self, exists: impl Fn(&ObjectKey) -> bool) {
        self.change(|content| content.agents.retain(|key, _| exists(key)));
    }

    pub(crate) fn keep_group(&self, uid: &str, facts: &GroupFacts) {
        let kept = KeptObject { uid: uid.to_owned(), facts: facts.clone() };
        self.change(|content| drop(content.groups.insert(facts.name.clone(), kept)));
    }

    /// This object is wrong: another one of the same name has no claim on its past.
    pub(crate) fn forget_group_unless(&self, name: &str, uid: &str) {
        self.change(|content| {
            if content.groups.get(name).is_some_and(|kept| kept.uid != uid) {
                content.groups.remove(name);
            }
        });
    }

    pub(crate) fn group(&self, name: &str) -> Option<GroupFacts> {
        self.lock().groups.get(name).map(|kept| kept.facts.clone())
    }

    pub(crate) fn retain_groups(&self, exists: impl Fn(&str) -> bool) {
        self.change(|content| content.groups.retain(|name, _| exists(name)));
    }

    /// Writes changes down, for as long as it is polled.
    pub(crate) async fn write_changes(self) {
        let Some(file) = self.file.clone() else { return };
        let mut failed = false;
        loop {
            self.changed.notified().await;
            let text = file.encode(&*self.lock());
            let to = file.clone();
            // A disk may take its time, and the engine shares this thread.
            let written = tokio::task::spawn_blocking(move || to.write(&text?)).await;
            match written.unwrap_or_else(|gone| Err(io::Error::other(gone))) {
                Ok(()) if std::mem::take(&mut failed) => {
                    info!("the last good configuration is written again")
                }
                Ok(()) => {}
                Err(error) if !std::mem::replace(&mut failed, true) => {
                    warn!(
                        file = %file.path().display(), %error,
                        "the last good configuration is not written: a bad object would take effect with a restart"
                    );
                }
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
