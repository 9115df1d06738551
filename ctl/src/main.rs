//! Parses, runs, prints what went wrong.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use purelbctl::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match purelbctl::commands::run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let mut err = std::io::stderr().lock();
            let word = if err.is_terminal() { "\x1b[31merror:\x1b[0m" } else { "error:" };
            // Nobody is left to tell if this fails.
            let _ = writeln!(err, "{word} {failure}");
            ExitCode::from(failure.code)
        }
    }
}
