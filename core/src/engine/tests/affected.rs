//! How little is looked at. That it is enough is what the world asks after every step.

use std::collections::BTreeSet;
use std::time::Duration;

use super::world::*;
use crate::facts::*;
use crate::ids::{IfIndex, Vip};
use crate::messages::*;
use crate::reason::*;

const VETH: IfIndex = IfIndex(77);
const LOCAL: &str = "192.168.1.100";
const REMOTE: &str = "10.100.0.7";
const ALONE: &str = "10.200.0.7";

/// A local address, a remote one with its prefix, and one without.
fn world(peers: Vec<LeaseFacts>) -> World {
    let range = |net: &str, aggregation| vec![RangeFacts::whole(net.parse().unwrap(), aggregation)];
    let groups = vec![
        GroupFacts::of_ranges("default", PoolType::Local, range("192.168.1.0/24", None)),
        GroupFacts::of_ranges("remote", PoolType::Remote, range("10.100.0.0/24", None)),
        GroupFacts::of_ranges("alone", PoolType::Remote, range("10.200.0.0/24", Some(32))),
    ];
    let service = |name: &str, ip: &str| ServiceFacts { group: None, ..mk_service(name, &[ip]) };
    let services = vec![service("a", LOCAL), service("b", REMOTE), service("c", ALONE)];
    let world = World::of_groups(groups).listed(services, peers);
    assert!(world.holds(REMOTE) && world.holds(ALONE));
    world
}

fn veth(name: &str) -> Input {
    Input::Link(FactsUpdate::Set(mk_link(VETH, name)))
}

fn vips(ips: &[&str]) -> BTreeSet<Vip> {
    ips.iter().map(|ip| vip(ip)).collect()
}

fn draining(peer: LeaseFacts) -> LeaseFacts {
    LeaseFacts { draining: Some("2026-01-01T00:00:00Z".to_owned()), ..peer }
}

fn drain(world: &mut World) {
    let since = "2026-01-01T00:00:00Z".to_owned();
    world.feed(Input::Command(Command::Drain { since, force: false }));
}

#[test]
fn a_link_that_comes_goes_or_is_renamed_concerns_nothing() {
    let mut world = world(vec![]);
    assert_eq!(world.looked_at(veth("veth1")), vips(&[]));
    world.feed(veth("veth1"));
    let link_local = AddrFacts { link_local: true, ..mk_address(VETH, "fe80::1/64") };
    world.feed(Input::AddressSet(link_local));
    assert_eq!(world.looked_at(veth("veth2")), vips(&["fe80::1"]));
    assert_eq!(world.looked_at(Input::Link(FactsUpdate::Gone(VETH))), vips(&["fe80::1"]));
}

/// With some networks each of them has an address.
#[test]
fn an_address_of_the_node_concerns_the_remote_ones_around_it() {
    let mut world = world(vec![]);
    world.feed(veth("veth1"));
    let elsewhere = Input::AddressSet(mk_address(VETH, "10.7.0.1/32"));
    assert_eq!(world.looked_at(elsewhere.clone()), vips(&["10.7.0.1"]));
    world.feed(elsewhere);
    assert_eq!(world.looked_at(veth("veth2")), vips(&["10.7.0.1"]));
    let inside = Input::AddressSet(mk_address(VETH, "10.100.0.1/32"));
    assert_eq!(world.looked_at(inside.clone()), vips(&["10.100.0.1", REMOTE]));
    world.feed(inside);
    assert_eq!(world.reason(REMOTE).name(), "HidesOwnNetwork");
    // Reported by another name, and gone with its link.
    world.feed(veth("veth2"));
    let Reason::HidesOwnNetwork { what: HiddenNetwork::OwnAddress { interface, .. }, .. } =
        world.reason(REMOTE)
    else {
        panic!("{:?}", world.reason(REMOTE));
    };
    assert_eq!(interface, ifname("veth2"));
    world.feed(Input::Link(FactsUpdate::Gone(VETH)));
    assert_eq!(world.reason(REMOTE).name(), "Announcing");
}

#[test]
fn a_gateway_concerns_the_remote_ones_around_it() {
    let mut world = world(vec![]);
    let via = |gateway: &str| {
        let gateway = Some(gateway.parse().unwrap());
        let route = DefaultRoute { family: crate::Family::V4, metric: 0, index: ETH0, gateway };
        Input::DefaultRoutes(vec![route])
    };
    assert_eq!(world.looked_at(via("192.168.1.1")), vips(&[]));
    assert_eq!(world.looked_at(via("10.100.0.1")), vips(&[REMOTE]));
    world.feed(via("10.100.0.1"));
    assert_eq!(world.reason(REMOTE).name(), "HidesOwnNetwork");
    world.feed(via("192.168.1.1"));
    assert_eq!(world.reason(REMOTE).name(), "Announcing");
}

#[test]
fn a_renewal_of_a_node_that_leaves_concerns_nothing() {
    let mut world = world(vec![]);
    drain(&mut world);
    world.ms(5_000);
    assert_eq!(world.reason(LOCAL), Reason::Draining { held: true });
    world.now += Duration::from_secs(4);
    let effects = world.engine.step(world.now, Input::Tick);
    let Some(Effect::WriteLease(write)) = effects.iter().find(|e| matches!(e, Effect::WriteLease(_))) else {
        panic!("{effects:?}");
    };
    let result = Ok(LeaseRenewal { renewal: "next".to_owned() });
    let answer = Input::LeaseWritten { seq: write.seq, sent_at: world.now, result };
    assert_eq!(world.looked_at(answer), vips(&[]));
}

#[test]
fn while_leaving_a_peer_concerns_what_it_can_take() {
    let mut world = world(vec![draining(mk_peer("peer", 1, &[])), draining(mk_peer("third", 1, &[]))]);
    drain(&mut world);
    assert!(world.holds(REMOTE), "no other can have it");
    let able = |name: &str, renewal| Input::Leases(FactsUpdate::Set(mk_peer(name, renewal, &[])));
    // It has no subnets any more, which concerns nobody.
    let without = LeaseFacts { subnets: BTreeSet::new(), ..draining(mk_peer("peer", 2, &[])) };
    assert_eq!(world.looked_at(Input::Leases(FactsUpdate::Set(without))), vips(&[]));
    assert_eq!(world.looked_at(able("peer", 2)), vips(&[LOCAL, REMOTE, ALONE]));
    world.feed(able("peer", 2));
    assert!(!world.holds(REMOTE), "another has it");
    assert!(!world.looked_at(able("third", 2)).contains(&vip(REMOTE)));
    world.feed(able("third", 2));
}

/// Its claim may have been missed, so it is answered; which takes no look.
#[test]
fn a_listing_of_leases_has_everything_announced_again_without_a_look() {
    let mut world = world(vec![]);
    world.ms(5_000);
    let own = || world.engine.clone().lease.seen().cloned().unwrap();
    let listing = Input::Leases(FactsUpdate::All(vec![own()]));
    assert_eq!(world.looked_at(listing.clone()), vips(&[]));
    let before = world.announcements(LOCAL);
    world.feed(listing);
    assert_eq!(world.announcements(LOCAL), before + 1);
    world.ms(5_000);
    assert_eq!(world.announcements(LOCAL), before + 3, "with the repeats");
    assert_eq!(world.announcements(REMOTE), 0);
    // One that lists it, too, is answered when it has let go, and not before.
    let peer = LeaseFacts { subnets: BTreeSet::new(), ..mk_peer("peer", 1, &[LOCAL]) };
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("peer"))));
    let own = world.engine.clone().lease.seen().cloned().unwrap();
    world.feed(Input::Leases(FactsUpdate::All(vec![own, peer.clone()])));
    world.ms(3_000);
    assert_eq!(world.announcements(LOCAL), before + 3);
    world.feed(Input::Leases(FactsUpdate::Set(LeaseFacts {
        announced: Some(BTreeSet::new()),
        renewal: "2".to_owned(),
        ..peer
    })));
    assert_eq!(world.announcements(LOCAL), before + 4);
}

#[test]
fn a_subnet_concerns_what_is_here_or_could_be() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let (mine, theirs) = (world.address_won_by("me", "peer"), world.address_won_by("peer", "peer"));
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&mine]))));
    world.feed(Input::Services(FactsUpdate::Set(mk_service("b", &[&theirs]))));
    assert_eq!(world.reason(&theirs), Reason::NotWinner { winner: node("peer") });
    let lost = Input::AddressGone { index: ETH0, net: "192.168.1.10/24".parse().unwrap() };
    assert_eq!(world.looked_at(lost.clone()), vips(&["192.168.1.10", &mine]));
    world.feed(lost);
    assert!(!world.holds(&mine));
    world.feed(Input::AddressSet(mk_address(ETH0, "192.168.1.10/24")));
    world.ms(3_000);
    world.peer("peer", &[]);
    assert!(world.holds(&mine) && !world.holds(&theirs));
}

/// The kernel tells if one is gone; an answer to a refresh says nothing new.
#[test]
fn answers_that_say_nothing_new_concern_nothing() {
    let mut world = world(vec![]);
    world.ms(5_000);
    world.busy = true;
    let from = world.log.len();
    world.ms(4_000);
    let refresh = world.log[from..].iter().find_map(|e| match e {
        Effect::Apply { id, op: KernelChange::Put(spec) } if spec.net.addr() == vip(LOCAL).ip() => Some(*id),
        _ => None,
    });
    let answer = Input::Applied { id: refresh.expect("a refresh"), result: Ok(()) };
    assert_eq!(world.looked_at(answer), vips(&[]));
}
