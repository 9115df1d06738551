//! Who offers subnets, and with them to serve what others leave to it, is able to.

use std::collections::BTreeSet;
use std::time::Duration;

use super::world::*;
use crate::config::EngineConfig;
use crate::facts::*;
use crate::ids::InstanceId;
use crate::messages::*;
use crate::reason::*;

const IP: &str = "192.168.1.100";

fn offered(world: &World) -> Vec<String> {
    world.lease.as_ref().unwrap().subnets.iter().map(ToString::to_string).collect()
}

fn drain() -> Input {
    Input::Command(Command::Drain { since: "2026-01-01T00:00:00Z".to_owned(), force: false })
}

#[test]
fn until_everything_is_listed_a_new_node_offers_nothing() {
    let mut world = World::new();
    world.list_all_but_services(vec![]);
    world.ms(20_000);
    assert_eq!(offered(&world), [""; 0], "it would win its share and serve none of it");
    world.feed(Input::Services(FactsUpdate::All(vec![mk_service("a", &[IP])])));
    assert_eq!(offered(&world).len(), 2);
    assert!(world.holds(IP));
    assert_eq!(world.events(EventKind::NoEligibleNodes), 0, "nothing was wrong");
}

/// A process that starts where an earlier one left `IP`, and is not told of Services.
fn half_started() -> World {
    let old = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    let mut new = World::with(EngineConfig::new(node("me"), InstanceId::new("two").unwrap()));
    new.kernel = old.kernel.clone();
    let mut before = mk_peer("me", 7, &[IP]);
    before.subnets.insert("10.0.0.0/8".parse().unwrap());
    new.list_all_but_services(vec![before]);
    new
}

#[test]
fn until_everything_is_listed_a_restarted_node_offers_what_it_goes_on_serving() {
    let mut world = half_started();
    assert_eq!(offered(&world), ["192.168.1.0/24"], "of what it offered, what it has and serves");
    world.ms(6_000);
    let extended = world.spec(IP).until.is_some_and(|until| until > world.now + Duration::from_secs(3));
    assert!(world.holds(IP) && extended);
    world.feed(Input::Services(FactsUpdate::All(vec![mk_service("a", &[IP])])));
    assert_eq!(offered(&world).len(), 2);
    assert_eq!(world.reason(IP), Reason::Announcing { interface: ifname("eth0") });
    assert!(!world.log.iter().any(|e| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. })));
}

#[test]
fn a_restarted_node_that_never_gets_its_listings_leaves_its_share_to_others() {
    let mut world = half_started();
    world.ms(10_100);
    let before = world.log.len();
    let ends = world.spec(IP).until.unwrap();
    while world.holds(IP) {
        assert_eq!(offered(&world).len(), 1, "whoever reads that it has the subnet no more takes over");
        world.ms(50);
        world.expire();
    }
    assert!(world.now.since(ends) < Duration::from_millis(100));
    world.ms(100);
    assert_eq!(offered(&world), [""; 0]);
    world.ms(20_000);
    let touched = world.log[before..].iter().any(|e| matches!(e, Effect::Apply { .. }));
    assert!(!touched, "neither removed nor kept alive: the kernel ends it");
}

#[test]
fn a_stale_view_offers_what_the_kernel_has_not_let_go_of() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    (world.echo, world.lists, world.busy) = (false, false, true);
    world.ms(10_500);
    assert_eq!(world.reason(IP), Reason::Fenced { cause: FenceCause::StaleView });
    assert_eq!(offered(&world), ["192.168.1.0/24"], "another one would have it beside us");
    assert_eq!(world.engine.snapshot(world.now).advertised.len(), 1, "status says what the Lease says");
    world.expire();
    world.ms(100);
    assert_eq!(offered(&world), [""; 0]);
    assert!(world.engine.snapshot(world.now).advertised.is_empty());
}

#[test]
fn a_stale_view_offers_nothing_and_is_renewed_all_the_same() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    (world.echo, world.lists) = (false, false);
    world.ms(10_500);
    assert_eq!(world.reason(IP), Reason::Fenced { cause: FenceCause::StaleView });
    assert_eq!(offered(&world), [""; 0], "whoever sees what is going on takes it");
    let renewals = world.engine.snapshot(world.now).counters.renewals;
    world.ms(10_000);
    assert!(world.engine.snapshot(world.now).counters.renewals > renewals);
    (world.echo, world.lists) = (true, true);
    world.ms(3_400);
    assert_eq!(offered(&world).len(), 2);
    assert!(world.holds(IP));
}

#[test]
fn what_a_drained_node_kept_does_not_blink_when_it_is_undrained() {
    for api in [Some(Ok(())), None, Some(Err(LeaseError::Refused("no".to_owned())))] {
        let services = vec![mk_service("a", &[IP, "fd00:1::f0"])];
        let mut world = World::new().listed(services, vec![]);
        world.feed(drain());
        world.ms(10_000);
        assert_eq!(world.reason(IP), Reason::Draining { held: true });
        let before = world.log.len();
        world.api = api;
        world.dad = Dad::Running;
        world.feed(Input::Command(Command::Undrain));
        assert!(world.holds(IP) && world.holds("fd00:1::f0"));
        world.ms(2_000);
        let removed = |e: &Effect| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. });
        assert!(!world.log[before..].iter().any(removed), "{:#?}", &world.log[before..]);
        if world.api == Some(Ok(())) {
            assert_eq!(world.reason(IP), Reason::Announcing { interface: ifname("eth0") });
        }
    }
}

/// The peer speaks the older format, renews, and is next in line.
fn with_an_older_peer() -> (World, String) {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    older_renews(&mut world);
    (world, ip)
}

fn older_renews(world: &mut World) {
    let renewal = world.now.as_nanos();
    let older = LeaseFacts { announced: None, ..mk_peer("peer", renewal, &[]) };
    world.feed(Input::Leases(FactsUpdate::Set(older)));
}

#[test]
fn a_node_that_drains_offers_nothing_to_members_that_cannot_read_it() {
    let (mut world, ip) = with_an_older_peer();
    assert_eq!(offered(&world).len(), 2);
    world.api = None;
    world.feed(drain());
    world.ms(4_000);
    older_renews(&mut world);
    assert!(world.holds(&ip), "the others elect us until they read otherwise");
    world.api = Some(Ok(()));
    world.ms(2_000);
    assert_eq!(offered(&world), [""; 0], "an older member elects by subnets alone");
    assert!(world.lease.as_ref().unwrap().draining.is_some());
    world.ms(3_000);
    older_renews(&mut world);
    assert!(world.holds(&ip), "it gets the time to take it");
    world.ms(2_100);
    assert!(!world.holds(&ip));
    world.feed(Input::Command(Command::Undrain));
    assert_eq!(offered(&world).len(), 2);
    assert!(world.holds(&ip));
}

#[test]
fn a_node_that_drains_among_its_like_says_what_it_has() {
    let (mut world, ip) = with_an_older_peer();
    world.peer("peer", &[]);
    world.feed(drain());
    assert_eq!(offered(&world).len(), 2);
    world.peer("peer", &[&ip]);
    world.ms(300);
    assert!(!world.holds(&ip));
}

fn relists(world: &World, from: usize) -> BTreeSet<Source> {
    let asked = world.log[from..].iter();
    asked.filter_map(|e| if let Effect::Relist(s) = e { Some(*s) } else { None }).collect()
}

#[test]
fn a_silent_watch_of_leases_makes_every_watch_suspect() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    let from = world.log.len();
    (world.echo, world.lists) = (false, false);
    world.ms(5_400);
    assert_eq!(relists(&world, from), [Source::Leases].into(), "the others once the server answers");
    world.echo = true;
    world.answer_listings(&[Source::Leases]);
    assert_eq!(relists(&world, from).len(), 6, "all that is watched");
    world.ms(20_000);
    assert!(world.holds(IP), "a server too busy for listings takes nothing away");
}

/// Fenced because the API server was away; then it answers writes again.
fn back_from_a_fence(lists: bool, echo: bool) -> (World, usize) {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.api = None;
    world.ms(11_000);
    assert!(!world.holds(IP));
    let from = world.log.len();
    (world.api, world.lists, world.echo) = (Some(Ok(())), lists, echo);
    let renewals = |w: &mut World| w.engine.snapshot(w.now).counters.renewals;
    let (before, by) = (renewals(&mut world), world.now + Duration::from_secs(3));
    while renewals(&mut world) == before && world.now < by {
        world.ms(50);
    }
    (world, from)
}

#[test]
fn back_from_a_fence_nothing_is_claimed_before_the_echo() {
    let (mut world, from) = back_from_a_fence(false, false);
    assert_eq!(relists(&world, from).len(), 6, "with the first success");
    for source in Source::ALL.into_iter().filter(|s| *s != Source::Leases) {
        world.answer_listings(&[source]);
    }
    assert!(!world.holds(IP), "an answer does not tell what others did meanwhile");
    world.answer_listings(&[Source::Leases]);
    assert!(world.holds(IP), "the listing shows our renewal");
}

#[test]
fn back_from_a_fence_nothing_is_claimed_before_everything_was_listed() {
    let (mut world, _) = back_from_a_fence(false, true);
    assert!(!world.holds(IP));
    assert_eq!(world.reason(IP).name(), "Pending");
    assert_eq!(offered(&world).len(), 2, "it may take a moment");
    world.ms(2_000);
    assert_eq!(world.reason(IP), Reason::Fenced { cause: FenceCause::StaleView });
    assert_eq!(offered(&world), [""; 0], "it takes too long: others are to have it");
    world.ms(10_000);
    world.answer_listings(&Source::ALL);
    assert!(world.holds(IP));
    assert_eq!(offered(&world).len(), 2);
}

#[test]
fn back_from_a_fence_to_a_deleted_lease_is_back_from_a_fence() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.api = None;
    world.ms(11_000);
    let from = world.log.len();
    (world.api, world.lists) = (Some(Ok(())), false);
    world.feed(Input::Leases(FactsUpdate::Gone(node("me"))));
    world.ms(4_000);
    assert_eq!(relists(&world, from).len(), 6);
    assert!(!world.holds(IP), "Services and endpoints are as old as the fence");
    world.answer_listings(&Source::ALL);
    assert!(world.holds(IP));
}

#[test]
fn the_end_of_a_stale_view_is_not_its_first_echo() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    (world.echo, world.lists) = (false, false);
    world.ms(10_500);
    assert!(!world.holds(IP));
    let from = world.log.len();
    world.echo = true;
    world.ms(3_400);
    assert_eq!(relists(&world, from).len(), 6);
    assert!(!world.holds(IP), "endpoints, Nodes and Services may be as old as the Leases were");
    world.answer_listings(&Source::ALL);
    assert!(world.holds(IP));
}
