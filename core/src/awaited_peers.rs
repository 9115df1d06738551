//! Addresses that wait for a sign of life of the node they are given to.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{NodeName, Vip};

#[derive(Clone, Debug, Default)]
pub struct AwaitedPeers {
    of: BTreeMap<Vip, NodeName>,
    by: BTreeMap<NodeName, BTreeSet<Vip>>,
}

impl AwaitedPeers {
    /// Replaces whom the address waits for.
    pub fn set(&mut self, vip: Vip, node: Option<&NodeName>) {
        if self.of.get(&vip) == node {
            return;
        }
        if let Some(former) = self.of.remove(&vip)
            && let Some(vips) = self.by.get_mut(&former)
        {
            vips.remove(&vip);
            if vips.is_empty() {
                self.by.remove(&former);
            }
        }
        if let Some(node) = node {
            self.of.insert(vip, node.clone());
            self.by.entry(node.clone()).or_default().insert(vip);
        }
    }

    /// Those that wait for this node.
    pub fn for_node(&self, node: &NodeName) -> impl Iterator<Item = Vip> {
        self.by.get(node).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_waits_for_one_node_at_most() {
        let vip = |last: u8| Vip::new(std::net::IpAddr::from([10, 0, 0, last]));
        let (a, b) = (NodeName::new("a").unwrap(), NodeName::new("b").unwrap());
        let mut awaiting = AwaitedPeers::default();
        awaiting.set(vip(1), Some(&a));
        awaiting.set(vip(2), Some(&a));
        awaiting.set(vip(1), Some(&b));
        awaiting.set(vip(1), Some(&b));
        assert_eq!(awaiting.for_node(&a).collect::<Vec<_>>(), [vip(2)]);
        assert_eq!(awaiting.for_node(&b).collect::<Vec<_>>(), [vip(1)]);
        awaiting.set(vip(1), None);
        awaiting.set(vip(2), None);
        assert!(awaiting.by.is_empty() && awaiting.of.is_empty());
    }
}
