//! Writes the reference pages; with `--check` only says which are not current.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use purelb_docs::{reference, root};

fn main() -> Result<ExitCode> {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => bail!("unknown argument {other:?}; known: --check"),
    };
    let stale = reference::stale()?;
    for page in &stale {
        if check {
            eprintln!("{} is not current: run `make reference`", page.path);
            continue;
        }
        let path = root().join(page.path);
        std::fs::create_dir_all(path.parent().context("a directory")?)?;
        std::fs::write(&path, &page.text).with_context(|| page.path.to_owned())?;
        eprintln!("wrote {}", page.path);
    }
    Ok(if check && !stale.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
