//! Programs of this workspace that the tests run beside the packages, or pack.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use crate::prepared::source;

/// Names a directory with the release programs, as for the package builds.
pub const BINARIES: &str = "PURELB_BINARIES";

/// All of them, in the words used wherever they are built: cargo chooses the features of
/// shared dependencies by what is built in one go, and another choice builds half of them
/// anew.
const SHIPPED: [&str; 8] =
    ["build", "--release", "-p", "purelbd", "-p", "purelbctl", "-p", "purelb-allocator"];

/// The directory with the release programs; built if they have to be.
pub fn programs() -> Result<PathBuf> {
    static PROGRAMS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = PROGRAMS.get_or_init(|| {
        if let Some(given) = std::env::var_os(BINARIES) {
            return Ok(PathBuf::from(given));
        }
        let daemon = built(&SHIPPED, "purelbd").map_err(|error| format!("{error:#}"))?;
        Ok(daemon.parent().expect("a program is in a directory").to_owned())
    });
    found.clone().map_err(anyhow::Error::msg)
}

/// Where a program is; cargo knows whether it has to be built. `arguments` as for
/// `cargo`, `target` the name of the program.
pub fn built(arguments: &[&str], target: &str) -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command
        .args(arguments)
        .args(["--quiet", "--locked", "--message-format", "json-render-diagnostics"])
        .current_dir(source())
        .stderr(Stdio::inherit());
    // What cargo tells a test about itself would look like a change of settings to build
    // scripts, and half the dependencies would be built anew each time.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && !["CARGO_HOME", "CARGO_TARGET_DIR"].contains(&name.as_str()) {
            command.env_remove(&name);
        }
    }
    let built = command.output().with_context(|| format!("running cargo to build {target}"))?;
    ensure!(built.status.success(), "{target} does not build");
    let words = String::from_utf8_lossy(&built.stdout);
    let artefacts = words.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = artefacts
        .filter(|a| a["target"]["name"] == target)
        .filter_map(|a| a["executable"].as_str().map(PathBuf::from))
        .next_back();
    program.with_context(|| format!("cargo built {target} and did not say where it is"))
}
