//! Figures: printed beside the bar they have to meet.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::Pid;

/// One line of the failure table, on stderr also when the test passes: the test
/// harness keeps what goes through its macros to itself.
pub fn print_row(case: &str, bar: &str, measured: &str) {
    let _ = writeln!(std::io::stderr(), "failure-table: {case} | {bar} | {measured}");
}

/// Prints the line, then holds the figure to the bar.
pub fn row(case: &str, bar: &str, measured: &str, holds: bool) {
    print_row(case, bar, measured);
    assert!(holds, "{case}: the bar is {bar}, measured was {measured}");
}

pub fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

/// What a process has used up to now.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub rss_kib: u64,
    pub cpu: Duration,
    pub wakeups: u64,
}

impl Usage {
    pub fn of(pid: Pid) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rss_kib = number(&status, "VmRSS:").context("no VmRSS")?;
        let mut wakeups = 0;
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let status = std::fs::read_to_string(task?.path().join("status"))?;
            wakeups += number(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<u64>().ok()).sum();
        // Linux shows ticks of 10 ms here, whatever the kernel's own rate.
        Ok(Self { rss_kib, cpu: Duration::from_millis(ticks * 10), wakeups })
    }
}

fn number(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(key))?;
    line[key.len()..].split_whitespace().next()?.parse().ok()
}
