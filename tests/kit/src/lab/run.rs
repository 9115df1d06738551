//! Names of one run of a lab, and the removal of what a run leaves.
//!
//! Everything a lab makes on the host is named `plb.<pid>.<start>.<n>`: the process, its
//! start time (a pid alone is used again), and which of its labs it is. So two runs
//! never meet, and what a killed run left behind can be told from what is in use.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{netns, tools};
use crate::signals;

const PREFIX: &str = "plb";

/// How long killed processes may take to be gone.
const KILL_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunId {
    pid: u32,
    start: u64,
    lab: u32,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}.{}.{}.{}", self.pid, self.start, self.lab)
    }
}

impl RunId {
    pub(super) fn next() -> Result<Self> {
        // Names must differ within a process; the number has no other meaning.
        static LABS: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let start = start_time(pid).context("reading this process's start time from /proc")?;
        Ok(Self { pid, start, lab: LABS.fetch_add(1, Ordering::Relaxed) })
    }

    /// The run that made `name`, if a lab made it.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        if parts.next()? != PREFIX {
            return None;
        }
        let (pid, start, lab) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { pid: pid.parse().ok()?, start: start.parse().ok()?, lab: lab.parse().ok()? })
    }

    fn alive(self) -> bool {
        start_time(self.pid) == Some(self.start)
    }

    pub(super) fn netns(self, name: &str) -> String {
        format!("{self}.{name}")
    }

    /// Where the lab keeps logs and what its processes write.
    pub(super) fn dir(self) -> PathBuf {
        std::env::temp_dir().join(self.to_string())
    }

    /// Removes everything this run made. What is gone already is no error.
    fn remove(self) {
        for name in names_in(netns::DIR, |run| run == self) {
            remove_netns(&name);
        }
        let _ = std::fs::remove_dir_all(self.dir());
    }
}

/// Field 22 of /proc/PID/stat. The name in field 2 may hold spaces and parentheses.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    // A zombie has a start time too, but can no longer use anything.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn names_in(dir: impl Into<PathBuf>, wanted: impl Fn(RunId) -> bool) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir.into()) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| RunId::of(name).is_some_and(&wanted))
        .collect()
}

/// Removes what runs left whose process is gone.
pub(super) fn sweep() {
    for name in names_in(netns::DIR, |run| !run.alive()) {
        remove_netns(&name);
    }
    for name in names_in(std::env::temp_dir(), |run| !run.alive()) {
        let _ = std::fs::remove_dir_all(std::env::temp_dir().join(name));
    }
}

/// Kills what runs inside, then removes the name. The kernel frees the namespace and
/// its links when the last socket in it is closed.
fn remove_netns(name: &str) {
    // What cannot be killed keeps its namespace; there is nobody left to be told.
    let _ = kill_all_in(name);
    // Another sweep may have been quicker.
    let _ = tools::run("ip", &["netns", "del", name], "");
}

/// Kills every process in a namespace, and waits until they are gone.
pub(super) fn kill_all_in(name: &str) -> Result<()> {
    let started = Instant::now();
    loop {
        let pids = pids_in(name);
        if pids.is_empty() {
            return Ok(());
        }
        if started.elapsed() > KILL_WITHIN {
            bail!("processes {pids:?} in {name} are still there {KILL_WITHIN:?} after SIGKILL");
        }
        for pid in pids {
            let _ = kill(pid, Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Signals every process in a namespace. SIGSTOP is in force when this returns.
pub(super) fn signal_all_in(name: &str, signal: Signal) -> Result<()> {
    for pid in pids_in(name) {
        match signals::send(pid, signal) {
            Err(_) if kill(pid, None).is_err() => {} // It has ended meanwhile.
            sent => sent?,
        }
    }
    Ok(())
}

/// Processes whose main thread is in the namespace: those started there, never the
/// process whose helper threads entered it.
fn pids_in(name: &str) -> Vec<Pid> {
    let Ok(wanted) = std::fs::metadata(format!("{}/{name}", netns::DIR)) else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            std::fs::metadata(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|have| have.ino() == wanted.ino() && have.dev() == wanted.dev())
        })
        .map(Pid::from_raw)
        .filter(|pid| *pid != Pid::this())
        .collect()
}

/// Runs that must be removed if the process is told to end. A signal reaches the
/// process, not a value, hence the one global list.
static OPEN: Mutex<Vec<RunId>> = Mutex::new(Vec::new());

fn open() -> std::sync::MutexGuard<'static, Vec<RunId>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes its run when dropped, or when a signal ends the process first.
#[derive(Debug)]
pub(super) struct Cleanup(RunId);

impl Cleanup {
    pub(super) fn of(run: RunId, signals: Signals) -> Result<Self> {
        if signals == Signals::CleanUpAndExit {
            install_signal_hook()?;
        }
        open().push(run);
        Ok(Self(run))
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.remove();
        open().retain(|run| *run != self.0);
    }
}

/// Who acts on SIGINT, SIGTERM and SIGHUP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signals {
    /// The lab removes what it made and ends the process with 128 + the signal. Right
    /// for tests, which nobody else ends in order.
    #[default]
    CleanUpAndExit,
    /// The caller handles them and drops the lab; right for programs such as a demo.
    LeftToCaller,
}

fn install_signal_hook() -> Result<()> {
    static HOOK: Once = Once::new();
    let mut result = Ok(());
    HOOK.call_once(|| result = start_signal_thread());
    result
}

fn start_signal_thread() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime that waits for signals")?;
    let context = runtime.enter();
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [mut int, mut term, mut hup] = [signal(kinds[0])?, signal(kinds[1])?, signal(kinds[2])?];
    drop(context);
    std::thread::Builder::new().name("lab-signals".into()).spawn(move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = int.recv() => kinds[0].as_raw_value(),
                _ = term.recv() => kinds[1].as_raw_value(),
                _ = hup.recv() => kinds[2].as_raw_value(),
            }
        });
        // Held to the end: a lab being built or dropped elsewhere waits here.
        let runs = open();
        for run in runs.iter() {
            run.remove();
        }
        eprintln!("lab: ended by signal {number}; removed {} lab(s)", runs.len());
        std::process::exit(128 + number);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_run() {
        let run = RunId::next().unwrap();
        assert_eq!(RunId::of(&run.netns("node.with.dots")), Some(run));
        assert_ne!(RunId::next().unwrap(), run);
        for foreign in ["default", "plb", "plb.x.1.2.a", "cni-1234", "plb.1.2"] {
            assert_eq!(RunId::of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_reused_pid_is_another_run() {
        let run = RunId::next().unwrap();
        assert!(run.alive());
        assert!(!RunId { start: run.start + 1, ..run }.alive());
    }
}
