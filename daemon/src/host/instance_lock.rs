//! One daemon per runtime directory: two would fight over every address.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

const LOCK_FILE: &str = "purelbd.lock";

#[derive(Debug, Error)]
pub enum LockError {
    #[error("another purelbd (process {pid}) runs on this node and holds {}", path.display())]
    Held { path: PathBuf, pid: String },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Held until dropped; the kernel lets go of it however the process ends.
#[derive(Debug)]
pub struct InstanceLock {
    _file: Flock<File>,
}

impl InstanceLock {
    pub fn take(runtime: &Path) -> Result<Self, LockError> {
        let path = runtime.join(LOCK_FILE);
        let fail = |error| LockError::Io { path: path.clone(), error };
        fs::create_dir_all(runtime).map_err(fail)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .read(true)
            .open(&path)
            .map_err(fail)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                // For the message above, no more: the lock is what counts.
                let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                written.map_err(fail)?;
                Ok(Self { _file: file })
            }
            Err((_, Errno::EWOULDBLOCK)) => {
                let pid =
                    fs::read_to_string(&path).map_or_else(|_| "unknown".into(), |t| t.trim().to_owned());
                Err(LockError::Held { path, pid })
            }
            Err((_, errno)) => Err(fail(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = dir.path().join("purelb");
        let first = InstanceLock::take(&runtime).unwrap();
        let error = InstanceLock::take(&runtime).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        InstanceLock::take(&runtime).unwrap();
    }
}
