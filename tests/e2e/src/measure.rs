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

/// Any other figure, for the summary of a run.
pub fn print_figure(figure: &str) {
    let _ = writeln!(std::io::stderr(), "figure: {figure}");
}

/// What a process has in memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub resident_kib: u64,
    /// Its own: heap, stacks, and what the linker had to relocate.
    pub anonymous_kib: u64,
    /// Pages of the program and its libraries: read from files, and given back when
    /// memory is short.
    pub file_kib: u64,
    /// The most it ever was.
    pub peak_kib: u64,
}

impl Memory {
    pub fn of(pid: Pid) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let of = |key: &str| number(&status, key).with_context(|| format!("no {key}"));
        Ok(Self {
            resident_kib: of("VmRSS:")?,
            anonymous_kib: of("RssAnon:")?,
            file_kib: of("RssFile:")?,
            peak_kib: of("VmHWM:")?,
        })
    }

    pub fn resident_mib(&self) -> f64 {
        self.resident_kib as f64 / 1024.0
    }

    /// Resident KiB by what is mapped and how, largest first.
    pub fn by_mapping(pid: Pid) -> Result<Vec<(String, u64)>> {
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
        let mut sums: std::collections::BTreeMap<String, u64> = Default::default();
        let mut mapping = String::new();
        for line in smaps.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            match fields.as_slice() {
                ["Rss:", kib, _] => *sums.entry(mapping.clone()).or_default() += kib.parse::<u64>()?,
                [range, rights, _, _, _, file @ ..] if range.contains('-') => {
                    let file = file.first().and_then(|f| f.rsplit('/').next()).unwrap_or("anonymous");
                    mapping = format!("{rights} {file}");
                }
                _ => {}
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, kib)| std::cmp::Reverse(*kib));
        Ok(sums)
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |kib: u64| kib as f64 / 1024.0;
        let (anonymous, file, peak) = (mib(self.anonymous_kib), mib(self.file_kib), mib(self.peak_kib));
        let all = self.resident_mib();
        write!(f, "{all:.1} MiB ({anonymous:.1} anonymous, {file:.1} of files), at most {peak:.1}")
    }
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
