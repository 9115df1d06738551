//! Which daemons to drain because their Nodes are to be left alone, and which to take
//! back. A drain somebody else began is nobody's business here.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeName;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainStep {
    Drain,
    Undrain,
    /// Taken back already, by whomever: no longer ours to think of.
    Forget,
}

/// The next step for each node, if any. `leaving`: Nodes that are cordoned or ask to
/// be left alone. `daemons`: those with a Lease, and whether they are draining.
/// `ours`: those we drained.
pub fn drain_steps(
    leaving: &BTreeSet<NodeName>,
    daemons: &BTreeMap<NodeName, bool>,
    ours: &BTreeSet<NodeName>,
) -> BTreeMap<NodeName, DrainStep> {
    let mut steps = BTreeMap::new();
    for (node, draining) in daemons {
        let step = match (leaving.contains(node), *draining, ours.contains(node)) {
            (true, false, _) => DrainStep::Drain,
            (false, true, true) => DrainStep::Undrain,
            (false, false, true) => DrainStep::Forget,
            (true, true, _) | (false, _, false) => continue,
        };
        steps.insert(node.clone(), step);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination() {
        let node = NodeName::new("n1").unwrap();
        let set = |is: bool| is.then(|| node.clone()).into_iter().collect::<BTreeSet<_>>();
        use DrainStep::{Drain, Forget, Undrain};
        for (leaving, draining, ours, expected) in [
            (true, false, false, Some(Drain)),
            (true, false, true, Some(Drain)),
            (true, true, false, None),
            (true, true, true, None),
            (false, true, true, Some(Undrain)),
            (false, true, false, None),
            (false, false, true, Some(Forget)),
            (false, false, false, None),
        ] {
            let daemons = BTreeMap::from([(node.clone(), draining)]);
            let steps = drain_steps(&set(leaving), &daemons, &set(ours));
            assert_eq!(steps.get(&node).copied(), expected, "{leaving} {draining} {ours}");
        }
        let nobody = drain_steps(&set(true), &BTreeMap::new(), &set(true));
        assert!(nobody.is_empty(), "a node without a daemon");
    }
}
