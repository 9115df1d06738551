//! A daemon: the real program inside a node, and the service manager it talks to.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use purelb_core::Mono;
use purelb_kit::lab::{Node, Process, now};
use purelb_kit::wait::eventually;

use crate::binary::{purelbd, shipped_purelbd};
use crate::cluster::Cluster;

const METRICS_PORT: u16 = 7472;

/// What the daemons of a cluster are told beyond where things are.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// More of the configuration file.
    pub toml: String,
    /// The program as it is packaged, where it matters how it was built.
    pub shipped: bool,
}

#[derive(Debug)]
pub struct Daemon {
    pub node: Node,
    process: Process,
    manager: Manager,
    program: PathBuf,
    config: PathBuf,
}

impl Daemon {
    pub(crate) fn start(cluster: &Cluster<'_>, name: &str, kubeconfig: &Path) -> Result<Self> {
        let node = cluster.node(name);
        let program = if cluster.settings.shipped { shipped_purelbd()? } else { purelbd()? };
        let dir = node.dir();
        let config = dir.join("purelbd.toml");
        let text = format!(
            "[node]\nname = \"{}\"\n[kubernetes]\nkubeconfig = {kubeconfig:?}\nnamespace = \"{}\"\n\
             [services]\nload_balancer_class = \"{}\"\ndefault_announcer = false\n\
             [control]\nsocket = {:?}\nsocket_group = \"\"\n[paths]\nstate = {:?}\nruntime = {:?}\n",
            cluster.node_name(name),
            cluster.namespace,
            cluster.class,
            dir.join("control.sock"),
            dir.join("state"),
            dir.join("run"),
        );
        fs::write(&config, text)?;
        let more = dir.join("purelbd.d");
        fs::create_dir_all(&more)?;
        fs::write(more.join("test.toml"), &cluster.settings.toml)?;
        let manager = Manager::listen(&dir.join("notify.sock"))?;
        let mut command = Command::new(&program);
        command
            .arg("--config")
            .arg(&config)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("NOTIFY_SOCKET", dir.join("notify.sock"));
        let process = node.spawn("purelbd", command)?;
        Ok(Self { node, process, manager, program, config })
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits for READY from the start that runs now.
    pub async fn ready(&self, within: Duration) -> Result<()> {
        eventually(&format!("{} is ready", self.node.name()), within, || {
            let seen = if self.manager.heard("READY=1") {
                Ok(())
            } else {
                let log = self.process.log();
                let last: Vec<&str> = log.lines().rev().take(12).collect();
                Err(format!(
                    "running: {}; {:?}; log, last first:\n{}",
                    self.process.is_running(),
                    self.manager.last(),
                    last.join("\n")
                ))
            };
            async { seen }
        })
        .await
    }

    /// What it told the service manager, with the time.
    pub fn told(&self) -> Vec<(Mono, String)> {
        self.manager.lock().clone()
    }

    /// SIGKILL, and started again at once, as the service manager does.
    pub fn crash_and_restart(&mut self) -> Result<()> {
        self.manager.forget();
        self.process.restart()
    }

    /// Starts it again after it has ended.
    pub fn restart(&mut self) -> Result<()> {
        self.crash_and_restart()
    }

    /// SIGTERM; answers when it had ended well, or why not.
    pub async fn terminate(&self, within: Duration) -> Result<Duration> {
        let began = now();
        self.process.signal(Signal::SIGTERM)?;
        eventually("the daemon ends", within, || {
            let seen = self.process.ended().ok_or("running");
            async move { seen }
        })
        .await
        .and_then(|status| {
            if status.success() { Ok(()) } else { bail!("it ended with {status}:\n{}", self.log()) }
        })?;
        Ok(now().since(began))
    }

    /// Waits for its end, however it comes.
    pub async fn ended(&self, within: Duration) -> Result<std::process::ExitStatus> {
        eventually("the daemon ends", within, || {
            let seen = self.process.ended().ok_or("running");
            async move { seen }
        })
        .await
    }

    /// A file of its state directory.
    pub fn state_file(&self, name: &str) -> PathBuf {
        self.node.dir().join("state").join(name)
    }

    /// Runs the program once more beside the daemon, with a flag.
    pub fn run_flag(&self, flag: &str) -> Result<std::process::Output> {
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(&self.config).arg(flag).env_clear();
        self.node.enter(move || command.output())?.context("running purelbd")
    }

    /// Its metrics, as Prometheus would read them.
    pub fn metrics(&self) -> Result<String> {
        let text = self.node.enter(|| -> io::Result<String> {
            let address = SocketAddr::from(([127, 0, 0, 1], METRICS_PORT));
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })?;
        Ok(text?)
    }

    /// One value of it.
    pub fn metric(&self, series: &str) -> Result<f64> {
        let text = self.metrics()?;
        let line = text.lines().find(|l| l.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        let value =
            line.and_then(|l| l.rsplit(' ').next()).with_context(|| format!("no {series} in\n{text}"))?;
        Ok(value.parse()?)
    }
}

/// The service manager's end of the notification socket.
#[derive(Debug)]
struct Manager {
    heard: Arc<Mutex<Vec<(Mono, String)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Manager {
    fn listen(path: &Path) -> Result<Self> {
        let _ = fs::remove_file(path);
        let socket = UnixDatagram::bind(path).with_context(|| format!("binding {}", path.display()))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (book, ended) = (heard.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("manager".into()).spawn(move || {
            let mut buffer = [0; 4096];
            while !ended.load(Ordering::Relaxed) {
                if let Ok(length) = socket.recv(&mut buffer) {
                    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    book.lock().unwrap_or_else(PoisonError::into_inner).push((now(), text));
                }
            }
        })?;
        Ok(Self { heard, stop, thread: Some(thread) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Mono, String)>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, word: &str) -> bool {
        self.lock().iter().any(|(_, text)| text.lines().any(|line| line == word))
    }

    fn last(&self) -> Option<String> {
        self.lock().last().map(|(_, text)| text.clone())
    }

    fn forget(&self) {
        self.lock().clear();
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
