use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;

fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

fn mk_slot(node: &str, interface: &str) -> AnnouncingSlot {
    AnnouncingSlot { node: NodeName::new(node).unwrap(), interface: IfName::new(interface).unwrap() }
}

#[test]
fn splits_on_the_first_and_the_last_comma() {
    let read = decode("n1,eth0,x,10.0.0.5", Family::V4);
    assert_eq!(read[&vip("10.0.0.5")], mk_slot("n1", "eth0,x"));
}

#[test]
fn drops_what_is_no_slot() {
    let text = "n1,eth0,10.0.0.5 n2,10.0.0.6 ,eth0,10.0.0.7 n3,eth0,nonsense n4,eth0,2001:db8::1 n5,a-name-far-too-long,10.0.0.8";
    assert_eq!(decode(text, Family::V4).len(), 1);
    assert_eq!(decode(text, Family::V6).len(), 1);
}

#[test]
fn one_slot_per_address_sorted_by_address_not_by_text() {
    let text = "n1,eth0,10.0.0.10 n2,eth0,10.0.0.9 n3,eth1,10.0.0.10";
    assert_eq!(encode(&decode(text, Family::V4)), "n2,eth0,10.0.0.9 n3,eth1,10.0.0.10");
}

#[test]
fn taking_over_an_address_leaves_the_others_alone() {
    let ours = BTreeMap::from([
        (vip("10.0.0.9"), mk_slot("n2", "eth1")),
        (vip("2001:db8::1"), mk_slot("n2", "eth1")),
    ]);
    let merged = merge("n1,eth0,10.0.0.9 n1,eth0,10.0.0.10", Family::V4, &ours);
    assert_eq!(merged, "n2,eth1,10.0.0.9 n1,eth0,10.0.0.10");
}

#[test]
fn only_our_own_slot_is_taken_back() {
    let text = "n1,eth0,10.0.0.9 n2,eth0,10.0.0.10";
    let (n1, ip) = (NodeName::new("n1").unwrap(), vip("10.0.0.9"));
    assert_eq!(without(text, ip, &n1).as_deref(), Some("n2,eth0,10.0.0.10"));
    assert_eq!(without(text, vip("10.0.0.10"), &n1), None);
    assert_eq!(without(text, vip("10.0.0.11"), &n1), None);
}

fn any_slots() -> impl Strategy<Value = BTreeMap<Vip, AnnouncingSlot>> {
    let one = (any::<u32>(), "[a-z][a-z0-9.-]{0,20}", "[a-z][a-z0-9.,]{0,14}");
    let one = one
        .prop_map(|(ip, node, ifname)| (Vip::new(IpAddr::V4(Ipv4Addr::from(ip))), mk_slot(&node, &ifname)));
    prop::collection::vec(one, 0..20).prop_map(|list| list.into_iter().collect())
}

proptest! {
    #[test]
    fn text_round_trips(slots in any_slots()) {
        prop_assert_eq!(decode(&encode(&slots), Family::V4), slots);
    }

    #[test]
    fn merge_loses_nobody_elses_slot(theirs in any_slots(), ours in any_slots()) {
        let merged = decode(&merge(&encode(&theirs), Family::V4, &ours), Family::V4);
        for (vip, slot) in &theirs {
            prop_assert_eq!(&merged[vip], ours.get(vip).unwrap_or(slot));
        }
        for (vip, slot) in &ours {
            prop_assert_eq!(&merged[vip], slot);
        }
        prop_assert!(merged.keys().all(|v| theirs.contains_key(v) || ours.contains_key(v)));
    }

    #[test]
    fn merging_twice_is_merging_once(theirs in any_slots(), ours in any_slots()) {
        let once = merge(&encode(&theirs), Family::V4, &ours);
        prop_assert_eq!(merge(&once, Family::V4, &ours), once);
    }

    #[test]
    fn any_text_is_taken(text in ".{0,300}") {
        prop_assert!(decode(&text, Family::V4).len() + decode(&text, Family::V6).len() <= 2 * MOST_SLOTS);
    }
}
