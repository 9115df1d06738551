//! Which daemons to drain because their Nodes are to be left alone, and which to take
//! back. A drain somebody else began is nobody's business here.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeName;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainStep {
    Drain,
    Undrain,
    /// Taken back already, by whomever, or the Node is another one by now: no longer
    /// ours to think of.
    Forget,
}

/// A Node as far as drains go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// Another one means another Node of the same name.
    pub uid: String,
    /// Cordoned.
    pub leaving: bool,
}

/// The nodes we drained, each with the uid its Node had then; None: not known.
pub type DrainedNodes = BTreeMap<NodeName, Option<String>>;

/// The next step for each node, if any. `daemons`: those with a Lease, and whether they
/// are draining.
pub fn drain_steps(
    nodes: &BTreeMap<NodeName, NodeState>,
    daemons: &BTreeMap<NodeName, bool>,
    ours: &DrainedNodes,
) -> BTreeMap<NodeName, DrainStep> {
    let mut steps = BTreeMap::new();
    let all: BTreeSet<&NodeName> = daemons.keys().chain(ours.keys()).collect();
    for name in all {
        let node = nodes.get(name);
        let leaving = node.is_some_and(|node| node.leaving);
        let same =
            |uid: &Option<String>| node.is_some_and(|node| uid.as_ref().is_none_or(|uid| *uid == node.uid));
        let (noted, drained) = (ours.contains_key(name), ours.get(name).is_some_and(same));
        let step = match (leaving, daemons.get(name), drained) {
            (true, Some(false), _) => DrainStep::Drain,
            (false, Some(true), true) => DrainStep::Undrain,
            (false, Some(false), true) => DrainStep::Forget,
            (_, _, false) if noted => DrainStep::Forget,
            _ => continue,
        };
        steps.insert(name.clone(), step);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(leaving: bool, draining: Option<bool>, ours: Option<&str>) -> Option<DrainStep> {
        let node = NodeName::new("n1").unwrap();
        let nodes = [(node.clone(), NodeState { uid: "u1".into(), leaving })].into();
        let daemons = draining.map(|draining| (node.clone(), draining)).into_iter().collect();
        let ours = ours.map(|uid| (node.clone(), (!uid.is_empty()).then(|| uid.to_owned())));
        drain_steps(&nodes, &daemons, &ours.into_iter().collect()).get(&node).copied()
    }

    #[test]
    fn every_combination() {
        use DrainStep::{Drain, Forget, Undrain};
        let (with, without) = (Some("u1"), None);
        for (leaving, draining, ours, expected) in [
            (true, Some(false), without, Some(Drain)),
            (true, Some(false), with, Some(Drain)),
            (true, Some(true), without, None),
            (true, Some(true), with, None),
            (false, Some(true), with, Some(Undrain)),
            (false, Some(true), without, None),
            (false, Some(false), with, Some(Forget)),
            (false, Some(false), without, None),
            // Without a daemon nothing can be asked, and nothing is forgotten.
            (true, None, with, None),
            (false, None, with, None),
            (true, None, without, None),
        ] {
            assert_eq!(steps(leaving, draining, ours), expected, "{leaving} {draining:?} {ours:?}");
            if ours.is_some() {
                assert_eq!(steps(leaving, draining, Some("")), expected, "an entry without a uid");
            }
        }
    }

    /// Whoever drains the new one, it was not us.
    #[test]
    fn a_node_made_anew_under_an_old_name_is_not_the_one_we_drained() {
        use DrainStep::{Drain, Forget};
        let old = Some("u0");
        assert_eq!(steps(false, Some(true), old), Some(Forget), "an operator's drain of the new one stays");
        assert_eq!(steps(true, Some(true), old), Some(Forget));
        assert_eq!(steps(false, None, old), Some(Forget));
        assert_eq!(steps(true, Some(false), old), Some(Drain), "the new one leaves, too");
        let gone = [(NodeName::new("n9").unwrap(), old.map(str::to_owned))].into();
        let steps = drain_steps(&BTreeMap::new(), &BTreeMap::new(), &gone);
        assert_eq!(steps.values().copied().collect::<Vec<_>>(), [Forget], "nor is one that is gone");
    }
}
