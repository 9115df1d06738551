use purelb_core::facts::{DefaultRoute, LinkFacts};
use purelb_core::ids::{Family, IfName};

use super::*;
use crate::netlink::ownership::ADDRESS_MARK;

fn mk_state() -> MonitorState {
    MonitorState::new(AddressOwnership::kernel(), LinkTable::default())
}

fn mk_link(index: u32, up: bool) -> KernelLink {
    KernelLink {
        facts: LinkFacts {
            index: IfIndex(index),
            name: IfName::new("eth0").unwrap(),
            loopback: false,
            up,
            carrier: up,
            mac: Some([2, 0, 0, 0, 0, 1]),
            ours: false,
        },
        no_arp: false,
        promotes_secondaries: None,
    }
}

fn mk_address(index: u32, net: &str) -> KernelAddress {
    KernelAddress {
        index: IfIndex(index),
        net: net.parse().unwrap(),
        peer: None,
        flags: 0,
        link_scope: false,
        proto: Some(ADDRESS_MARK),
        created: 0,
    }
}

fn step(state: &mut MonitorState, seen: KernelEvent) -> Vec<Input> {
    let mut inputs = Vec::new();
    state.apply(seen, &mut |input| inputs.push(input));
    inputs
}

#[test]
fn only_a_change_of_facts_is_told() {
    let mut state = mk_state();
    let address = mk_address(2, "192.0.2.1/24");
    assert_eq!(step(&mut state, KernelEvent::Address(address.clone())).len(), 1);
    let refreshed = KernelAddress { created: 9, ..address.clone() };
    assert!(step(&mut state, KernelEvent::Address(refreshed)).is_empty());
    let theirs = KernelAddress { proto: None, ..address.clone() };
    assert!(
        matches!(&step(&mut state, KernelEvent::Address(theirs))[..], [Input::AddressSet(facts)] if !facts.ours)
    );
    assert_eq!(step(&mut state, KernelEvent::AddressGone(address.clone())).len(), 1);
    assert!(step(&mut state, KernelEvent::AddressGone(address)).is_empty());
}

#[test]
fn a_new_hardware_address_reaches_the_table_and_the_engine() {
    let mut state = mk_state();
    step(&mut state, KernelEvent::Link(mk_link(2, true)));
    let mut changed = mk_link(2, true);
    changed.facts.mac = Some([2, 0, 0, 0, 0, 9]);
    let told = step(&mut state, KernelEvent::Link(changed));
    assert!(
        matches!(&told[..], [Input::Link(FactsUpdate::Set(l))] if l.mac == Some([2, 0, 0, 0, 0, 9])),
        "{told:?}"
    );
    assert_eq!(state.table.get(IfIndex(2)).unwrap().facts.mac, Some([2, 0, 0, 0, 0, 9]));
}

#[test]
fn a_link_takes_its_addresses_along() {
    let mut state = mk_state();
    step(&mut state, KernelEvent::Link(mk_link(2, true)));
    step(&mut state, KernelEvent::Address(mk_address(2, "192.0.2.1/24")));
    step(&mut state, KernelEvent::Address(mk_address(3, "192.0.2.2/24")));
    let gone = step(&mut state, KernelEvent::LinkGone(IfIndex(2)));
    assert!(
        matches!(gone[..], [Input::AddressGone { .. }, Input::Link(FactsUpdate::Gone(IfIndex(2)))]),
        "{gone:?}"
    );
    assert_eq!(state.snapshot().addresses.len(), 1);
}

/// A million routes are not read for every link that comes and goes.
#[test]
fn only_what_may_take_routes_along_makes_them_stale() {
    let mut state = mk_state();
    step(&mut state, KernelEvent::Link(mk_link(2, true)));
    let route = DefaultRoute { family: Family::V4, metric: 0, index: IfIndex(2), gateway: None };
    let routes = DefaultRoutes::with(&[route], &[7], &["192.0.2.7"]);
    assert!(state.set_routes(routes.clone()).is_some());
    assert!(state.set_routes(routes).is_none(), "no change, nothing to tell");
    state.routes_stale = false;
    let harmless = [
        KernelEvent::Link(mk_link(3, true)),
        KernelEvent::Link(mk_link(3, false)),
        KernelEvent::LinkGone(IfIndex(3)),
        KernelEvent::Link(KernelLink {
            facts: LinkFacts { carrier: false, ..mk_link(2, true).facts },
            ..mk_link(2, true)
        }),
        KernelEvent::Address(mk_address(2, "192.0.2.1/24")),
        KernelEvent::Address(mk_address(2, "192.0.2.2/24")),
        KernelEvent::Address(mk_address(2, "192.0.2.7/24")),
        KernelEvent::AddressGone(mk_address(2, "192.0.2.1/24")),
        KernelEvent::Nexthop(8),
    ];
    for seen in harmless {
        step(&mut state, seen.clone());
        assert!(!state.routes_stale, "{seen:?}");
    }
    let harmful = [
        KernelEvent::AddressGone(mk_address(2, "192.0.2.7/24")),
        // The last one on the link.
        KernelEvent::AddressGone(mk_address(2, "192.0.2.2/24")),
        KernelEvent::Nexthop(7),
        KernelEvent::Link(mk_link(2, false)),
        KernelEvent::LinkGone(IfIndex(2)),
        KernelEvent::DefaultRoute,
    ];
    for seen in harmful {
        step(&mut state, seen.clone());
        assert!(std::mem::take(&mut state.routes_stale), "{seen:?}");
    }
}

#[test]
fn of_two_far_ends_one_remains() {
    let mut state = mk_state();
    let with =
        |peer: &str| KernelAddress { peer: Some(peer.parse().unwrap()), ..mk_address(2, "192.0.2.9/32") };
    step(&mut state, KernelEvent::Address(with("198.51.100.1")));
    step(&mut state, KernelEvent::Address(with("198.51.100.2")));
    assert_eq!(state.snapshot().addresses.len(), 1, "one identity for the engine");
    let first = step(&mut state, KernelEvent::AddressGone(with("198.51.100.1")));
    assert!(matches!(first[..], [Input::AddressSet(_)]), "{first:?}");
    let last = step(&mut state, KernelEvent::AddressGone(with("198.51.100.2")));
    assert!(matches!(last[..], [Input::AddressGone { .. }]), "{last:?}");
}
