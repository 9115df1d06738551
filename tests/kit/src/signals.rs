//! Signals that are in force when the call returns.
//!
//! `kill(2)` returns when a signal is queued. A stopped process goes on until each of its
//! threads has come to the kernel's door: on a busy machine that is long enough to answer
//! a request, or to write to the cluster. Whoever stops a process to see what others do
//! without it has to wait.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A thread stops when it next enters or leaves the kernel; one in the middle of a disk
/// access takes as long as that.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// Sends a signal. SIGSTOP is in force when this returns: every thread has stopped.
pub fn send(pid: Pid, signal: Signal) -> Result<()> {
    kill(pid, signal).with_context(|| format!("sending {signal} to process {pid}"))?;
    if signal == Signal::SIGSTOP { wait_until_stopped(pid) } else { Ok(()) }
}

/// Threads of a process with their states, sorted. A thread that ended meanwhile is none.
fn threads(pid: Pid) -> Result<Vec<(i32, char)>> {
    let listed =
        fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} is gone"))?;
    let mut found: Vec<_> = listed
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let thread = entry.file_name().to_str()?.parse().ok()?;
            Some((thread, state(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Field 3 of /proc/PID/stat. The name in field 2 may hold spaces and parentheses.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Seen stopped twice, with the same threads: one that was just being made when the
/// others were looked at is in the second list.
fn wait_until_stopped(pid: Pid) -> Result<()> {
    let at_rest = |seen: &[(i32, char)]| seen.iter().all(|(_, state)| "TtZX".contains(*state));
    let began = Instant::now();
    let mut before = Vec::new();
    loop {
        let seen = threads(pid)?;
        if at_rest(&seen) && seen == before {
            return Ok(());
        }
        if began.elapsed() > STOPS_WITHIN {
            bail!("process {pid} has not stopped within {STOPS_WITHIN:?}: {seen:?}");
        }
        before = seen;
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn states_are_read_behind_any_name() {
        assert_eq!(state("12 (a) S b) T 1 2"), Some('T'));
        assert_eq!(state("12 (sh) R 1 2"), Some('R'));
        assert_eq!(state("nonsense"), None);
    }

    /// Without the wait this fails in some rounds on a machine with few cores.
    #[test]
    fn a_stopped_process_is_stopped() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        for round in 0..200 {
            send(pid, Signal::SIGSTOP).unwrap();
            let seen = threads(pid).unwrap();
            send(pid, Signal::SIGCONT).unwrap();
            assert!(seen.iter().all(|(_, state)| *state == 'T'), "round {round}: {seen:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(send(pid, Signal::SIGSTOP).is_err(), "nobody is there");
    }
}
