//! Names of nodes, checked against those there are.

use crate::error::{Failure, Outcome, did_you_mean};

/// An unknown node is named, with the nearest known one.
pub fn check_node<'a>(node: &str, known: impl IntoIterator<Item = &'a str>) -> Outcome<()> {
    let known: Vec<&str> = known.into_iter().collect();
    if known.contains(&node) {
        return Ok(());
    }
    let next = match did_you_mean(node, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if known.is_empty() => "there are no node Leases: is purelbd running anywhere?".to_owned(),
        None => format!("nodes with a Lease: {}", known.join(", ")),
    };
    Err(Failure::new(format!("node {node} is unknown")).next(next))
}
