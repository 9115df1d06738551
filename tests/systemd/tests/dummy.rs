//! The dummy interface on a kernel that has the kind: many kernels of test machines lack
//! it, and there a bridge takes its place. The daemon's own netlink tests run in a small
//! virtual machine (user-mode Linux) that boots the same root as the nodes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use purelb_systemd::cargo::built;
use purelb_systemd::figures::figure;
use purelb_systemd::prepared::Prepared;

const MODULES: &str = "/usr/lib/uml/modules";
/// Booting takes two seconds.
const AT_MOST: &str = "120";

/// In the words of the suite that runs them on this kernel, so that cargo finds them done.
#[rustfmt::skip]
const NETLINK_TESTS: [&str; 11] = [
    "test", "--workspace", "--exclude", "purelb-sim", "--exclude", "purelb-e2e", "--exclude", "purelb-systemd",
    "--test", "netlink", "--no-run",
];

#[test]
fn remote_addresses_live_on_a_true_dummy() -> Result<()> {
    let prepared = Prepared::find()?;
    let share = tempfile::tempdir()?;
    let tests = built(&NETLINK_TESTS, "netlink")?;
    fs::copy(tests, share.path().join("netlink"))?;
    fs::write(
        share.path().join("run"),
        "set -e\nip link add probe0 type dummy\nip link del probe0\necho 'the kind is there'\n\
         cd /tmp\n/mnt/netlink interfaces --test-threads 1 --color never\n",
    )?;
    let words = boot(&prepared, share.path())?;
    ensure!(words.contains("the kind is there"), "this kernel has no dummy interfaces:\n{words}");
    ensure!(words.contains("guest: ended with 0"), "{words}");
    let passed =
        words.lines().filter(|line| line.starts_with("test ") && line.trim_end().ends_with("ok")).count();
    figure(
        "tests of the dummy interface on a kernel that has it",
        ">= 4 passed",
        &passed.to_string(),
        passed >= 4,
    );
    Ok(())
}

/// Runs the guest to its end; everything it said.
fn boot(prepared: &Prepared, share: &Path) -> Result<String> {
    let home = tempfile::tempdir()?;
    let ran = Command::new("timeout")
        .args(["--kill-after=5", AT_MOST, "linux.uml", "mem=256M", "root=/dev/root", "rootfstype=hostfs"])
        .arg(format!("rootflags={}", prepared.root.display()))
        .args(["ro", "quiet", "init=/guest-init", "con=null", "con0=null,fd:1", "ssl=null"])
        .arg(format!("share={}", share.display()))
        .arg(format!("modules={MODULES}"))
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .output()
        .context("running linux.uml; tests/setup.sh systemd installs it")?;
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}
