//! Holds a small lab for hands-on use until Ctrl-C or the end of input. The lab's own
//! tests end it in every way there is, and look whether anything is left.

use std::io::{BufRead, Write};

use anyhow::Result;
use purelb_kit::lab::Lab;

fn main() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .client("c", ["lan"])
        .build()?;
    // A process inside must be gone as well, also if nobody ends it in order.
    let mut sleeper = std::process::Command::new("sleep");
    sleeper.arg("3600");
    let _sleeper = lab.node("a").spawn("sleeper", sleeper)?;
    let mut out = std::io::stdout();
    write!(out, "{}", lab.describe())?;
    writeln!(out, "ready; Enter or Ctrl-C ends it")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    assert_ne!(line.trim(), "panic", "asked to panic");
    Ok(())
}
