//! What the cluster says of the Node itself: kept off by a label, or not well.

use std::time::Duration;

use super::world::*;
use crate::facts::*;
use crate::messages::*;
use crate::reason::*;

fn labelled(name: &str) -> NodeFacts {
    NodeFacts { excluded: true, ..mk_node(name) }
}

fn unwell(name: &str) -> NodeFacts {
    NodeFacts { impaired: Some(NodeImpairment::NotReady), ..mk_node(name) }
}

fn set(world: &mut World, node: NodeFacts) {
    world.feed(Input::Nodes(FactsUpdate::Set(node)));
}

/// `me` and `peer` are live for long; `me` holds the address that it wins.
fn settled() -> (World, String) {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    set(&mut world, mk_node("peer"));
    wait(&mut world, 12, &[]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(world.holds(&ip));
    (world, ip)
}

/// Time passes, and the peer renews.
fn wait(world: &mut World, seconds: u32, announced: &[&str]) {
    for _ in 0..seconds {
        world.ms(1_000);
        world.peer("peer", announced);
    }
}

#[test]
fn the_label_hands_over_before_it_lets_go() {
    let (mut world, ip) = settled();
    set(&mut world, labelled("me"));
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
    assert_eq!(world.lease.as_ref().unwrap().draining.as_deref(), Some(EXCLUDED));
    assert!(world.engine.snapshot(world.now).excluded);
    wait(&mut world, 1, &[]);
    assert!(world.holds(&ip), "make before break");
    wait(&mut world, 2, &[&ip]);
    assert!(!world.holds(&ip));
    assert_eq!(world.reason(&ip), Reason::NotWinner { winner: node("peer") });
    // Without the label it comes back, in the same way.
    set(&mut world, mk_node("me"));
    wait(&mut world, 1, &[&ip]);
    assert!(world.holds(&ip) && world.lease.as_ref().unwrap().draining.is_none());
}

#[test]
fn what_nobody_else_can_take_stays_and_nothing_new_is_taken() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    set(&mut world, labelled("me"));
    world.ms(10_000);
    assert!(world.holds("192.168.1.100"));
    assert_eq!(world.reason("192.168.1.100"), Reason::Excluded { held: true });
    world.feed(Input::Services(FactsUpdate::Set(mk_service("b", &["192.168.1.101"]))));
    assert!(!world.holds("192.168.1.101"));
    assert_eq!(world.reason("192.168.1.101"), Reason::Excluded { held: false });
    assert_eq!(world.events(EventKind::NoEligibleNodes), 1, "and the Service is told");
}

#[test]
fn the_label_of_a_peer_is_for_the_peer_to_heed() {
    let (mut world, _) = settled();
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("b", &[&ip]))));
    set(&mut world, labelled("peer"));
    wait(&mut world, 3, &[&ip]);
    assert!(!world.holds(&ip), "it may not have seen it yet, and holds the address");
    world.feed(Input::Leases(FactsUpdate::Set(LeaseFacts {
        draining: Some(EXCLUDED.to_owned()),
        ..mk_peer("peer", 99, &[&ip])
    })));
    assert!(world.holds(&ip));
}

#[test]
fn a_switch_turns_the_label_off() {
    let (mut world, ip) = settled();
    let mut config = world.agent();
    config.candidacy.exclude_label = false;
    world.configure(config.clone());
    set(&mut world, labelled("me"));
    wait(&mut world, 8, &[]);
    assert_eq!(world.reason(&ip).name(), "Announcing");
    config.candidacy.exclude_label = true;
    world.configure(config);
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
}

#[test]
fn not_ready_for_long_ranks_last_and_ready_for_long_first() {
    let (mut world, ip) = settled();
    set(&mut world, unwell("me"));
    wait(&mut world, 59, &[]);
    assert_eq!(world.reason(&ip).name(), "Announcing");
    wait(&mut world, 2, &[]);
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
    assert_eq!(world.lease.as_ref().unwrap().rank, Rank::Last);
    wait(&mut world, 2, &[&ip]);
    assert!(!world.holds(&ip));
    set(&mut world, mk_node("me"));
    wait(&mut world, 59, &[&ip]);
    assert!(!world.holds(&ip), "for as long");
    wait(&mut world, 2, &[&ip]);
    assert!(world.holds(&ip));
}

/// A control plane that calls everybody NotReady moves nothing.
#[test]
fn where_nobody_is_well_nothing_moves() {
    let (mut world, ip) = settled();
    set(&mut world, unwell("peer"));
    set(&mut world, unwell("me"));
    wait(&mut world, 200, &[]);
    assert_eq!(world.reason(&ip).name(), "Announcing");
    assert_eq!(world.lease.as_ref().unwrap().rank, Rank::First);
    // One that recovers does not give everything to the first node that is well again.
    set(&mut world, mk_node("peer"));
    wait(&mut world, 58, &[]);
    assert_eq!(world.lease.as_ref().unwrap().rank, Rank::First);
    assert_eq!(world.reason(&ip).name(), "Announcing");
    // And last of all is still better than nobody.
    wait(&mut world, 4, &[]);
    assert_eq!(world.lease.as_ref().unwrap().rank, Rank::Last);
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    world.ms(1_000);
    assert_eq!(world.reason(&ip).name(), "Announcing");
}

/// One that elects without ranks would never take what ranks give it.
#[test]
fn ranks_count_only_where_everybody_knows_them() {
    let (mut world, ip) = settled();
    let older = |renewal| LeaseFacts { rank: None, ..mk_peer("peer", renewal, &[]) };
    set(&mut world, unwell("me"));
    for renewal in 1_000..1_070 {
        world.ms(1_000);
        world.feed(Input::Leases(FactsUpdate::Set(older(renewal))));
    }
    assert_eq!(world.lease.as_ref().unwrap().rank, Rank::Last, "it is said all the same");
    assert_eq!(world.reason(&ip).name(), "Announcing");
    world.peer("peer", &[]);
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
}

#[test]
fn another_hardware_address_is_announced_and_nothing_else_is() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let link = |mac| LinkFacts { mac: Some([2, 0, 0, 0, 0, mac]), ..mk_link(ETH0, "eth0") };
    world.feed(Input::Link(FactsUpdate::Set(link(1))));
    world.ms(5_000);
    let said = world.announcements("192.168.1.100");
    world.feed(Input::Link(FactsUpdate::Set(link(1))));
    world.ms(5_000);
    assert_eq!(world.announcements("192.168.1.100"), said);
    world.feed(Input::Link(FactsUpdate::Set(link(2))));
    assert_eq!(world.announcements("192.168.1.100"), said + 1, "at once");
    world.ms(5_000);
    assert_eq!(world.announcements("192.168.1.100"), said + 3, "with its repeats");
    // Through a dump, after lost events, as well.
    let mut dump = world.dump();
    dump.links = vec![link(3)];
    world.feed(Input::Kernel(dump));
    world.ms(5_000);
    assert_eq!(world.announcements("192.168.1.100"), said + 6);
}

#[test]
fn a_refresh_announces_for_as_long_as_it_is_ours() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.ms(5_000);
    let said = world.announcements("192.168.1.100");
    let mut config = world.agent();
    config.garp.refresh = Some(Duration::from_secs(30));
    world.configure(config.clone());
    world.ms(91_000);
    assert_eq!(world.announcements("192.168.1.100"), said + 3);
    config.garp.refresh = None;
    world.configure(config);
    world.ms(91_000);
    assert_eq!(world.announcements("192.168.1.100"), said + 3);
}

#[test]
fn announcements_end_and_begin_with_their_switch() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let mut config = world.agent();
    config.garp.refresh = Some(Duration::from_secs(10));
    world.configure(config.clone());
    world.ms(15_000);
    config.garp.enabled = false;
    world.configure(config.clone());
    let said = world.announcements("192.168.1.100");
    world.ms(60_000);
    assert_eq!(world.announcements("192.168.1.100"), said, "switched off");
    config.garp.enabled = true;
    world.configure(config);
    world.ms(35_000);
    assert_eq!(world.announcements("192.168.1.100"), said + 6, "three, and every ten seconds again");
}

/// What an earlier run announced, and the Service says so, is nothing new.
#[test]
fn a_restart_sends_no_events() {
    let mut service = mk_service("a", &["192.168.1.100"]);
    let slot = AnnouncingSlot { node: node("me"), interface: ifname("eth0") };
    service.slots.insert(vip("192.168.1.100"), slot.clone());
    let world = World::new().listed(vec![service.clone()], vec![]);
    assert_eq!(world.reason("192.168.1.100").name(), "Announcing");
    assert_eq!(world.events(EventKind::AnnouncingLocal), 0);
    // Another's slot: it moved.
    service.slots.insert(vip("192.168.1.100"), AnnouncingSlot { node: node("other"), ..slot });
    let world = World::new().listed(vec![service], vec![]);
    assert_eq!(world.events(EventKind::AnnouncingLocal), 1);
}
