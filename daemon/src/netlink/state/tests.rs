use purelb_core::facts::LinkFacts;
use purelb_core::ids::{Family, IfName};

use super::super::marks::MARK;
use super::*;

fn mk_state() -> State {
    State::new(Marks::kernel(), LinkTable::default())
}

fn mk_link(index: u32, up: bool) -> Link {
    Link {
        facts: LinkFacts {
            index: IfIndex(index),
            name: IfName::new("eth0").unwrap(),
            loopback: false,
            up,
            carrier: up,
        },
        mac: Some([2, 0, 0, 0, 0, 1]),
        no_arp: false,
        alias: None,
        promotes_secondaries: None,
    }
}

fn mk_address(index: u32, net: &str) -> Address {
    Address {
        index: IfIndex(index),
        net: net.parse().unwrap(),
        peer: None,
        flags: 0,
        link_scope: false,
        proto: Some(MARK),
        created: 0,
    }
}

fn step(state: &mut State, seen: Seen) -> Vec<Input> {
    let mut inputs = Vec::new();
    state.apply(seen, &mut |input| inputs.push(input));
    inputs
}

#[test]
fn only_a_change_of_facts_is_told() {
    let mut state = mk_state();
    let address = mk_address(2, "192.0.2.1/24");
    assert_eq!(step(&mut state, Seen::Address(address.clone())).len(), 1);
    let refreshed = Address { created: 9, ..address.clone() };
    assert!(step(&mut state, Seen::Address(refreshed)).is_empty());
    let theirs = Address { proto: None, ..address.clone() };
    assert!(
        matches!(&step(&mut state, Seen::Address(theirs))[..], [Input::AddressSet(facts)] if !facts.ours)
    );
    assert_eq!(step(&mut state, Seen::AddressGone(address.clone())).len(), 1);
    assert!(step(&mut state, Seen::AddressGone(address)).is_empty());
}

#[test]
fn a_new_hardware_address_reaches_the_table_and_not_the_engine() {
    let mut state = mk_state();
    step(&mut state, Seen::Link(mk_link(2, true)));
    let changed = Link { mac: Some([2, 0, 0, 0, 0, 9]), ..mk_link(2, true) };
    assert!(step(&mut state, Seen::Link(changed)).is_empty());
    assert_eq!(state.table.get(IfIndex(2)).unwrap().mac, Some([2, 0, 0, 0, 0, 9]));
}

#[test]
fn a_link_takes_its_addresses_along() {
    let mut state = mk_state();
    step(&mut state, Seen::Link(mk_link(2, true)));
    step(&mut state, Seen::Address(mk_address(2, "192.0.2.1/24")));
    step(&mut state, Seen::Address(mk_address(3, "192.0.2.2/24")));
    let gone = step(&mut state, Seen::LinkGone(IfIndex(2)));
    assert!(
        matches!(gone[..], [Input::AddressGone { .. }, Input::Link(Update::Gone(IfIndex(2)))]),
        "{gone:?}"
    );
    assert_eq!(state.snapshot().addresses.len(), 1);
}

#[test]
fn what_may_take_routes_along_makes_them_stale() {
    let mut state = mk_state();
    step(&mut state, Seen::Link(mk_link(2, true)));
    assert!(state.routes_stale);
    let route = DefaultRoute { family: Family::V4, metric: 0, index: IfIndex(2) };
    assert!(state.set_routes(BTreeSet::from([route])).is_some());
    assert!(state.set_routes(BTreeSet::from([route])).is_none(), "no change, nothing to tell");
    step(&mut state, Seen::Address(mk_address(2, "192.0.2.1/24")));
    assert!(!state.routes_stale);
    step(&mut state, Seen::AddressGone(mk_address(2, "192.0.2.1/24")));
    assert!(state.routes_stale);
}

#[test]
fn of_two_far_ends_one_remains() {
    let mut state = mk_state();
    let with = |peer: &str| Address { peer: Some(peer.parse().unwrap()), ..mk_address(2, "192.0.2.9/32") };
    step(&mut state, Seen::Address(with("198.51.100.1")));
    step(&mut state, Seen::Address(with("198.51.100.2")));
    assert_eq!(state.snapshot().addresses.len(), 1, "one identity for the engine");
    let first = step(&mut state, Seen::AddressGone(with("198.51.100.1")));
    assert!(matches!(first[..], [Input::AddressSet(_)]), "{first:?}");
    let last = step(&mut state, Seen::AddressGone(with("198.51.100.2")));
    assert!(matches!(last[..], [Input::AddressGone { .. }]), "{last:?}");
}
