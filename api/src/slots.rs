//! Announcing slots: who says it announces which address of a Service, and where.
//!
//! `purelb.io/announcing-IPv4: node,interface,ip node,interface,ip`; the winner of an
//! address writes its slot, nobody else's is touched. This is the one place that
//! formats them.

use std::collections::BTreeMap;
use std::fmt::Write;

use purelb_core::facts::AnnouncingSlot;
use purelb_core::{Family, IfName, NodeName, Vip};

/// A Service has few addresses; an annotation that claims more is not read further.
pub const MOST_SLOTS: usize = 1024;

/// Slots by address. Entries that are none, or of the other family, are dropped; of
/// two for one address the later counts.
pub fn decode(text: &str, family: Family) -> BTreeMap<Vip, AnnouncingSlot> {
    let slots = text.split_ascii_whitespace().filter_map(slot);
    slots.filter(|(vip, _)| vip.family() == family).take(MOST_SLOTS).collect()
}

/// The node's name is before the first comma and the address after the last, since
/// an interface's name may contain one.
fn slot(entry: &str) -> Option<(Vip, AnnouncingSlot)> {
    let (node, rest) = entry.split_once(',')?;
    let (interface, ip) = rest.rsplit_once(',')?;
    let slot = AnnouncingSlot { node: NodeName::new(node).ok()?, interface: IfName::new(interface).ok()? };
    Some((ip.parse().ok()?, slot))
}

/// Sorted by address.
pub fn encode(slots: &BTreeMap<Vip, AnnouncingSlot>) -> String {
    let mut text = String::new();
    for (vip, AnnouncingSlot { node, interface }) in slots {
        let space = if text.is_empty() { "" } else { " " };
        write!(text, "{space}{node},{interface},{vip}").expect("a String takes everything");
    }
    text
}

/// The annotation with our slots in it: each replaces what was said of its address,
/// all others stay.
pub fn merge(text: &str, family: Family, ours: &BTreeMap<Vip, AnnouncingSlot>) -> String {
    let mut all = decode(text, family);
    all.extend(ours.iter().filter(|(vip, _)| vip.family() == family).map(|(v, s)| (*v, s.clone())));
    encode(&all)
}

/// The annotation without this node's slot for the address; another node's stays.
/// `None` if that changes nothing.
pub fn without(text: &str, vip: Vip, node: &NodeName) -> Option<String> {
    let mut all = decode(text, vip.family());
    if all.get(&vip).is_none_or(|slot| slot.node != *node) {
        return None;
    }
    all.remove(&vip);
    Some(encode(&all))
}

#[cfg(test)]
mod tests;
