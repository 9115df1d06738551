//! Completion scripts and man pages, made from the command definitions.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::error::{Failure, Outcome};

pub fn completion(shell: clap_complete::Shell, out: &mut dyn Write) {
    clap_complete::generate(shell, &mut Cli::command(), "purelbctl", &mut Shield(out));
}

/// A reader that went away (`| head`) is no reason to panic in the generator.
struct Shield<'a>(&'a mut dyn Write);

impl Write for Shield<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// One page per command: purelbctl.1, purelbctl-drain.1, …
pub fn man(directory: &Path) -> Outcome<()> {
    let wrong = |e| {
        let what = format!("cannot write man pages to {}", directory.display());
        Failure::new(what).because(e).next("give a directory you may write to")
    };
    std::fs::create_dir_all(directory).map_err(wrong)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(wrong)
}
