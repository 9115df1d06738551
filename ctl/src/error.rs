//! What went wrong, why, and what to do next: all three, every time.

use std::fmt;

/// Exit codes beyond 0.
pub mod exit_code {
    /// It did not work, or somebody should look.
    pub const FAILED: u8 = 1;
    /// Critical status; the daemon does not answer. Also a wrong command line.
    pub const CRITICAL: u8 = 2;
    /// Done, and less than asked for: a drain left addresses behind, a token ends earlier.
    pub const INCOMPLETE: u8 = 3;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    pub what: String,
    pub cause: Option<String>,
    pub next: Option<String>,
    pub code: u8,
}

impl CommandError {
    pub fn new(what: impl fmt::Display) -> Self {
        Self { what: what.to_string(), cause: None, next: None, code: exit_code::FAILED }
    }

    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    #[must_use]
    pub fn next(mut self, next: impl fmt::Display) -> Self {
        self.next = Some(next.to_string());
        self
    }

    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        if let Some(next) = &self.next {
            write!(f, "\n{next}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CommandError {}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self::new("cannot write the output").because(error)
    }
}

pub type CommandResult<T = u8> = Result<T, CommandError>;

/// The name closest to a wrong one, if any is close.
pub fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|k| (distance(wrong, k), k));
    let allowed = (wrong.chars().count() / 3).max(1);
    near.filter(|(d, _)| *d <= allowed).min().map(|(_, k)| k)
}

/// An error that names the nearest known node, unless `node` is known.
pub fn check_node_known<'a>(node: &str, known: impl IntoIterator<Item = &'a str>) -> CommandResult<()> {
    let known: Vec<&str> = known.into_iter().collect();
    if known.contains(&node) {
        return Ok(());
    }
    let next = match did_you_mean(node, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if known.is_empty() => "there are no node Leases: is purelbd running anywhere?".to_owned(),
        None => format!("nodes with a Lease: {}", known.join(", ")),
    };
    Err(CommandError::new(format!("node {node} is unknown")).next(next))
}

/// Edits that turn one text into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = before + usize::from(ca != *cb);
            before = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_is_close_and_nothing_else() {
        let nodes = ["worker-1", "worker-2", "control"];
        assert_eq!(did_you_mean("wroker-1", nodes), Some("worker-1"));
        assert_eq!(did_you_mean("contrl", nodes), Some("control"));
        assert_eq!(did_you_mean("zzz", nodes), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn says_what_why_and_what_next() {
        let failure = CommandError::new("cannot reach it").because("no socket").next("start it");
        assert_eq!(failure.to_string(), "cannot reach it: no socket\nstart it");
    }
}
