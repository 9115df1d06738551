//! Which of the candidates may win a VIP.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node_table::{NodeId, NodeTable};
use crate::NodeName;

/// Narrows the candidates of one VIP. Nodes named here need not be members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Restriction {
    /// Every candidate may win.
    #[default]
    None,
    /// Only these: nodes with an endpoint (`externalTrafficPolicy: Local`), or selected nodes.
    Nodes(BTreeSet<NodeName>),
    /// These, but anyone while none of them is a candidate (`node-affinity: service-endpoints`).
    Prefer(BTreeSet<NodeName>),
    /// Only `only`, and among them `prefer` while one of those is a candidate.
    Both { only: BTreeSet<NodeName>, prefer: BTreeSet<NodeName> },
}

impl Restriction {
    fn only(&self) -> Option<&BTreeSet<NodeName>> {
        match self {
            Self::Nodes(only) | Self::Both { only, .. } => Some(only),
            Self::None | Self::Prefer(_) => None,
        }
    }

    fn prefer(&self) -> Option<&BTreeSet<NodeName>> {
        match self {
            Self::Prefer(prefer) | Self::Both { prefer, .. } => Some(prefer),
            Self::None | Self::Nodes(_) => None,
        }
    }
}

/// A candidate of the first tier wins over any of the fallback tier, whatever the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CandidateTier {
    /// Preferred, or the VIP prefers nobody.
    First,
    /// Not one of the preferred nodes: wins only while none of them is a candidate.
    Fallback,
}

/// Sorted.
pub(super) type NodeSet = Arc<[NodeId]>;

/// A [`Restriction`] in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) only: Option<NodeSet>,
    pub(super) prefer: Option<NodeSet>,
}

impl Rule {
    /// The tier a candidate stands in, or `None` if it may not win.
    pub(super) fn tier(&self, id: NodeId) -> Option<CandidateTier> {
        let has = |set: &NodeSet| set.binary_search(&id).is_ok();
        if !self.only.as_ref().is_none_or(has) {
            return None;
        }
        Some(if self.prefer.as_ref().is_none_or(has) {
            CandidateTier::First
        } else {
            CandidateTier::Fallback
        })
    }

    /// For a question that keeps nothing: names without a number are not members, and
    /// leaving them out changes no answer.
    pub(super) fn passing(restriction: &Restriction, nodes: &NodeTable) -> Self {
        let resolve = |names: &BTreeSet<NodeName>| -> NodeSet {
            let mut ids: Vec<NodeId> = names.iter().filter_map(|name| nodes.id(name)).collect();
            ids.sort_unstable();
            ids.into()
        };
        Self { only: restriction.only().map(resolve), prefer: restriction.prefer().map(resolve) }
    }
}

/// One copy of each set: a thousand VIPs behind one node selector share theirs, where a
/// list per VIP would take tens of megabytes.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeSets {
    users: BTreeMap<NodeSet, usize>,
}

impl NodeSets {
    pub(super) fn rule(&mut self, restriction: &Restriction, nodes: &mut NodeTable) -> Rule {
        Rule {
            only: restriction.only().map(|names| self.take(names, nodes)),
            prefer: restriction.prefer().map(|names| self.take(names, nodes)),
        }
    }

    fn take(&mut self, names: &BTreeSet<NodeName>, nodes: &mut NodeTable) -> NodeSet {
        let mut ids: Vec<NodeId> = names.iter().map(|name| nodes.intern(name)).collect();
        ids.sort_unstable();
        if let Some((set, _)) = self.users.get_key_value(ids.as_slice()) {
            let set = set.clone();
            *self.users.entry(set.clone()).or_default() += 1;
            return set;
        }
        for id in &ids {
            nodes.add_named(*id);
        }
        let set: NodeSet = ids.into();
        self.users.insert(set.clone(), 1);
        set
    }

    pub(super) fn release(&mut self, rule: Rule, nodes: &mut NodeTable) {
        for set in [rule.only, rule.prefer].into_iter().flatten() {
            let Some(users) = self.users.get_mut(&set) else {
                continue;
            };
            *users -= 1;
            if *users == 0 {
                self.users.remove(&set);
                for id in set.iter() {
                    nodes.drop_named(*id);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }
}
