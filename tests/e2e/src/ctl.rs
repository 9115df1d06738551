//! The operator: the real `purelbctl` against a daemon's socket.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use purelb_kit::signals;
use purelb_kit::wait::eventually;

use crate::binary::purelbctl;
use crate::daemon::Daemon;

/// What the program said, and how it ended.
#[derive(Clone, Debug)]
pub struct Answer {
    pub out: String,
    pub err: String,
    pub code: i32,
}

impl Answer {
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.out).with_context(|| format!("no JSON: {self:?}"))
    }
}

/// One that is still at work; killed if nobody waits for it.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Daemon {
    fn ctl_command(&self, arguments: &str) -> Result<Command> {
        let mut command = Command::new(purelbctl()?);
        command.arg("--socket").arg(self.node.dir().join("control.sock"));
        command.args(arguments.split_whitespace());
        command.env_remove("KUBECONFIG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs the program to its end.
    pub async fn ctl(&self, arguments: &str) -> Result<Answer> {
        self.ctl_start(arguments)?.finish(Duration::from_secs(60)).await
    }

    /// Starts the program and leaves it running.
    pub fn ctl_start(&self, arguments: &str) -> Result<Running> {
        let child = self.ctl_command(arguments)?.spawn().context("starting purelbctl")?;
        Ok(Running { child })
    }

    /// The same with what it prints in a file, to be read while it goes on.
    pub fn ctl_into(&self, arguments: &str, file: &Path) -> Result<Running> {
        let mut command = self.ctl_command(arguments)?;
        let child = command.stdout(File::create(file)?).spawn().context("starting purelbctl")?;
        Ok(Running { child })
    }
}

impl Running {
    /// Starts it without naming a daemon: the arguments say which.
    pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let mut command = Command::new(purelbctl()?);
        command.args(arguments).env_remove("KUBECONFIG").envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self { child: command.spawn().context("starting purelbctl")? })
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        signals::send(Pid::from_raw(i32::try_from(self.child.id())?), signal)
    }

    /// Its answers are a few lines, which pipes hold.
    pub async fn finish(mut self, within: Duration) -> Result<Answer> {
        let status = eventually("purelbctl ends", within, || {
            let ended = self.child.try_wait().ok().flatten().ok_or("running");
            async move { ended }
        })
        .await?;
        let mut answer = Answer { out: String::new(), err: String::new(), code: status.code().unwrap_or(-1) };
        if let Some(mut out) = self.child.stdout.take() {
            out.read_to_string(&mut answer.out)?;
        }
        if let Some(mut err) = self.child.stderr.take() {
            err.read_to_string(&mut answer.err)?;
        }
        Ok(answer)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
