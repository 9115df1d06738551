//! What commands print: tables, rows, colours, and the two streams they go to.

pub mod election_result;
pub mod rows;
pub mod table;
pub mod text_painter;

use std::io::Write;

use crate::error::CommandResult;

/// Writes to standard output. A reader that has seen enough (`| head`) is not an error.
pub fn print_text(text: &str) -> CommandResult {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(0),
    }
}

/// Writes to standard error, so that notes never mix with the output asked for.
pub fn print_notes(notes: &[String]) {
    let mut err = std::io::stderr().lock();
    for note in notes {
        let _ = writeln!(err, "note: {note}");
    }
}
