//! The programs under test, built if they have to be.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// As the tests themselves were built.
    Same,
    /// As it is shipped: for figures of memory and time.
    Release,
}

/// Where the daemon is. The first call builds it; cargo knows whether there is anything
/// to do, and where it puts the result.
pub fn purelbd(profile: Profile) -> Result<PathBuf> {
    program("purelbd", profile)
}

/// Where the operator's program is; built like the daemon.
pub fn purelbctl(profile: Profile) -> Result<PathBuf> {
    program("purelbctl", profile)
}

/// Where the allocator is; built like the daemon.
pub fn allocator(profile: Profile) -> Result<PathBuf> {
    program("purelb-allocator", profile)
}

/// Names a directory of programs to test instead, such as installed ones.
const PROGRAMS: &str = "PURELB_E2E_PROGRAMS";

fn program(name: &'static str, profile: Profile) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(PROGRAMS) {
        return Ok(PathBuf::from(dir).join(name));
    }
    type Built = HashMap<(&'static str, bool), PathBuf>;
    static BUILT: Mutex<Option<Built>> = Mutex::new(None);
    let release = profile == Profile::Release || !cfg!(debug_assertions);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let built = built.get_or_insert_default();
    if let Some(path) = built.get(&(name, release)) {
        return Ok(path.clone());
    }
    let path = build(name, release)?;
    built.insert((name, release), path.clone());
    Ok(path)
}

fn build(name: &str, release: bool) -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", name, "--bin", name])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit());
    if release {
        command.arg("--release");
    }
    // What cargo tells a test about itself would look like a change of settings to
    // build scripts, and half the dependencies would be built anew each time.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && !["CARGO_HOME", "CARGO_TARGET_DIR"].contains(&name.as_str()) {
            command.env_remove(&name);
        }
    }
    let output = command.output().with_context(|| format!("running cargo to build {name}"))?;
    if !output.status.success() {
        bail!("{name} does not build: {}", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let path = artifacts.filter_map(|a| a.get("executable")?.as_str().map(PathBuf::from)).next_back();
    path.with_context(|| format!("cargo built {name} and did not say where it is"))
}
