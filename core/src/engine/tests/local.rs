use std::time::Duration;

use super::world::*;
use crate::facts::*;
use crate::messages::*;
use crate::reason::*;

#[test]
fn a_lone_node_announces_what_its_subnets_contain() {
    let world = World::new().listed(vec![mk_service("a", &["192.168.1.100", "fd00:1::f0"])], vec![]);
    for ip in ["192.168.1.100", "fd00:1::f0"] {
        assert_eq!(world.reason(ip), Reason::Announcing { interface: ifname("eth0") });
        assert_eq!(world.announcements(ip), 1);
    }
    assert_eq!(world.spec("192.168.1.100").net.to_string(), "192.168.1.100/24");
    let lease = world.lease.as_ref().unwrap();
    assert_eq!(lease.announced.len(), 2, "the Lease says what is held and announced");
    assert_eq!(lease.subnets.len(), 2);
    assert!(world.engine.ready());
}

#[test]
fn nothing_is_done_on_half_a_picture() {
    let mut world = World::new();
    world.list_all_but_services(vec![]);
    assert!(world.lease.is_some(), "the Lease does not wait for Services");
    let leftover = mk_address(ETH0, "192.168.1.77/24");
    world.feed(Input::AddressSet(AddrFacts { ours: true, permanent: false, ..leftover }));
    world.ms(20_000);
    let touched = |e: &Effect| {
        matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. } | Effect::Announce { .. })
    };
    assert!(!world.log.iter().any(touched), "{:#?}", world.log);
    world.feed(Input::Services(FactsUpdate::All(vec![])));
    assert!(world.log.iter().any(touched), "once the picture is whole, leftovers are swept");
}

#[test]
fn lifetimes_end_at_the_fence_and_are_extended_by_every_renewal() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100", "fd00:1::f0"])], vec![]);
    assert_eq!(world.spec("192.168.1.100").until, Some(world.now + Duration::from_secs(7)));
    assert_eq!(world.spec("fd00:1::f0").preferred, Some(0), "never a source address by itself");
    assert!(world.spec("192.168.1.100").no_prefix_route);
    let before = world.log.len();
    world.ms(3_400);
    let extended = world.log[before..]
        .iter()
        .filter(|e| matches!(e, Effect::Apply { op: KernelChange::Put(_), .. }))
        .count();
    assert_eq!(extended, 2);
    assert_eq!(world.announcements("192.168.1.100"), 3, "the repeats of the schedule and no more");
}

#[test]
fn an_announcement_is_for_its_moment_and_not_past_the_fence() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let renewed = world.now;
    let until = |world: &World| {
        world.log.iter().rev().find_map(|e| match e {
            Effect::Announce { until, .. } => Some(*until),
            _ => None,
        })
    };
    assert_eq!(until(&world), Some(renewed + Duration::from_secs(1)));
    world.api = None;
    world.ms(6_500);
    world.feed(Input::Command(Command::Resync));
    assert_eq!(until(&world), Some(renewed + Duration::from_secs(7)));
}

#[test]
fn at_the_renew_deadline_everything_goes_and_recovery_brings_it_back() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.ms(3_400);
    let sent = world.now;
    world.api = None;
    world.ms(6_800);
    assert!(world.holds("192.168.1.100"), "not before the deadline");
    world.ms(300);
    assert!(!world.holds("192.168.1.100"), "{sent} + 7 s < {}", world.now);
    assert!(matches!(world.reason("192.168.1.100"), Reason::Fenced { cause: FenceCause::Expired { .. } }));
    world.api = Some(Err(LeaseError::Refused("no".to_owned())));
    world.ms(5_000);
    assert!(!world.holds("192.168.1.100"));
    world.api = Some(Ok(()));
    world.ms(1_000);
    assert!(world.holds("192.168.1.100"), "back within a second of the API server");
}

#[test]
fn a_deleted_lease_withdraws_at_once_and_is_made_anew() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let before = world.log.len();
    world.feed(Input::Leases(FactsUpdate::Gone(node("me"))));
    let removed = |e: &Effect| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. });
    let created = |e: &Effect| matches!(e, Effect::WriteLease(w) if w.mode == LeaseMode::Create);
    let log = &world.log[before..];
    assert!(log.iter().any(removed) && log.iter().any(created), "{log:#?}");
    assert!(world.holds("192.168.1.100"));
}

#[test]
fn somebody_elses_address_is_neither_touched_nor_announced() {
    let mut world = World::new().listed(vec![], vec![]);
    world.feed(Input::AddressSet(mk_address(ETH0, "192.168.1.100/24")));
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &["192.168.1.100"]))));
    assert_eq!(world.reason("192.168.1.100"), Reason::ForeignAddress { interface: ifname("eth0") });
    assert_eq!(world.events(EventKind::AnnouncementFailed), 1);
    assert!(!world.log.iter().any(|e| matches!(e, Effect::Apply { .. })));
    let net = "192.168.1.100/24".parse().unwrap();
    world.feed(Input::AddressGone { index: ETH0, net });
    assert!(world.holds("192.168.1.100"), "once it is gone the address is ours to announce");
}

#[test]
fn an_address_removed_by_hand_comes_back() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let net = "192.168.1.100/24".parse().unwrap();
    world.kernel.remove(&(ETH0, net));
    world.feed(Input::AddressGone { index: ETH0, net });
    assert!(world.holds("192.168.1.100"));
    assert_eq!(world.engine.snapshot(world.now).counters.recoveries, 1);
    assert_eq!(world.announcements("192.168.1.100"), 2, "and is announced anew");
}

#[test]
fn a_refusal_of_the_kernel_is_visible_and_tried_again() {
    let mut world = World::new().listed(vec![], vec![]);
    world.apply_error = passing("no room");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &["192.168.1.100"]))));
    world.ms(1_000);
    let Reason::ApplyFailed { error, attempt, .. } = world.reason("192.168.1.100") else {
        panic!("{:?}", world.reason("192.168.1.100"));
    };
    assert_eq!(error, "no room");
    assert!((3..8).contains(&attempt), "with back-off: {attempt}");
    assert_eq!(world.events(EventKind::AnnouncementFailed), 1, "once, not per attempt");
    world.apply_error = None;
    world.ms(10_000);
    assert!(world.holds("192.168.1.100"));
}

#[test]
fn a_lost_carrier_withdraws_at_once_and_leaves_the_lease() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.feed(Input::Link(FactsUpdate::Set(LinkFacts { carrier: false, ..mk_link(ETH0, "eth0") })));
    assert!(!world.holds("192.168.1.100"));
    assert!(world.lease.as_ref().unwrap().subnets.is_empty());
    assert_eq!(world.reason("192.168.1.100"), Reason::NoEligibleNode);
    assert_eq!(world.events(EventKind::NoEligibleNodes), 1);
    world.feed(Input::Link(FactsUpdate::Set(mk_link(ETH0, "eth0"))));
    world.ms(1_900);
    assert!(!world.holds("192.168.1.100"));
    world.ms(200);
    assert!(world.holds("192.168.1.100"));
}

#[test]
fn an_address_outside_every_subnet_says_why() {
    let world = World::new().listed(vec![mk_service("a", &["10.9.9.9"])], vec![]);
    assert_eq!(world.reason("10.9.9.9"), Reason::NoEligibleNode);
    assert_eq!(world.events(EventKind::NoEligibleNodes), 1);
}

#[test]
fn duplicate_detection_is_waited_for_and_believed() {
    let mut world = World::new();
    world.dad = Dad::Running;
    let mut world = world.listed(vec![mk_service("a", &["fd00:1::f0"])], vec![]);
    assert_eq!(world.reason("fd00:1::f0"), Reason::Pending { missing: PendingCause::DuplicateDetection });
    world.ms(1_000);
    assert_eq!(world.announcements("fd00:1::f0"), 0);
    world.dad = Dad::Failed;
    let failed = world.shown(&world.spec("fd00:1::f0").clone());
    world.feed(Input::AddressSet(failed));
    assert!(matches!(world.reason("fd00:1::f0"), Reason::Duplicate { .. }));
    assert!(!world.holds("fd00:1::f0"), "an address that failed is taken off");
    world.dad = Dad::Passed;
    world.ms(4_900);
    assert!(!world.holds("fd00:1::f0"));
    world.ms(200);
    assert!(world.holds("fd00:1::f0"), "and tried again later");
    assert_eq!(world.announcements("fd00:1::f0"), 1);
}

#[test]
fn the_slot_on_the_service_is_claimed_once_per_change() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let slots = |w: &World| w.log.iter().filter(|e| matches!(e, Effect::WriteSlot { .. })).count();
    assert_eq!(slots(&world), 1);
    let with_slot = |who: &str| {
        let slot = AnnouncingSlot { node: node(who), interface: ifname("eth0") };
        ServiceFacts { slots: [(vip("192.168.1.100"), slot)].into(), ..mk_service("a", &["192.168.1.100"]) }
    };
    world.feed(Input::Services(FactsUpdate::Set(with_slot("me"))));
    world.ms(10_000);
    assert_eq!(slots(&world), 1);
    world.feed(Input::Services(FactsUpdate::Set(with_slot("thief"))));
    assert_eq!(slots(&world), 2);
    assert_eq!(world.engine.snapshot(world.now).counters.slot_steals, 1);
}

#[test]
fn a_node_out_of_service_holds_nothing() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.feed(Input::Nodes(FactsUpdate::Set(NodeFacts { out_of_service: true, ..mk_node("me") })));
    assert!(!world.holds("192.168.1.100"));
    assert_eq!(world.reason("192.168.1.100"), Reason::OutOfService);
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("me"))));
    assert!(world.holds("192.168.1.100"));
    world.feed(Input::Nodes(FactsUpdate::Gone(node("me"))));
    assert!(!world.holds("192.168.1.100"));
}

#[test]
fn a_silent_watch_makes_us_list_again_and_then_stand_aside() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let relists = |w: &World| w.log.iter().filter(|e| **e == Effect::Relist(Source::Leases)).count();
    // From here on renewals succeed and nothing comes back, whatever we ask.
    (world.echo, world.lists) = (false, false);
    world.ms(3_400);
    world.ms(1_900);
    assert_eq!(relists(&world), 0);
    world.ms(100);
    assert_eq!(relists(&world), 1);
    world.ms(4_800);
    assert!(world.holds("192.168.1.100"));
    world.ms(200);
    assert!(!world.holds("192.168.1.100"));
    assert_eq!(world.reason("192.168.1.100"), Reason::Fenced { cause: FenceCause::StaleView });
    (world.echo, world.lists) = (true, true);
    world.ms(3_400);
    assert!(world.holds("192.168.1.100"), "the next renewal that comes back ends it");
}
