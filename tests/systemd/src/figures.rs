//! Figures, printed beside the bar they have to meet, and held to it.

use std::io::Write;

/// Prints the line, then holds the figure to the bar. On stderr directly: the test
/// harness keeps what goes through its macros to itself. On a line of its own: the harness
/// may have begun one with the test's name.
pub fn figure(what: &str, bar: &str, measured: &str, holds: bool) {
    let _ = writeln!(std::io::stderr(), "\nfigure: {what} | {bar} | {measured}");
    assert!(holds, "{what}: the bar is {bar}, measured was {measured}");
}
