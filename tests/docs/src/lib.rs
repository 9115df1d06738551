//! Keeps the documentation true to the code.
//!
//! Every check answers with a list of sentences, each with file and line; an empty list
//! is a good page. The checks of the pages we ship run as unit tests, so that a page that
//! names a flag, a field or a file that is gone fails the build and not its reader.

pub mod commands;
pub mod decisions;
pub mod examples;
pub mod facts;
pub mod links;
pub mod markdown;
pub mod reference;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use markdown::Page;

/// The source tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// A file of the source tree.
pub fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// Every Markdown page of the source tree, in order of their paths.
pub fn pages() -> Result<Vec<Page>> {
    let root = root();
    let mut paths = Vec::new();
    collect(&root, &root, &mut paths)?;
    paths.sort();
    paths.iter().map(|path| Ok(Page::new(path, &read(path)?))).collect()
}

fn collect(root: &Path, directory: &Path, found: &mut Vec<String>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What is built or fetched is not ours to keep true.
        if name.starts_with('.') || ["target", "dist", "node_modules"].contains(&name.as_str()) {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(root, &path, found)?;
        } else if name.ends_with(".md") {
            let inside = path.strip_prefix(root)?;
            found.push(inside.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
