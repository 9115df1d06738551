//! The saved inputs of a target: examples to begin with, and whatever once failed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Clone, Debug)]
pub struct CorpusEntry {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// `fuzz/` in the source tree.
pub fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// In order of their names, so that a seed means the same on every machine.
pub fn read(target: &str) -> Result<Vec<CorpusEntry>> {
    let directory = fuzz_directory().join("corpus").join(target);
    let entries = std::fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    let entry = |path: PathBuf| {
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(CorpusEntry { path, bytes })
    };
    paths.into_iter().map(entry).collect()
}
