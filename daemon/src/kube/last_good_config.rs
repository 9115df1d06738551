//! The last good configuration, kept on disk (R11).
//!
//! An object that is wrong leaves its last good self in use. That must not end with the
//! process: a bad edit and an upgrade would together empty a node. So what was read last
//! without fault is written down, and what is written down is used for one purpose only:
//! when an object is wrong, and the same object (by its UID) was right before.
//!
//! ```text
//!   purelb-last-good 1 SHA-256-of-the-rest
//!   {"agents":{…},"groups":{…}}
//! ```
//! A file that is not as it should be is set aside and said; it never keeps a daemon from
//! starting.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt::Write, fs};

use purelb_core::ObjectKey;
use purelb_core::facts::{AgentFacts, GroupFacts};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tracing::{info, warn};

/// In the state directory.
const LAST_GOOD_FILE: &str = "last-good";
/// Where a damaged one goes: one is enough to look at.
const DAMAGED_FILE: &str = "last-good.damaged";
/// Of the format; another one is not ours to read.
const FORMAT_HEADER: &str = "purelb-last-good 1 ";
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
    path: Option<PathBuf>,
    content: Arc<Mutex<KeptConfig>>,
    changed: Arc<Notify>,
}

impl LastGoodConfig {
    /// Forgets with the process.
    pub fn in_memory() -> Self {
        Self { path: None, content: Arc::default(), changed: Arc::default() }
    }

    /// Reads what an earlier process left. Blocks for a moment.
    pub fn in_directory(state: &Path) -> Self {
        let path = state.join(LAST_GOOD_FILE);
        let content = match read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => KeptConfig::default(),
            Err(error) => {
                let aside = state.join(DAMAGED_FILE);
                warn!(
                    file = %path.display(), %error,
                    "the last good configuration cannot be used; it is set aside as {DAMAGED_FILE}"
                );
                if let Err(error) = fs::rename(&path, &aside) {
                    warn!(file = %path.display(), %error, "not set aside; it is written anew when there is something to write");
                }
                KeptConfig::default()
            }
        };
        Self { path: Some(path), content: Arc::new(Mutex::new(content)), changed: Arc::default() }
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
        let Some(path) = self.path.clone() else { return };
        let mut failed = false;
        loop {
            self.changed.notified().await;
            let text = encode(&self.lock());
            let to = path.clone();
            // A disk may take its time, and the engine shares this thread.
            let written =
                tokio::task::spawn_blocking(move || crate::host::state_file::replace(&to, &text)).await;
            match written.unwrap_or_else(|gone| Err(io::Error::other(gone))) {
                Ok(()) if std::mem::take(&mut failed) => {
                    info!("the last good configuration is written again")
                }
                Ok(()) => {}
                Err(error) if !std::mem::replace(&mut failed, true) => {
                    warn!(
                        file = %path.display(), %error,
                        "the last good configuration is not written: a bad object would take effect with a restart"
                    );
                }
                Err(_) => {}
            }
        }
    }
}

fn digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn encode(content: &KeptConfig) -> Vec<u8> {
    let body = serde_json::to_vec(content).unwrap_or_default();
    let mut text = format!("{FORMAT_HEADER}{}\n", digest(&body)).into_bytes();
    text.extend(body);
    text
}

fn read(path: &Path) -> io::Result<KeptConfig> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(LARGEST_FILE).read_to_end(&mut text)?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let end = text.iter().position(|b| *b == b'\n').ok_or_else(|| wrong("it has no first line"))?;
    let (header, body) = (&text[..end], &text[end + 1..]);
    let said = header
        .strip_prefix(FORMAT_HEADER.as_bytes())
        .ok_or_else(|| wrong("of another format, or version"))?;
    if said != digest(body).as_bytes() {
        return Err(wrong("its checksum is wrong: it was damaged, or edited"));
    }
    serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests;
