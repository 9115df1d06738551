//! Programs of this workspace that the tests run beside the packages.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::prepared::source;

/// Where a program is; cargo knows whether it has to be built. `arguments` as for
/// `cargo`, `target` the name of the program.
pub fn built(arguments: &[&str], target: &str) -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let built = Command::new(cargo)
        .args(arguments)
        .args(["--quiet", "--locked", "--message-format", "json-render-diagnostics"])
        .current_dir(source())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running cargo to build {target}"))?;
    ensure!(built.status.success(), "{target} does not build");
    let words = String::from_utf8_lossy(&built.stdout);
    let artefacts = words.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = artefacts
        .filter(|a| a["target"]["name"] == target)
        .filter_map(|a| a["executable"].as_str().map(PathBuf::from))
        .next_back();
    program.with_context(|| format!("cargo built {target} and did not say where it is"))
}
