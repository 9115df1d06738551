//! Small numbers for node names.
//!
//! Candidate lists and restrictions hold numbers instead of names. A number is in use
//! while its node is a member or some restriction names it, and is then given away again,
//! so that years of autoscaled nodes do not pile up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::score::HashPrefix;
use super::subnet_table;
use crate::NodeName;
use crate::rank::Rank;

/// Means a node only while that node is in use: never kept beyond the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u32);

/// A live member, as the election sees it.
#[derive(Clone, Debug)]
pub(super) struct ElectionMember {
    pub(super) head: HashPrefix,
    /// Clean, see [`subnet_table::clean`].
    pub(super) subnets: Vec<IpNet>,
    pub(super) eligible: bool,
    pub(super) declined: BTreeSet<IpAddr>,
    pub(super) rank: Rank,
}

impl ElectionMember {
    /// The subnets it stands for: none while it is draining.
    pub(super) fn standing_for(&self) -> &[IpNet] {
        if self.eligible { &self.subnets } else { &[] }
    }

    pub(super) fn is_candidate(&self, ip: IpAddr) -> bool {
        subnet_table::contain(self.standing_for(), ip) && !self.declined.contains(&ip)
    }
}

#[derive(Clone, Debug)]
struct NodeSlot {
    name: NodeName,
    member: Option<ElectionMember>,
    /// Restrictions that name it.
    named: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NodeTable {
    ids: BTreeMap<NodeName, NodeId>,
    slots: Vec<Option<NodeSlot>>,
    free: Vec<NodeId>,
}

impl NodeTable {
    pub(super) fn id(&self, name: &NodeName) -> Option<NodeId> {
        self.ids.get(name).copied()
    }

    /// The number of a node, given to it now if it has none. Whoever calls this makes it
    /// a member or names it, or calls [`NodeTable::release`].
    pub(super) fn intern(&mut self, name: &NodeName) -> NodeId {
        if let Some(id) = self.id(name) {
            return id;
        }
        let slot = Some(NodeSlot { name: name.clone(), member: None, named: 0 });
        let id = if let Some(id) = self.free.pop() {
            self.slots[id.0 as usize] = slot;
            id
        } else {
            let next = u32::try_from(self.slots.len()).expect("fewer than 2^32 nodes fit into memory");
            self.slots.push(slot);
            NodeId(next)
        };
        self.ids.insert(name.clone(), id);
        id
    }

    fn slot(&self, id: NodeId) -> &NodeSlot {
        let slot = self.slots[id.0 as usize].as_ref();
        slot.expect("a number is kept only while its node is in use")
    }

    fn slot_mut(&mut self, id: NodeId) -> &mut NodeSlot {
        let slot = self.slots[id.0 as usize].as_mut();
        slot.expect("a number is kept only while its node is in use")
    }

    pub(super) fn name(&self, id: NodeId) -> &NodeName {
        &self.slot(id).name
    }

    pub(super) fn member(&self, id: NodeId) -> Option<&ElectionMember> {
        self.slot(id).member.as_ref()
    }

    /// Replaces the member, and returns the one before it.
    pub(super) fn set_member(
        &mut self,
        id: NodeId,
        member: Option<ElectionMember>,
    ) -> Option<ElectionMember> {
        std::mem::replace(&mut self.slot_mut(id).member, member)
    }

    pub(super) fn add_named(&mut self, id: NodeId) {
        self.slot_mut(id).named += 1;
    }

    pub(super) fn drop_named(&mut self, id: NodeId) {
        self.slot_mut(id).named -= 1;
        self.release(id);
    }

    /// Gives the number away if nothing needs it any more.
    pub(super) fn release(&mut self, id: NodeId) {
        let slot = &self.slots[id.0 as usize];
        if let Some(slot) = slot.as_ref().filter(|slot| slot.member.is_none() && slot.named == 0) {
            self.ids.remove(&slot.name);
            self.slots[id.0 as usize] = None;
            self.free.push(id);
        }
    }

    /// Members in the order of their names.
    pub(super) fn members(&self) -> impl Iterator<Item = (&NodeName, &ElectionMember)> {
        self.ids.iter().filter_map(|(name, id)| Some((name, self.member(*id)?)))
    }

    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}
