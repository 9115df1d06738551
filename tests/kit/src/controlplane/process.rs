//! Children that never outlive the test, however it ends.
//!
//! ```text
//!  test process ── keeper thread ──spawns──> setpriv --pdeathsig KILL etcd | apiserver | …
//!        │                                      (SIGKILLed by the kernel when the keeper dies)
//!        └── pipe ──> sh "guard": waits for EOF, then removes the directory
//! ```
//! A normal end and a panic run `Drop`. Ctrl-C and SIGKILL do not: then the kernel
//! ends the children, and the guard, seeing its pipe close, removes the files.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::signals;

type Job = (Command, SyncSender<io::Result<Child>>);

/// Spawns on a thread that lives as long as the process. The death signal follows
/// the THREAD that forked: a child started on a test's own thread would die when
/// that test ends, even if others still use it.
fn spawn_kept(command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<SyncSender<Job>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (jobs, inbox) = sync_channel::<Job>(1);
        thread::Builder::new()
            .name("keeper".into())
            .spawn(move || {
                while let Ok((mut command, answer)) = inbox.recv() {
                    // A caller that is gone drops the Child; nothing else to do here.
                    drop(answer.send(command.spawn()));
                }
            })
            .expect("a thread can be started");
        jobs
    });
    let (answer, result) = sync_channel(1);
    keeper.send((command, answer)).map_err(io::Error::other)?;
    result.recv().map_err(io::Error::other)?
}

/// One running program with its log file.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `program`; both outputs are appended to `log`.
    pub fn start(name: &'static str, program: &Path, args: &[String], log: &Path) -> Result<Self> {
        let out = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            // Ctrl-C is for the test; its children then follow by death signal.
            .process_group(0);
        let child = spawn_kept(command)
            .with_context(|| format!("starting {name} through setpriv (package util-linux)"))?;
        Ok(Self { name, log: log.to_owned(), child })
    }

    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGSTOP is in force when this returns, see [`signals::send`].
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("pid out of range")?;
        signals::send(Pid::from_raw(pid), signal).with_context(|| self.name)
    }

    /// The end of its log, for the message of a failure.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(25);
        format!("--- {} ({}), last lines:\n{}", self.name, self.log.display(), lines[from..].join("\n"))
    }

    /// Ends it now and waits. SIGKILL on purpose: kube-apiserver hangs on SIGTERM
    /// when etcd is gone.
    pub fn end(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Removes a directory after this process is gone, however it went.
#[derive(Debug)]
pub struct Guard(Child);

/// Tries for some seconds: a program being killed may still be writing.
const GUARD_SCRIPT: &str = r#"
trap "" INT TERM HUP
cat >/dev/null
i=0
while [ $i -lt 50 ]; do
    rm -rf -- "$1" 2>/dev/null
    [ -e "$1" ] || exit 0
    i=$((i + 1)); sleep 0.1
done"#;

impl Guard {
    pub fn over(dir: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARD_SCRIPT, "guard"])
            .arg(dir)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        Ok(Self(command.spawn().context("starting the guard shell")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}
