//! Figures, printed beside the bar they have to meet, and held to it.

use std::io::Write;

/// Prints the line, then holds the figure to the bar. On stderr directly: the test
/// harness keeps what goes through its macros to itself.
pub fn figure(what: &str, bar: &str, measured: &str, holds: bool) {
    let _ = writeln!(std::io::stderr(), "figure: {what} | {bar} | {measured}");
    assert!(holds, "{what}: the bar is {bar}, measured was {measured}");
}
