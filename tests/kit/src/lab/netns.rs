//! A named network namespace, and work done inside it.
//!
//! A socket stays in the namespace it was made in, and a child starts in the namespace
//! of the thread that started it. So everything that must happen "inside" happens on a
//! thread that has entered the namespace, and the result is handed out: no thread of
//! the caller ever changes its own.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};

use super::tools;

/// Where `ip netns` keeps them.
pub(super) const DIR: &str = "/run/netns";

#[derive(Clone)]
pub struct Netns {
    name: Arc<str>,
    file: Arc<File>,
}

impl Netns {
    pub(super) fn open(name: &str) -> Result<Self> {
        let path = format!("{DIR}/{name}");
        let file = File::open(&path).with_context(|| format!("opening the network namespace {path}"))?;
        Ok(Self { name: name.into(), file: Arc::new(file) })
    }

    /// Its name, as `ip netns exec NAME` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a thread inside the namespace and waits for it. Sockets and
    /// children made there stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| self.switch().map(|()| work()));
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a thread that lives inside the namespace.
    pub(super) fn thread(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let netns = self.clone();
        let (entered, wait) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let switched = netns.switch();
                let inside = switched.is_ok();
                // The receiver waits below until this arrives.
                let _ = entered.send(switched);
                if inside {
                    work();
                }
            })
            .context("starting a thread")?;
        wait.recv().context("a thread ended before it entered its namespace")??;
        Ok(thread)
    }

    fn switch(&self) -> Result<()> {
        setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("entering the network namespace {}", self.name))
    }

    /// Runs `ip` commands, one per line.
    pub(super) fn ip(&self, lines: &[String]) -> Result<()> {
        tools::ip_batch(Some(&self.name), lines)
    }

    /// Applies an nftables script as one transaction.
    pub(super) fn nft(&self, script: &str) -> Result<()> {
        self.enter(|| tools::run("nft", &["-f", "-"], script))??;
        Ok(())
    }

    /// Writes a setting below /proc/sys/net of this namespace.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.sysctls(&[(key, value)])
    }

    /// Several at once, in order; one thread for all.
    pub(super) fn sysctls<K: AsRef<str> + Sync>(&self, settings: &[(K, &str)]) -> Result<()> {
        self.enter(|| {
            for (key, value) in settings {
                let key = key.as_ref();
                std::fs::write(format!("/proc/sys/net/{key}"), value)
                    .with_context(|| format!("setting net/{key} to {value} in {}", self.name))?;
            }
            Ok(())
        })?
    }
}

impl fmt::Debug for Netns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Netns({})", self.name)
    }
}
