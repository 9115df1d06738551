//! Peers that fall silent, are deleted, or were silent because everybody was.

use super::world::*;
use crate::facts::*;
use crate::ids::InstanceId;
use crate::messages::*;
use crate::reason::*;

/// `peer` holds an address that `me` would have without it.
fn beside_a_holder() -> (World, String) {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(100);
    world.peer("peer", &[&ip]);
    (world, ip)
}

#[test]
fn after_an_outage_the_others_get_the_time_of_a_retry() {
    let (mut world, ip) = beside_a_holder();
    world.api = None;
    world.ms(30_000);
    assert!(!world.holds(&ip));
    world.api = Some(Ok(()));
    world.ms(1_900);
    assert!(!world.holds(&ip), "it may be back a moment after us");
    world.peer("peer", &[&ip]);
    world.ms(9_000);
    assert!(!world.holds(&ip), "it is");
}

#[test]
fn who_is_not_back_by_then_is_dead() {
    let (mut world, ip) = beside_a_holder();
    world.api = None;
    world.ms(30_000);
    world.api = Some(Ok(()));
    // A write within 0.7 s, and 2 s from then.
    world.ms(2_800);
    assert!(world.holds(&ip), "{:?}", world.reason(&ip));
}

#[test]
fn one_that_expired_while_we_saw_gets_no_time() {
    let (mut world, ip) = beside_a_holder();
    world.ms(9_999);
    assert!(!world.holds(&ip));
    world.ms(1);
    assert!(world.holds(&ip));
}

/// It may renew, late but in time, between its fence and its expiry: only a write of ours
/// sent after the expiry tells that we would have seen that.
#[test]
fn an_echo_from_before_its_expiry_does_not_tell_that_a_peer_is_dead() {
    let (mut world, ip) = beside_a_holder();
    // Our own last write that comes back is sent after its fence and before its expiry.
    world.ms(9_000);
    world.feed(Input::Command(Command::Drain { since: "now".into(), force: false }));
    world.feed(Input::Command(Command::Undrain));
    world.echo = false;
    world.ms(1_500);
    assert!(!world.holds(&ip), "nothing came back since it expired");
    world.echo = true;
    world.ms(9_000);
    assert!(world.holds(&ip));
}

/// It renewed while we were cut off, was cut off itself, and its Lease, or its Node, was deleted:
/// it may have its addresses for as long as that last renewal lets it.
#[test]
fn who_is_deleted_while_we_are_blind_is_waited_for() {
    for node_too in [false, true] {
        let (mut world, ip) = beside_a_holder();
        world.api = None;
        world.ms(12_000);
        assert!(!world.holds(&ip));
        if node_too {
            // Its Lease, which nobody has collected yet, tells of the renewal.
            world.feed(Input::Nodes(FactsUpdate::Gone(node("peer"))));
            world.peer("peer", &[&ip]);
        } else {
            world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
        }
        world.api = Some(Ok(()));
        for _ in 0..9 {
            world.ms(1_000);
            assert!(!world.holds(&ip), "a second owner");
        }
        world.ms(4_000);
        assert!(world.holds(&ip), "{:?}", world.reason(&ip));
    }
}

/// Its Node was made anew, and we are cut off from that news.
#[test]
fn the_time_of_a_deleted_node_is_over_only_if_we_would_know_of_a_new_one() {
    let (mut world, ip) = beside_a_holder();
    world.ms(8_900);
    world.feed(Input::Nodes(FactsUpdate::Gone(node("peer"))));
    world.api = None;
    // Past its Lease's end, and before our own fence.
    world.ms(3_000);
    assert!(!world.holds(&ip), "a second owner");
    world.api = Some(Ok(()));
    world.ms(3_000);
    assert!(world.holds(&ip), "{:?}", world.reason(&ip));
}

/// While timers are changed node by node: a peer with a long Lease renews rarely, and is
/// fenced by its own timers, not by ours.
#[test]
fn a_peer_is_judged_by_its_own_timers() {
    let (mut world, ip) = beside_a_holder();
    let long =
        |renewal: u64, ip: &str| LeaseFacts { duration_seconds: 60, ..mk_peer("peer", renewal, &[ip]) };
    world.feed(Input::Leases(FactsUpdate::Set(long(2, &ip))));
    // It is fenced at 40 s by its own timers; by ours, counted back from its expiry, at 57 s.
    world.ms(58_000);
    world.echo = false;
    world.ms(3_000);
    assert!(!world.holds(&ip), "no write of ours since it expired came back");
    world.echo = true;
    world.ms(9_000);
    assert!(world.holds(&ip));
}

#[test]
fn a_lease_deleted_by_somebody_else_is_waited_for() {
    let (mut world, ip) = beside_a_holder();
    world.ms(3_000);
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    assert!(!world.holds(&ip), "its holder may be cut off");
    world.ms(6_990);
    assert!(!world.holds(&ip));
    world.ms(20);
    assert!(world.holds(&ip));
    assert!(!world.engine.snapshot(world.now).members.iter().any(|m| m.node == node("peer")));
}

#[test]
fn a_lease_made_anew_goes_on() {
    let (mut world, ip) = beside_a_holder();
    world.ms(3_000);
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    world.ms(500);
    world.peer("peer", &[]);
    world.ms(500);
    world.peer("peer", &[&ip]);
    world.ms(9_500);
    assert!(!world.holds(&ip));
    let members = world.engine.snapshot(world.now).members;
    let listed = members.get(&node("peer")).and_then(|m| m.announced.clone());
    assert_eq!(listed.unwrap().len(), 1);
}

#[test]
fn who_left_as_it_should_is_out_at_once() {
    let (mut world, ip) = beside_a_holder();
    world.peer("peer", &[]);
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    assert!(world.holds(&ip));
}

#[test]
fn a_deleted_node_is_waited_for_like_a_deleted_lease() {
    let (mut world, ip) = beside_a_holder();
    world.ms(3_000);
    world.feed(Input::Nodes(FactsUpdate::Gone(node("peer"))));
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    world.ms(6_990);
    assert!(!world.holds(&ip));
    world.ms(20);
    assert!(world.holds(&ip));
}

#[test]
fn a_deleted_nodes_daemon_that_lives_says_that_it_let_go() {
    let (mut world, ip) = beside_a_holder();
    world.feed(Input::Nodes(FactsUpdate::Gone(node("peer"))));
    assert!(!world.holds(&ip));
    world.peer("peer", &[]);
    assert!(world.holds(&ip), "nothing to wait for");
}

#[test]
fn a_deleted_nodes_lease_ends_however_often_it_is_renewed() {
    let (mut world, ip) = beside_a_holder();
    world.feed(Input::Nodes(FactsUpdate::Gone(node("peer"))));
    for _ in 0..9 {
        world.ms(1_000);
        world.peer("peer", &[&ip]);
    }
    assert!(!world.holds(&ip));
    world.ms(1_100);
    assert!(world.holds(&ip), "whoever writes it, the Node is gone");
}

#[test]
fn vouched_down_stays_so_when_the_node_is_deleted() {
    let (mut world, ip) = beside_a_holder();
    world.feed(Input::Nodes(FactsUpdate::Set(NodeFacts { out_of_service: true, ..mk_node("peer") })));
    assert!(world.holds(&ip), "at once");
    world.feed(Input::Nodes(FactsUpdate::Gone(node("peer"))));
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    world.ms(1_000);
    assert!(world.holds(&ip));
    assert_eq!(world.reason(&ip), Reason::Announcing { interface: ifname("eth0") });
}

#[test]
fn our_own_node_deleted_the_lease_takes_its_word_back() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.ms(100);
    assert_eq!(world.lease.as_ref().unwrap().announced.len(), 1);
    world.feed(Input::Nodes(FactsUpdate::Gone(node("me"))));
    assert!(!world.holds("192.168.1.100"));
    assert!(world.lease.as_ref().unwrap().announced.is_empty(), "so that nobody waits for us");
    let before = world.log.len();
    world.ms(20_000);
    let writes = world.log[before..].iter().filter(|e| matches!(e, Effect::WriteLease(_))).count();
    assert_eq!(writes, 0, "and no further word: a Node that is gone has no Lease");
}

/// Garbage collection may be faster than the watch that tells us of our Node.
#[test]
fn a_lease_collected_with_our_node_is_written_once_more_to_say_that_we_let_go() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.ms(100);
    assert_eq!(world.lease.as_ref().unwrap().announced.len(), 1);
    let before = world.log.len();
    world.lease = None;
    // The Lease's deletion is seen first, then the Node's; both before anything is answered.
    world.api = None;
    world.feed(Input::Leases(FactsUpdate::Gone(node("me"))));
    world.feed(Input::Nodes(FactsUpdate::Gone(node("me"))));
    assert!(!world.holds("192.168.1.100"));
    world.api = Some(Ok(()));
    world.ms(3_000);
    let last = world.lease.as_ref().expect("a last word");
    assert!(last.announced.is_empty(), "so that nobody waits for us");
    assert_eq!(last.node_uid, "uid-me", "and it is collected in its turn");
    world.lease = None;
    world.feed(Input::Leases(FactsUpdate::Gone(node("me"))));
    let after = world.log.len();
    world.ms(20_000);
    let writes = |log: &[Effect]| log.iter().filter(|e| matches!(e, Effect::WriteLease(_))).count();
    assert!(writes(&world.log[before..after]) >= 1);
    assert_eq!(writes(&world.log[after..]), 0, "one word, not one after the other");
}

#[test]
fn a_stop_says_that_it_let_go_before_the_lease_goes() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let stop = Command::Shutdown { mode: ShutdownMode::Now, since: "now".to_owned() };
    world.feed(Input::Command(stop));
    assert!(world.exited && world.lease.is_none());
    let deleted = world.log.iter().position(|e| *e == Effect::DeleteLease).unwrap();
    let last = world.log[..deleted].iter().rev().find_map(|e| match e {
        Effect::WriteLease(write) => Some(&write.content),
        _ => None,
    });
    assert!(last.unwrap().announced.is_empty());
}

#[test]
fn a_stop_that_cannot_say_so_ends_all_the_same() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.api = None;
    let stop = Command::Shutdown { mode: ShutdownMode::Graceful, since: "now".to_owned() };
    world.feed(Input::Command(stop));
    world.ms(12_000);
    assert!(world.exited && !world.holds("192.168.1.100"));
}

/// It died just before we began to drain: with the deadline nobody would have the address
/// until its Lease has run out.
#[test]
fn a_dead_successor_does_not_get_the_address() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(11_000);
    world.peer("peer", &[]);
    world.ms(10);
    world.peer("peer", &[]);
    world.ms(11_000);
    // Alive again for a while, then silent for good; just then we drain.
    for _ in 0..12 {
        world.peer("peer", &[]);
        world.ms(1_000);
    }
    world.feed(Input::Command(Command::Drain { since: "now".into(), force: false }));
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
    world.ms(8_500);
    assert!(world.holds(&ip), "not to one that was not heard of since");
    world.ms(3_000);
    assert!(world.holds(&ip), "its Lease has run out");
    assert_eq!(world.reason(&ip), Reason::Draining { held: true });
}

#[test]
fn a_live_successor_that_does_not_take_it_is_decided_by_the_deadline() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    for _ in 0..12 {
        world.peer("peer", &[]);
        world.ms(1_000);
    }
    world.feed(Input::Command(Command::Drain { since: "now".into(), force: false }));
    for _ in 0..5 {
        world.ms(1_000);
        assert!(world.holds(&ip));
        world.peer("peer", &[]);
    }
    world.ms(1_100);
    assert!(!world.holds(&ip), "5 s from when it was heard of");
}

#[test]
fn an_older_successor_is_heard_of_as_well() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    let older =
        |n: u64| Input::Leases(FactsUpdate::Set(LeaseFacts { announced: None, ..mk_peer("peer", n, &[]) }));
    world.feed(older(2));
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(2_000);
    let instance = InstanceId::new("peer").unwrap();
    assert_eq!(mk_peer("peer", 1, &[]).instance, Some(instance));
    world.feed(Input::Command(Command::Drain { since: "now".into(), force: false }));
    world.ms(3_000);
    world.feed(older(3));
    world.ms(4_900);
    assert!(world.holds(&ip));
    world.ms(200);
    assert!(!world.holds(&ip));
}
