//! The programs and privileges the lab needs, and how to say what is missing.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Bits of the effective capability set (capabilities(7)).
const NEEDED_CAPABILITIES: [(u32, &str); 3] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (21, "CAP_SYS_ADMIN")];

/// Fails with a sentence that says what to do, if a lab cannot be built here.
pub fn preflight() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .context("/proc/self/status has no line CapEff")?;
    let missing: Vec<_> = NEEDED_CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    ensure!(
        missing.is_empty(),
        "the lab makes network namespaces and needs root, but this process lacks {}: run it as root, \
         for example with `sudo -E`",
        missing.join(", ")
    );
    for (program, package) in [("ip", "iproute2"), ("nft", "nftables")] {
        if find(program).is_none() {
            bail!("the lab needs the program `{program}`: install it with `apt-get install {package}`");
        }
    }
    Ok(())
}

/// Administrators' directories are searched also when PATH leaves them out.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Runs a program to its end with `input` on stdin; fails with what it said.
pub(super) fn run(program: &str, args: &[&str], input: &str) -> Result<String> {
    let path = find(program).unwrap_or_else(|| program.into());
    let what = || format!("{program} {}", args.join(" "));
    let mut child = Command::new(path)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting `{}`", what()))?;
    let mut stdin = child.stdin.take().expect("stdin was asked for above");
    // A program that fails early closes its end: its own words say more than EPIPE.
    let written = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().with_context(|| format!("waiting for `{}`", what()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{}` failed ({}): {}\ninput:\n{input}",
        what(),
        output.status,
        said.trim()
    );
    written.with_context(|| format!("writing to `{}`", what()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `ip` commands, one per line, in the namespace `netns` or here.
pub(super) fn ip_batch(netns: Option<&str>, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let input = lines.join("\n") + "\n";
    match netns {
        Some(name) => run("ip", &["-n", name, "-batch", "-"], &input)?,
        None => run("ip", &["-batch", "-"], &input)?,
    };
    Ok(())
}
