//! What all machines share: the root file system they boot, and kubectl.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

#[derive(Clone, Debug)]
pub struct Prepared {
    pub root: PathBuf,
    pub kubectl: PathBuf,
}

/// The source tree.
pub fn source() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is two directories below the source's root").to_owned()
}

impl Prepared {
    /// Made by the first caller, unless an earlier run did.
    pub fn find() -> Result<Self> {
        static DIR: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let dir = DIR.get_or_init(|| prepare().map_err(|error| format!("{error:#}")));
        let dir = dir.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
        Ok(Self { root: dir.join("root"), kubectl: dir.join("kubectl") })
    }
}

fn prepare() -> Result<PathBuf> {
    let tests = source().join("tests");
    let tools = Command::new(tests.join("setup.sh")).args(["test", "systemd"]).status()?;
    ensure!(tools.success(), "tests/setup.sh could not install what these tests need; its words are above");
    let script = tests.join("systemd/prepare.sh");
    let made = Command::new(&script).stderr(Stdio::inherit()).output().context("running prepare.sh")?;
    ensure!(made.status.success(), "prepare.sh failed; its words are above");
    Ok(PathBuf::from(String::from_utf8(made.stdout)?.trim()))
}
