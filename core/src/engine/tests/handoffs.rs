use super::world::*;
use crate::facts::*;
use crate::messages::*;
use crate::reason::*;

/// `me` holds an address, alone; then the better candidate `peer` joins.
fn joined() -> (World, String) {
    let mut world = World::new().listed(vec![], vec![]);
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("peer"))));
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(world.holds(&ip));
    world.peer("peer", &[]);
    (world, ip)
}

#[test]
fn a_better_candidate_gets_it_once_it_says_it_has_it() {
    let (mut world, ip) = joined();
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
    world.ms(1_000);
    assert!(world.holds(&ip), "make before break");
    world.peer("peer", &[&ip]);
    assert!(world.holds(&ip), "a moment longer, for frames in flight");
    world.ms(260);
    assert!(!world.holds(&ip));
    assert_eq!(world.reason(&ip), Reason::NotWinner { winner: node("peer") });
    assert!(world.lease.as_ref().unwrap().announced.is_empty(), "and says so");
}

#[test]
fn who_gives_an_address_away_announces_it_no_more() {
    let (mut world, ip) = joined();
    let said = world.announcements(&ip);
    assert_eq!(said, 1, "repeats are still to come when the peer joins");
    world.ms(400);
    world.peer("peer", &[&ip]);
    world.ms(200);
    assert_eq!(world.announcements(&ip), said, "clients are the peer's now");
    // The peer is gone before we let go: we keep it, and call the clients back.
    world.peer("peer", &[]);
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    assert_eq!(world.reason(&ip).name(), "Announcing");
    assert_eq!(world.announcements(&ip), said + 1);
}

#[test]
fn a_peer_that_never_confirms_is_decided_by_the_deadline() {
    let (mut world, ip) = joined();
    // For the length of its Lease a new peer may not know that it won.
    for _ in 0..15 {
        world.ms(990);
        world.peer("peer", &[]);
    }
    assert!(world.holds(&ip));
    world.ms(250);
    assert!(!world.holds(&ip));
    assert_eq!(world.engine.snapshot(world.now).counters.handoffs_timed_out, 1);
}

#[test]
fn the_new_owner_takes_it_without_dad_and_announces_again_when_the_old_one_let_go() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = (1..999)
        .map(|n| format!("fd00:1::{n:x}"))
        .find(|ip| crate::election::score("me", ip) < crate::election::score("peer", ip))
        .unwrap();
    world.peer("peer", &[&ip]);
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(world.spec(&ip).no_dad, "the duplicate is our own peer");
    assert_eq!(world.announcements(&ip), 1);
    world.ms(5_000);
    world.peer("peer", &[&ip]);
    let before = world.announcements(&ip);
    world.peer("peer", &[]);
    assert_eq!(world.announcements(&ip), before + 1);
}

#[test]
fn without_a_rival_dad_is_done() {
    let world = World::new().listed(vec![mk_service("a", &["fd00:1::f0"])], vec![]);
    let first = world.log.iter().find_map(|e| match e {
        Effect::Apply { op: KernelChange::Put(spec), .. } => Some(spec),
        _ => None,
    });
    assert!(!first.unwrap().no_dad);
}

#[test]
fn a_dead_peers_address_is_taken_when_its_lease_has_run_out() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(9_999);
    assert!(!world.holds(&ip));
    world.ms(1);
    assert!(world.holds(&ip), "noticed by the deadline, not by a resync");
}

#[test]
fn draining_waits_with_the_deadline_until_the_others_can_know() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.api = None;
    let since = "2026-01-01T00:00:00Z".to_owned();
    world.feed(Input::Command(Command::Drain { since: since.clone(), force: false }));
    world.ms(4_000);
    assert!(world.holds(&ip), "nobody was told; the fence decides, not the handoff");
    world.api = Some(Ok(()));
    world.ms(2_000);
    assert_eq!(world.lease.as_ref().unwrap().draining.as_deref(), Some(since.as_str()));
    world.peer("peer", &[&ip]);
    world.ms(300);
    assert!(!world.holds(&ip));
    world.feed(Input::Command(Command::Undrain));
    assert!(world.holds(&ip), "undrained, it is the winner again");
}

#[test]
fn draining_keeps_what_nobody_else_can_take_unless_forced() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let since = "2026-01-01T00:00:00Z".to_owned();
    world.feed(Input::Command(Command::Drain { since: since.clone(), force: false }));
    world.ms(20_000);
    assert!(world.holds("192.168.1.100"));
    assert_eq!(world.reason("192.168.1.100"), Reason::Draining { held: true });
    world.feed(Input::Command(Command::Drain { since, force: true }));
    assert!(!world.holds("192.168.1.100"));
    assert_eq!(world.reason("192.168.1.100"), Reason::NoEligibleNode);
}

#[test]
fn a_vouched_down_peer_is_out_at_once() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(!world.holds(&ip));
    world.feed(Input::Nodes(FactsUpdate::Set(NodeFacts { out_of_service: true, ..mk_node("peer") })));
    assert!(world.holds(&ip));
}

#[test]
fn endpoints_restrict_who_may_win() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("peer", "peer");
    let local = ServiceFacts { only_local_endpoints: true, ..mk_service("a", &[&ip]) };
    let key = local.key.clone();
    world.feed(Input::Services(FactsUpdate::Set(local)));
    assert_eq!(world.reason(&ip), Reason::NoEndpoints);
    let slice =
        |on: &str| EndpointFacts { slice: key.clone(), service: key.clone(), nodes: [node(on)].into() };
    world.feed(Input::Endpoints(FactsUpdate::Set(slice("me"))));
    assert!(world.holds(&ip));
    world.feed(Input::Endpoints(FactsUpdate::Set(slice("peer"))));
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
}

#[test]
fn whether_a_silent_peer_is_dead_is_found_out_at_once() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(5_000);
    world.peer("peer", &[&ip]);
    // Our own renewals go out at 3.3 s steps, whatever the peer's expiry is.
    world.ms(9_999);
    assert!(!world.holds(&ip));
    world.ms(1);
    assert!(world.holds(&ip), "not with our next renewal, which may be seconds away");
}
