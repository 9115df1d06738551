//! A node that boots systemd: a container in a host of the lab.
//!
//! ```text
//!   lab's host (network namespace)  ->  systemd-nspawn  ->  PID 1: systemd
//!      cgroup of its own                  root: overlay over the prepared one, kept
//!                                         across reboots, gone with the lab
//! ```
//! The overlay is mounted in nspawn's own mount namespace: nothing to unmount, however
//! the test ends. The lab kills what runs inside its namespaces, so also the container.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use purelb_kit::lab::{Node, Process};

use crate::prepared::Prepared;

/// Booting takes two seconds; a shared machine may need much longer.
const BOOT_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Where the packages are inside.
pub const PACKAGES: &str = "/packages";

/// Joins a cgroup in every hierarchy there is, mounts the root, runs nspawn; again for
/// as long as it ends with the status that means "reboot".
const START: &str = r#"
for group in "$@"; do mkdir -p "$group"; echo $$ >"$group/cgroup.procs"; done
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$DIR/upper,workdir=$DIR/work" "$DIR/root"
status=133
while [ "$status" = 133 ]; do
    status=0
    systemd-nspawn --quiet --directory="$DIR/root" --register=no --keep-unit --machine="$MACHINE" \
        --network-namespace-path="$NETNS" --capability=CAP_NET_ADMIN,CAP_NET_RAW --console=pipe \
        --bind-ro="$PACKAGES:/packages" --boot || status=$?
done
exit "$status"
"#;

#[derive(Debug)]
pub struct Machine {
    node: Node,
    shell: Process,
    groups: Vec<PathBuf>,
}

impl Machine {
    /// Boots a node under its lab name, with a directory of packages, and waits until it
    /// is up.
    pub fn boot(node: Node, prepared: &Prepared, packages: &Path) -> Result<Self> {
        let machine = Self::power_on(node, prepared, packages)?;
        machine.wait_up()?;
        Ok(machine)
    }

    /// The same without waiting.
    pub fn power_on(node: Node, prepared: &Prepared, packages: &Path) -> Result<Self> {
        let dir = node.dir().join("machine");
        for part in ["upper/etc", "work", "root"] {
            fs::create_dir_all(dir.join(part))?;
        }
        fs::write(dir.join("upper/etc/hostname"), format!("{}\n", node.name()))?;
        let netns = node.netns().name().to_owned();
        sweep_groups();
        let groups = groups(&netns);
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-euc", START, "start"])
            .args(&groups)
            .env("DIR", &dir)
            .env("LOWER", &prepared.root)
            .env("MACHINE", netns.replace('.', "-"))
            .env("NETNS", format!("/run/netns/{netns}"))
            .env("PACKAGES", packages)
            .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1");
        let shell = node.spawn("nspawn", command)?;
        Ok(Self { node, shell, groups })
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    pub fn name(&self) -> &str {
        self.node.name()
    }

    /// Its PID 1, as this host numbers it; another one after each reboot.
    pub fn init(&self) -> Option<u32> {
        // Once it has ended, its number may be somebody else's.
        self.shell.is_running().then_some(())?;
        let nspawn = child(self.shell.pid().as_raw().try_into().ok()?)?;
        child(nspawn).filter(|init| self.is_inside(*init))
    }

    /// Whether a process lives in this machine's network. Numbers of processes are used
    /// again quickly, and what is found by number may be signalled.
    fn is_inside(&self, pid: u32) -> bool {
        let own = fs::metadata(format!("/run/netns/{}", self.node.netns().name()));
        let its = fs::metadata(format!("/proc/{pid}/ns/net"));
        matches!((own, its), (Ok(own), Ok(its)) if (own.dev(), own.ino()) == (its.dev(), its.ino()))
    }

    pub fn wait_up(&self) -> Result<()> {
        self.until("it has booted", BOOT_WITHIN, || {
            let state = self.sh("systemctl is-active multi-user.target").map_err(|e| format!("{e:#}"))?;
            (state.trim() == "active").then_some(()).ok_or(state)
        })
    }

    /// Reboots it from inside, as an operator would, and waits until it is up again.
    pub fn reboot(&self) -> Result<()> {
        let before = self.init();
        self.sh("systemctl reboot")?;
        self.until("it goes down", BOOT_WITHIN, || {
            let now = self.init();
            (now.is_some() && now != before).then_some(()).ok_or_else(|| format!("PID 1: {now:?}"))
        })?;
        self.wait_up()
    }

    /// Runs a shell script inside, as root; its output, or an error with all it said.
    pub fn sh(&self, script: &str) -> Result<String> {
        self.sh_with(script, &[])
    }

    /// The same with environment variables.
    pub fn sh_with(&self, script: &str, variables: &[(&str, &str)]) -> Result<String> {
        let init = self.init().with_context(|| format!("{} is down", self.name()))?;
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &init.to_string()])
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"])
            .args(["sh", "-euc", &format!("cd /root\n{script}")])
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .envs([("HOME", "/root"), ("LC_ALL", "C"), ("DEBIAN_FRONTEND", "noninteractive")])
            .envs(variables.iter().copied())
            // A "kill 0" in there must not reach us.
            .process_group(0);
        let done = command.output().context("running nsenter")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !done.status.success() {
            bail!(
                "on {}: {script}\n{}\n{}{}",
                self.name(),
                done.status,
                text(&done.stdout),
                text(&done.stderr)
            );
        }
        Ok(text(&done.stdout))
    }

    /// A property of the daemon's unit.
    pub fn property(&self, name: &str) -> Result<String> {
        Ok(self.sh(&format!("systemctl show --value -p {name} purelbd.service"))?.trim().to_owned())
    }

    /// The daemon's process inside; 0 if there is none.
    pub fn main_pid(&self) -> Result<u32> {
        Ok(self.property("MainPID")?.parse()?)
    }

    /// Waits until the daemon is ready and has another process than `old`.
    pub fn wait_ready(&self, old: u32, within: Duration) -> Result<u32> {
        self.until("purelbd is ready", within, || {
            // In one look: between two of them the process may go.
            let seen = self.sh("systemctl show -p MainPID -p ActiveState purelbd.service");
            let seen = seen.map_err(|error| format!("{error:#}"))?;
            let value = |key: &str| seen.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            match (value("ActiveState="), value("MainPID=").parse()) {
                ("active", Ok(pid)) if pid != 0 && pid != old => Ok(pid),
                _ => Err(seen),
            }
        })
    }

    /// Puts a file in, or replaces it.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let init = self.init().with_context(|| format!("{} is down", self.name()))?;
        let path = format!("/proc/{init}/root{path}");
        if let Some(parent) = Path::new(&path).parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text).with_context(|| format!("writing {path}"))
    }

    /// What the daemon and its unit said.
    pub fn journal(&self) -> String {
        self.sh("journalctl --no-pager -o short-monotonic -u purelbd.service")
            .unwrap_or_else(|error| format!("{error:#}"))
    }

    /// Waits for a condition; when it does not come, the journal is shown.
    pub fn until<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut() -> Result<T, String>,
    ) -> Result<T> {
        let started = Instant::now();
        loop {
            match look() {
                Ok(value) => return Ok(value),
                Err(state) if started.elapsed() >= within => bail!(
                    "{}: {what}: not within {within:?}; last seen: {state}\njournal:\n{}\nconsole:\n{}",
                    self.name(),
                    self.journal(),
                    self.shell.log()
                ),
                Err(_) => std::thread::sleep(LOOK_AGAIN),
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- journal of {}\n{}\n---", self.name(), self.journal());
        }
        // Its PID 1 takes everything inside with it; the rest is the lab's.
        if let Some(init) = self.init().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(init), nix::sys::signal::SIGKILL);
        }
        let _ = self.shell.wait(Duration::from_secs(5));
        let _ = self.shell.kill();
        self.groups.iter().for_each(|group| remove_group(group));
    }
}

/// The first child of a process.
fn child(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Hierarchies systemd needs a place of its own in.
const HIERARCHIES: [&str; 4] =
    ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"];

fn hierarchies() -> impl Iterator<Item = &'static Path> {
    // The last one only where everything is one hierarchy.
    HIERARCHIES.iter().map(Path::new).filter(|dir| dir.join("cgroup.procs").exists())
}

fn groups(name: &str) -> Vec<PathBuf> {
    hierarchies().map(|dir| dir.join(name)).collect()
}

/// A cgroup can go once the ones below it are gone.
fn remove_group(group: &Path) {
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_group(&entry.path());
    }
    let _ = fs::remove_dir(group);
}

/// What a killed run left: groups named after a namespace of the lab that is gone.
fn sweep_groups() {
    for dir in hierarchies() {
        let Ok(entries) = fs::read_dir(dir) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("plb.") && !Path::new("/run/netns").join(&name).exists() {
                remove_group(&entry.path());
            }
        }
    }
}
