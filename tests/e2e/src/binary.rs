//! The programs under test, built if they have to be.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// Where the daemon is, as it is shipped. The first call builds it; cargo knows whether
/// there is anything to do, and where it puts the result.
pub fn purelbd() -> Result<PathBuf> {
    program("purelbd")
}

/// The daemon as the packages have it, for what depends on how it was built: its memory.
/// Linking it takes minutes, the first time.
pub fn shipped_purelbd() -> Result<PathBuf> {
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    match std::env::var_os(SHIPPED) {
        Some(dir) => Ok(PathBuf::from(dir).join("purelbd")),
        None => among(&BUILT, "dist", "purelbd"),
    }
}

/// Where the operator's program is; built like the daemon.
pub fn purelbctl() -> Result<PathBuf> {
    program("purelbctl")
}

/// Where the allocator is; built like the daemon.
pub fn allocator() -> Result<PathBuf> {
    program("purelb-allocator")
}

/// Names a directory of programs to test instead, such as installed ones.
const PROGRAMS: &str = "PURELB_E2E_PROGRAMS";
/// The same for programs as they are packaged.
const SHIPPED: &str = "PURELB_E2E_SHIPPED";

fn program(name: &'static str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(PROGRAMS) {
        return Ok(PathBuf::from(dir).join(name));
    }
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    among(&BUILT, "release", name)
}

fn among(built: &Mutex<Vec<PathBuf>>, profile: &str, name: &str) -> Result<PathBuf> {
    let mut built = built.lock().unwrap_or_else(PoisonError::into_inner);
    if built.is_empty() {
        *built = build(profile)?;
    }
    let path = built.iter().find(|p| p.file_name().is_some_and(|file| file == name));
    path.cloned().with_context(|| format!("cargo built {name} and did not say where it is"))
}

/// All of them together: cargo chooses the features of shared dependencies by what is
/// built in one go, and another choice builds half of them anew.
fn build(profile: &str) -> Result<Vec<PathBuf>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--quiet",
            "--locked",
            "--profile",
            profile,
            "-p",
            "purelbd",
            "-p",
            "purelbctl",
            "-p",
            "purelb-allocator",
        ])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit());
    // What cargo tells a test about itself would look like a change of settings to
    // build scripts, and half the dependencies would be built anew each time.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && !["CARGO_HOME", "CARGO_TARGET_DIR"].contains(&name.as_str()) {
            command.env_remove(&name);
        }
    }
    let output = command.output().context("running cargo to build the programs")?;
    if !output.status.success() {
        bail!("the programs do not build: {}", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    Ok(artifacts.filter_map(|a| a.get("executable")?.as_str().map(PathBuf::from)).collect())
}
