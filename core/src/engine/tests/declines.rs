//! An address that its winner cannot have goes to the next in line.

use super::world::*;
use crate::facts::*;
use crate::messages::*;
use crate::reason::*;

const NET: &str = "192.168.1.0/24";

/// `me` and the next in line, and an address that `me` wins.
fn mk_pair() -> (World, String) {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.peer("peer", &[]);
    (world, ip)
}

fn declines(world: &World, ip: &str) -> bool {
    world.lease.as_ref().unwrap().declined.contains(&vip(ip))
}

/// Lets time pass while the peer renews and lists these.
fn pass(world: &mut World, seconds: u64, announced: &[&str]) {
    for _ in 0..seconds {
        world.ms(1_000);
        world.peer("peer", announced);
    }
}

fn put_attempts(world: &World, from: usize) -> usize {
    world.log[from..].iter().filter(|e| matches!(e, Effect::Apply { op: KernelChange::Put(_), .. })).count()
}

#[test]
fn what_the_kernel_refuses_for_good_is_left_to_the_next_in_line() {
    let (mut world, ip) = mk_pair();
    world.apply_error = passing("no room");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(1_000);
    assert!(!declines(&world, &ip), "it may pass");
    world.ms(1_000);
    assert!(declines(&world, &ip));
    let Reason::Declined { why, to, .. } = world.reason(&ip) else { panic!("{:?}", world.reason(&ip)) };
    assert_eq!((why.as_str(), to), ("the kernel refused: no room", Some(node("peer"))));
    assert_eq!(world.engine.order(vip(&ip))[0].node, node("peer"), "as every node sees it");

    // Now and then it is tried again; one failure is enough.
    let from = world.log.len();
    pass(&mut world, 300, &[&ip]);
    let tries = put_attempts(&world, from);
    assert!((2..=5).contains(&tries), "{tries} tries in five minutes");
    assert!(declines(&world, &ip));

    world.apply_error = None;
    pass(&mut world, 600, &[&ip]);
    assert!(!declines(&world, &ip) && world.holds(&ip), "{:?}", world.reason(&ip));
    pass(&mut world, 2, &[]);
    assert_eq!(world.reason(&ip), Reason::Announcing { interface: ifname("eth0") });
}

#[test]
fn a_process_that_may_not_change_addresses_does_not_try_five_times() {
    let (mut world, ip) = mk_pair();
    world.apply_error = Some(KernelRefusal::NotPermitted("the daemon needs CAP_NET_ADMIN".to_owned()));
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(20);
    assert_eq!(put_attempts(&world, 0), 1);
    assert!(declines(&world, &ip));
}

#[test]
fn an_operator_need_not_wait_for_the_next_try() {
    let (mut world, ip) = mk_pair();
    world.apply_error = passing("no room");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(2_000);
    assert!(declines(&world, &ip));
    world.apply_error = None;
    world.peer("peer", &[&ip]);
    world.feed(Input::Command(Command::Resync));
    assert!(world.holds(&ip) && !declines(&world, &ip));
}

#[test]
fn nothing_is_declined_in_favour_of_nobody() {
    let (mut world, ip) = mk_pair();
    world.apply_error = passing("no room");
    // Alone, or with a member that would go on electing us.
    let older = LeaseFacts { announced: None, declined: None, ..mk_peer("peer", 2, &[]) };
    for peers in [vec![], vec![older]] {
        let mut world = World::new().listed(vec![], peers);
        world.apply_error = passing("no room");
        world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
        world.ms(9_000);
        assert!(!declines(&world, &ip));
        assert_eq!(world.reason(&ip).name(), "ApplyFailed");
    }
    // The next in line is gone, or has declined as well: we go on trying.
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(2_000);
    assert!(declines(&world, &ip));
    let too = LeaseFacts { declined: Some([vip(&ip)].into()), ..mk_peer("peer", 3, &[]) };
    world.feed(Input::Leases(FactsUpdate::Set(too)));
    world.ms(100);
    assert!(!declines(&world, &ip));
    assert_eq!(world.reason(&ip).name(), "ApplyFailed");
}

#[test]
fn somebody_elses_address_on_the_winner_does_not_keep_it_from_everybody() {
    let (mut world, ip) = mk_pair();
    let net = format!("{ip}/24").parse().unwrap();
    world.feed(Input::AddressSet(mk_address(ETH0, &format!("{ip}/24"))));
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert_eq!(world.reason(&ip), Reason::ForeignAddress { interface: ifname("eth0") });
    pass(&mut world, 4, &[]);
    assert!(!declines(&world, &ip), "somebody may be moving it");
    pass(&mut world, 2, &[]);
    assert!(declines(&world, &ip));
    pass(&mut world, 700, &[&ip]);
    assert!(declines(&world, &ip), "as long as it is there");
    assert!(!world.log.iter().any(|e| matches!(e, Effect::Apply { .. })));
    world.feed(Input::AddressGone { index: ETH0, net });
    world.ms(1_900);
    assert!(declines(&world, &ip), "gained slowly");
    world.ms(200);
    assert!(!declines(&world, &ip) && world.holds(&ip));
}

#[test]
fn a_duplicate_is_looked_for_twice() {
    let (mut world, _) = mk_pair();
    let ip = (1..999)
        .map(|n| format!("fd00:1::{n:x}"))
        .find(|ip| crate::election::score("me", ip) < crate::election::score("peer", ip))
        .unwrap();
    world.dad = Dad::Failed;
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert_eq!(world.reason(&ip).name(), "Duplicate");
    world.ms(4_900);
    assert!(!declines(&world, &ip));
    world.ms(200);
    assert!(declines(&world, &ip));
    assert_eq!(world.reason(&ip).name(), "Declined");
}

#[test]
fn what_a_peer_declines_is_ours() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(!world.holds(&ip));
    let declining = LeaseFacts { declined: Some([vip(&ip)].into()), ..mk_peer("peer", 2, &[]) };
    world.feed(Input::Leases(FactsUpdate::Set(declining)));
    assert!(world.holds(&ip));
    world.peer("peer", &[]);
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") }, "another try of it");
    world.ms(100);
    let again = LeaseFacts { declined: Some([vip(&ip)].into()), ..mk_peer("peer", 3, &[]) };
    world.feed(Input::Leases(FactsUpdate::Set(again)));
    assert!(world.holds(&ip), "never let go of");
    assert!(!world.log.iter().any(|e| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. })));
}

#[test]
fn where_everybody_has_declined_the_others_say_so() {
    let ip = "192.168.1.100";
    let mut world = World::new().listed(vec![mk_service("a", &[ip])], vec![mk_peer("peer", 1, &[])]);
    world.feed(Input::Link(FactsUpdate::Set(LinkFacts { carrier: false, ..mk_link(ETH0, "eth0") })));
    let declining = LeaseFacts { declined: Some([vip(ip)].into()), ..mk_peer("peer", 2, &[]) };
    assert!(declining.subnets.contains(&NET.parse().unwrap()));
    world.feed(Input::Leases(FactsUpdate::Set(declining)));
    assert_eq!(world.reason(ip), Reason::AllDeclined);
}

/// Its group is bad, or gone, and was not when the others read it: they hold the address, and
/// would give it to us.
#[test]
fn what_is_in_no_group_that_we_know_is_left_to_those_who_know_it() {
    let mut world = World::of_groups(vec![]).listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.peer("peer", &[]);
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert_eq!(world.reason(&ip), Reason::NotInPool);
    assert!(declines(&world, &ip), "the peer would let go of it, and we would never take it");
    world.feed(Input::Groups(FactsUpdate::Set(mk_local_group())));
    pass(&mut world, 3, &[&ip]);
    assert!(!declines(&world, &ip));
    assert!(world.holds(&ip), "{:?}", world.reason(&ip));
}

#[test]
fn what_is_in_no_group_is_not_declined_in_favour_of_nobody() {
    let mut world = World::of_groups(vec![]).listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.ms(10_000);
    assert_eq!(world.reason("192.168.1.100"), Reason::NotInPool);
    assert!(!declines(&world, "192.168.1.100"));
}

#[test]
fn a_kernel_that_does_not_answer_is_as_good_as_one_that_refuses() {
    let (mut world, ip) = mk_pair();
    world.busy = true;
    world.feed(Input::Services(FactsUpdate::Set(mk_service("b", &[&ip]))));
    pass(&mut world, 9, &[]);
    assert!(!declines(&world, &ip));
    pass(&mut world, 2, &[]);
    assert!(declines(&world, &ip), "{:?}", world.reason(&ip));
    // The next try is over before the holder's patience is.
    pass(&mut world, 30, &[&ip]);
    let mut tried = 0;
    for _ in 0..20 {
        world.ms(500);
        world.peer("peer", &[&ip]);
        tried = if declines(&world, &ip) { 0 } else { tried + 1 };
        assert!(tried < 8, "the holder lets go after 5 s");
    }
}

/// A change is sent after its address was decided on: its deadline must not be left out.
#[test]
fn a_kernel_that_does_not_answer_is_noticed_by_time_alone() {
    let (mut world, ip) = mk_pair();
    world.busy = true;
    world.feed(Input::Services(FactsUpdate::Set(mk_service("b", &[&ip]))));
    world.ms(5_000);
    world.peer("peer", &[]);
    world.ms(4_999);
    assert!(!declines(&world, &ip));
    world.ms(1);
    assert!(declines(&world, &ip), "{:?}", world.reason(&ip));
}

/// Who has the address lets go of it when the time of a handoff is over.
#[test]
fn a_kernel_that_does_not_answer_keeps_nobody_waiting_who_has_the_address() {
    let (mut world, ip) = mk_pair();
    world.busy = true;
    world.peer("peer", &[&ip]);
    world.feed(Input::Services(FactsUpdate::Set(mk_service("b", &[&ip]))));
    world.ms(2_400);
    assert!(!declines(&world, &ip));
    world.ms(200);
    assert!(declines(&world, &ip), "{:?}", world.reason(&ip));
}

/// The kernel refused to remove it, and ended it by itself.
#[test]
fn refusals_of_an_earlier_time_do_not_count() {
    let (mut world, ip) = mk_pair();
    world.feed(Input::Services(FactsUpdate::Set(mk_service("b", &[&ip]))));
    assert!(world.holds(&ip));
    world.apply_error = passing("Operation not permitted");
    world.feed(Input::Link(FactsUpdate::Set(LinkFacts { carrier: false, ..mk_link(ETH0, "eth0") })));
    pass(&mut world, 8, &[&ip]);
    world.expire();
    assert!(!world.holds(&ip));
    world.apply_error = None;
    world.feed(Input::Link(FactsUpdate::Set(mk_link(ETH0, "eth0"))));
    let before = world.log.len();
    pass(&mut world, 3, &[&ip]);
    let declined = |e: &Effect| matches!(e, Effect::WriteLease(w) if !w.content.declined.is_empty());
    assert!(!world.log[before..].iter().any(declined), "nothing was refused this time");
    assert!(world.holds(&ip));
}
