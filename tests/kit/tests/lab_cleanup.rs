//! Nothing is left of a lab, however its process ends; and who cannot build one is told
//! what to do.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use purelb_kit::lab::Lab;
use purelb_kit::wait::eventually;

const HOLD: &str = env!("CARGO_BIN_EXE_lab-hold");
const WITHIN: Duration = Duration::from_secs(10);

/// A lab in a process of its own.
struct Held {
    process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Held {
    fn start() -> Result<Self> {
        let mut process = Command::new(HOLD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting lab-hold")?;
        let mut said = BufReader::new(process.stdout.take().context("stdout was asked for")?);
        let mut line = String::new();
        while !line.starts_with("ready") {
            line.clear();
            ensure!(said.read_line(&mut line)? > 0, "lab-hold ended before it was ready");
        }
        let held = Self { process, said };
        ensure!(held.left() != Left::default(), "a lab that is up has namespaces");
        Ok(held)
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid())?), signal)?)
    }

    /// Waits for its end: exit code, and what it said to stderr.
    fn end(&mut self) -> Result<(Option<i32>, String)> {
        let status = self.process.wait()?;
        let mut text = String::new();
        self.process.stderr.take().context("stderr was asked for")?.read_to_string(&mut text)?;
        self.said.read_to_string(&mut text)?;
        Ok((status.code(), text))
    }

    fn left(&self) -> Left {
        left_of(self.pid())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // One that was waited for already gets no signal. SIGTERM cleans up, see below.
        if let Ok(None) = self.process.try_wait() {
            let _ = self.signal(Signal::SIGTERM);
            let _ = self.process.wait();
        }
    }
}

/// What a run left on the host.
#[derive(Debug, Default, PartialEq)]
struct Left {
    namespaces: Vec<String>,
    files: Vec<String>,
}

fn left_of(pid: u32) -> Left {
    let named = |dir: &str| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.starts_with(&format!("plb.{pid}."))).collect()
    };
    Left { namespaces: named("/run/netns"), files: named(&std::env::temp_dir().to_string_lossy()) }
}

/// Processes inside the namespaces of a run.
fn inside(held: &Held) -> Vec<u32> {
    let mut pids = Vec::new();
    for name in held.left().namespaces {
        let output = Command::new("ip").args(["netns", "pids", &name]).output().unwrap();
        pids.extend(
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(|p| p.parse::<u32>().unwrap()),
        );
    }
    pids
}

fn assert_gone(pids: &[u32]) {
    assert!(!pids.is_empty(), "lab-hold runs a process inside");
    for pid in pids {
        // Dead, though perhaps not yet waited for by whoever inherited it.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(!stat.contains("(sleep)") || stat.contains("(sleep) Z"), "{pid} is still there: {stat}");
    }
}

#[test]
fn an_orderly_end_leaves_nothing() -> Result<()> {
    let mut held = Held::start()?;
    let pids = inside(&held);
    held.process.stdin.take().context("stdin was asked for")?.write_all(b"\n")?;
    assert_eq!(held.end()?.0, Some(0));
    assert_eq!(held.left(), Left::default());
    assert_gone(&pids);
    Ok(())
}

#[test]
fn a_panic_leaves_nothing() -> Result<()> {
    let mut held = Held::start()?;
    let pids = inside(&held);
    held.process.stdin.take().context("stdin was asked for")?.write_all(b"panic\n")?;
    let (code, said) = held.end()?;
    assert_eq!(code, Some(101), "{said}");
    assert!(said.contains("asked to panic") && said.contains("last lines of sleeper"), "{said}");
    assert_eq!(held.left(), Left::default());
    assert_gone(&pids);
    Ok(())
}

#[test]
fn signals_leave_nothing() -> Result<()> {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut held = Held::start()?;
        let pids = inside(&held);
        held.signal(signal)?;
        assert_eq!(held.end()?.0, Some(code));
        assert_eq!(held.left(), Left::default());
        assert_gone(&pids);
    }
    Ok(())
}

#[tokio::test]
async fn what_a_killed_run_leaves_the_next_one_removes() -> Result<()> {
    let mut killed = Held::start()?;
    let living = Held::start()?;
    let pids = inside(&killed);
    killed.signal(Signal::SIGKILL)?;
    killed.process.wait()?;
    drop(Lab::builder().build()?);
    // Another test's sweep may be at it at the same moment.
    eventually("the leftovers to be gone", WITHIN, || {
        let left = killed.left();
        async { if left == Left::default() { Ok(()) } else { Err(left) } }
    })
    .await?;
    assert_gone(&pids);
    assert_ne!(living.left(), Left::default(), "a living run is left alone");
    Ok(())
}

#[test]
fn without_privileges_it_says_what_to_do() -> Result<()> {
    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", HOLD])
        .output()
        .context("running setpriv, of util-linux")?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("lacks CAP_NET_ADMIN") && said.contains("run it as root"), "{said}");
    Ok(())
}

/// In a mount namespace of its own the program is hidden.
#[test]
fn without_a_tool_it_says_what_to_install() -> Result<()> {
    for (tool, package) in [("ip", "iproute2"), ("nft", "nftables")] {
        let script = format!(
            "PATH=$PATH:/usr/sbin:/sbin; mount --bind /dev/null \"$(readlink -f \"$(command -v {tool})\")\" && exec {HOLD}"
        );
        let output = Command::new("unshare").args(["--mount", "sh", "-ec", &script]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(said.contains(&format!("apt-get install {package}")), "{tool}: {said}");
    }
    Ok(())
}

#[test]
fn a_lab_that_cannot_be_built_leaves_nothing() -> Result<()> {
    let refused = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["wan"]).build();
    assert!(format!("{:#}", refused.unwrap_err()).contains("no segment wan"));
    Ok(())
}
