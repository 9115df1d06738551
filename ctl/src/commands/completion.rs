//! `completion`: a shell's completion script, made from the command definitions.

use std::io::Write;

use clap::CommandFactory;

use crate::cli::Cli;

pub fn write_script(shell: clap_complete::Shell, out: &mut dyn Write) {
    clap_complete::generate(shell, &mut Cli::command(), "purelbctl", &mut PipeGuard(out));
}

/// A reader that went away (`| head`) is no reason to panic in the generator.
struct PipeGuard<'a>(&'a mut dyn Write);

impl Write for PipeGuard<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}
