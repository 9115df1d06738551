//! `man`: man pages, made from the command definitions.

use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::error::{CommandError, CommandResult};

/// One page per command: purelbctl.1, purelbctl-drain.1, …
pub fn write_pages(directory: &Path) -> CommandResult<()> {
    let wrong = |e| {
        let what = format!("cannot write man pages to {}", directory.display());
        CommandError::new(what).because(e).next("give a directory you may write to")
    };
    std::fs::create_dir_all(directory).map_err(wrong)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(wrong)
}
