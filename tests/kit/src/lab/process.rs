//! Processes inside a node: started, killed, stopped, restarted, with their logs.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::netns::Netns;
use crate::signals;

/// How much of a log is shown when a test fails.
const LAST_LINES: usize = 40;

/// A process inside a node. Dropping it kills the process; so does the end of the lab,
/// for whatever is left inside its namespaces.
#[derive(Debug)]
pub struct Process {
    name: String,
    netns: Netns,
    command: Command,
    log: PathBuf,
    running: Arc<Running>,
}

/// One start of the process, shared with the thread that waits for its end.
#[derive(Debug)]
struct Running {
    pid: Pid,
    /// Set under the lock in which the process is reaped: as long as it is `None`, the
    /// pid is that of our child and no other's.
    ended: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

impl Process {
    pub(super) fn start(netns: &Netns, name: &str, mut command: Command, log: PathBuf) -> Result<Self> {
        let running = start(netns, name, &mut command, &log)?;
        Ok(Self { name: name.to_owned(), netns: netns.clone(), command, log, running })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> Pid {
        self.running.pid
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        *self.running.lock()
    }

    pub fn is_running(&self) -> bool {
        self.ended().is_none()
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.wait(Duration::from_secs(5)).map(drop)
    }

    /// SIGSTOP: it keeps everything and does nothing, from the return of this on.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// SIGCONT: goes on after [`stop`](Self::stop).
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// SIGTERM, and waits for an orderly end.
    pub fn terminate(&self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.wait(within)
    }

    /// Sends any signal; SIGSTOP is in force when this returns. One that has ended already
    /// gets none, which is no error.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let ended = self.running.lock();
        if ended.is_none() {
            signals::send(self.running.pid, signal).with_context(|| self.name.clone())?;
        }
        Ok(())
    }

    /// Waits for the end, and says how it came.
    pub fn wait(&self, within: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + within;
        let mut ended = self.running.lock();
        loop {
            if let Some(status) = *ended {
                return Ok(status);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("{} has not ended within {within:?}; its log:\n{}", self.name, self.last_lines());
            }
            ended = self.running.changed.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts the same command again, in the same node, on the same log. Kills it first
    /// if it still runs.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.running = start(&self.netns, &self.name, &mut self.command, &self.log)?;
        Ok(())
    }

    /// Everything it wrote to stdout and stderr, over all restarts.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    pub fn log_path(&self) -> &Path {
        &self.log
    }

    fn last_lines(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- last lines of {} ({})\n{}\n---", self.name, self.log.display(), self.last_lines());
        }
        // The lab's end kills what is left inside the namespace, should this fail.
        let _ = self.kill();
    }
}

fn start(netns: &Netns, name: &str, command: &mut Command, log: &Path) -> Result<Arc<Running>> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("opening the log {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let child = netns.enter(|| command.spawn())?.with_context(|| {
        format!("starting {name} ({}) in {}", command.get_program().display(), netns.name())
    })?;
    let running = Arc::new(Running {
        pid: Pid::from_raw(i32::try_from(child.id())?),
        ended: Mutex::new(None),
        changed: Condvar::new(),
    });
    let shared = Arc::clone(&running);
    std::thread::Builder::new()
        .name(format!("wait-{name}"))
        .spawn(move || reap(&shared, child))
        .context("starting the thread that waits for a process")?;
    Ok(running)
}

/// Waits for the end without reaping, then reaps under the lock (see [`Running`]).
fn reap(running: &Running, mut child: Child) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(running.pid), flags).is_err_and(|e| e == nix::errno::Errno::EINTR) {}
    let mut ended = running.lock();
    // Nobody else waits for it; if that were wrong, "ended" is still the truth.
    *ended = Some(child.wait().unwrap_or_else(|_| ExitStatus::from_raw(0)));
    running.changed.notify_all();
}
