//! R13: heard or not, one yields. And who is cut off lets go.

use std::collections::BTreeMap;

use super::segment::*;
use super::world::*;
use crate::facts::*;
use crate::messages::*;
use crate::segment::*;

/// We have the address, and have had it for a while.
fn holding() -> (World, String) {
    let ip = address_of(["me", "peer", "other"], "192.168.1.");
    let mut world = World::new();
    let hosts = BTreeMap::from([(vip("192.168.1.202"), PEER), (vip("192.168.1.203"), OTHER)]);
    world.segment = Some(TestSegment { hosts, ..TestSegment::default() });
    let peers = vec![lease("peer", PEER, 1, &[]), lease("other", OTHER, 1, &[])];
    let mut world = world.listed(vec![mk_service("a", &[&ip])], peers);
    for (name, address) in [("peer", "192.168.1.202"), ("other", "192.168.1.203")] {
        let addresses = [address.parse().unwrap()].into();
        world.feed(Input::Nodes(FactsUpdate::Set(NodeFacts { addresses, ..mk_node(name) })));
    }
    world.ms(2_000);
    renew(&mut world, &[]);
    assert!(world.holds(&ip));
    (world, ip)
}

fn renew(world: &mut World, of_peer: &[&str]) {
    world.renews("peer", PEER, of_peer);
    world.renews("other", OTHER, &[]);
}

#[test]
fn a_claim_is_answered_once() {
    let (mut world, ip) = holding();
    let before = world.announcements(&ip);
    world.sees(&ip, PEER, SightingKind::Announcement);
    assert_eq!(world.announcements(&ip), before + 1);
    world.ms(3_000);
    assert!(world.holds(&ip) && world.counters().yields == 0);
    assert_eq!(world.counters().defences, 1);
}

#[test]
fn who_claims_again_does_not_hear_us_and_gets_it() {
    let (mut world, ip) = holding();
    world.sees(&ip, PEER, SightingKind::Announcement);
    // It says so in its Lease as well: it took it from us.
    renew(&mut world, &[&ip]);
    world.ms(500);
    world.sees(&ip, PEER, SightingKind::Announcement);
    assert!(!world.holds(&ip));
    assert_eq!(world.counters().yields, 1);
    assert!(!world.lease.as_ref().unwrap().subnets.contains(&"192.168.1.0/24".parse().unwrap()));
    let view = world.engine.snapshot(world.now).segments;
    assert_eq!(view.values().next().unwrap().unheard_by, Some(node("peer")));
    // It does not answer for the address either: it stays there.
    for _ in 0..6 {
        renew(&mut world, &[&ip]);
        world.ms(5_000);
    }
    assert!(!world.holds(&ip));
    // Until it does.
    world.answers(&ip, Some(PEER));
    world.ms(4_000);
    assert!(world.lease.as_ref().unwrap().subnets.contains(&"192.168.1.0/24".parse().unwrap()));
    assert!(world.holds(&ip), "and we take it back, with a handoff");
}

#[test]
fn a_claim_that_crossed_our_answer_is_not_another() {
    let (mut world, ip) = holding();
    world.sees(&ip, PEER, SightingKind::Announcement);
    world.ms(5);
    world.sees(&ip, PEER, SightingKind::Announcement);
    assert!(world.holds(&ip));
}

#[test]
fn a_claim_of_whoever_gives_it_to_us_is_part_of_the_handoff() {
    let ip = address_of(["me", "peer", "other"], "192.168.1.");
    let mut world = World::new();
    world.segment = Some(TestSegment::default());
    let peers = vec![lease("peer", PEER, 1, &[&ip]), lease("other", OTHER, 1, &[])];
    let mut world = world.listed(vec![], peers);
    world.renews("peer", PEER, &[&ip]);
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(world.holds(&ip));
    for _ in 0..3 {
        world.ms(200);
        world.sees(&ip, PEER, SightingKind::Asker);
    }
    assert!(world.holds(&ip));
    assert_eq!((world.counters().defences, world.counters().yields), (0, 0));
}

#[test]
fn a_strangers_claim_is_answered_and_takes_nothing() {
    let (mut world, ip) = holding();
    for _ in 0..10 {
        world.sees(&ip, STRANGER, SightingKind::Announcement);
        world.ms(200);
    }
    assert!(world.holds(&ip));
    assert_eq!(world.counters().defences, 2, "once a second");
}

#[test]
fn a_probe_claims_nothing() {
    let (mut world, ip) = holding();
    world.sees(&ip, PEER, SightingKind::Probe);
    assert_eq!(world.counters().defences, 0);
}

#[test]
fn a_claim_from_beyond_a_lease_does_not_count() {
    let (mut world, ip) = holding();
    // Its Lease runs out.
    world.ms(12_000);
    for _ in 0..4 {
        world.sees(&ip, PEER, SightingKind::Announcement);
        world.ms(1_100);
        world.renews("other", OTHER, &[]);
    }
    assert!(world.holds(&ip) && world.counters().defences == 4);
}

#[test]
fn who_hears_nobody_is_cut_off_and_lets_go() {
    let (mut world, ip) = holding();
    let at_rest = world.segment.as_ref().unwrap().asked.len();
    world.ms(3_000);
    let pulses = world.segment.as_ref().unwrap().asked.len() - at_rest;
    assert!((4..=8).contains(&pulses), "two hosts, once a second each: {pulses}");
    renew(&mut world, &[]);
    world.answers("192.168.1.202", None);
    world.answers("192.168.1.203", None);
    world.ms(2_500);
    assert!(!world.holds(&ip));
    assert!(world.lease.as_ref().unwrap().subnets.is_empty());
    // The cable is back: once it is steady.
    renew(&mut world, &[]);
    world.answers("192.168.1.203", Some(OTHER));
    world.ms(1_900);
    assert!(!world.holds(&ip));
    world.ms(2_500);
    assert!(world.holds(&ip));
}

#[test]
fn one_host_that_is_gone_does_not_cut_us_off() {
    let (mut world, ip) = holding();
    world.answers("192.168.1.202", None);
    world.ms(5_000);
    assert!(world.holds(&ip));
    renew(&mut world, &[]);
    // Nor does the last one, later.
    world.answers("192.168.1.203", None);
    world.ms(5_000);
    assert!(world.holds(&ip));
}

#[test]
fn with_nobody_else_there_nobody_lets_go() {
    let (mut world, ip) = holding();
    for name in ["peer", "other"] {
        world.feed(Input::Leases(FactsUpdate::Gone(node(name))));
    }
    world.answers("192.168.1.202", None);
    world.answers("192.168.1.203", None);
    world.ms(5_000);
    assert!(world.holds(&ip));
}
