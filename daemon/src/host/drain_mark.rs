//! The drain mark: a file that keeps a node drained across restarts and reboots until
//! somebody undrains it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::sync::Mutex;

use crate::host::state_file::{replace, sync_directory};

/// In the state directory.
const MARK_FILE: &str = "draining";
/// A mark is one line of time. Whatever else is there was not written by us.
const LONGEST_MARK: usize = 64;

#[derive(Debug, Error)]
#[error(
    "the drain mark {}: {error}; without it a restart would end the drain, so the state directory must be writable",
    path.display()
)]
pub struct DrainMarkError {
    path: PathBuf,
    error: io::Error,
}

/// The file, and one change at a time.
#[derive(Debug)]
pub struct DrainMark {
    path: PathBuf,
    turn: Mutex<()>,
}

impl DrainMark {
    pub fn in_directory(state: &Path) -> Self {
        Self { path: state.join(MARK_FILE), turn: Mutex::new(()) }
    }

    /// Since when the node drains, if it does. Blocks for a moment.
    pub fn read(&self) -> Result<Option<String>, DrainMarkError> {
        match fs::read_to_string(&self.path) {
            Ok(text) => {
                let text: String =
                    text.trim().chars().filter(|c| !c.is_control()).take(LONGEST_MARK).collect();
                // A node somebody drained stays drained, also if the time was lost.
                Ok(Some(if text.is_empty() { "unknown".to_owned() } else { text }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Marks the node, or keeps the mark that is there; answers since when it drains.
    pub async fn set(&self, since: String) -> Result<String, DrainMarkError> {
        let _turn = self.turn.lock().await;
        if let Some(earlier) = self.read()? {
            return Ok(earlier);
        }
        let (path, text) = (self.path.clone(), since.clone());
        self.run_blocking(move || replace(&path, format!("{text}\n").as_bytes())).await?;
        Ok(since)
    }

    pub async fn clear(&self) -> Result<(), DrainMarkError> {
        let _turn = self.turn.lock().await;
        let path = self.path.clone();
        self.run_blocking(move || match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync_directory(&path),
        })
        .await
    }

    /// A disk may take its time, and the engine shares this thread.
    async fn run_blocking(
        &self,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), DrainMarkError> {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|gone| Err(io::Error::other(gone))).map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> DrainMarkError {
        DrainMarkError { path: self.path.clone(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_mark_survives_and_keeps_its_first_time() {
        let dir = tempfile::tempdir().unwrap();
        let mark = DrainMark::in_directory(dir.path());
        assert_eq!(mark.read().unwrap(), None);
        mark.clear().await.unwrap();
        assert_eq!(mark.set("2026-01-01T00:00:00Z".into()).await.unwrap(), "2026-01-01T00:00:00Z");
        assert_eq!(mark.set("2027-01-01T00:00:00Z".into()).await.unwrap(), "2026-01-01T00:00:00Z");
        let again = DrainMark::in_directory(dir.path());
        assert_eq!(again.read().unwrap().as_deref(), Some("2026-01-01T00:00:00Z"));
        again.clear().await.unwrap();
        assert_eq!(mark.read().unwrap(), None);
    }

    #[tokio::test]
    async fn a_damaged_mark_still_drains() {
        let dir = tempfile::tempdir().unwrap();
        let mark = DrainMark::in_directory(dir.path());
        fs::write(dir.path().join(MARK_FILE), "").unwrap();
        assert_eq!(mark.read().unwrap().as_deref(), Some("unknown"));
        fs::write(dir.path().join(MARK_FILE), format!("a\u{7}b{}", "x".repeat(1000))).unwrap();
        let read = mark.read().unwrap().unwrap();
        assert!(read.starts_with("abx") && read.len() == LONGEST_MARK, "{read:?}");
    }

    #[tokio::test]
    async fn a_missing_directory_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let mark = DrainMark::in_directory(&dir.path().join("nowhere"));
        let error = mark.set("now".into()).await.unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("writable"), "{error}");
    }
}
