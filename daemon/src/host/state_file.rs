//! Files that survive restarts and reboots.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Whole or not at all, and on the disk when it returns. Blocks.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    sync_directory(path)
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
