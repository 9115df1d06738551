//! R14: what was ours when the API server was last heard stays while nobody claims it.

use std::time::Duration;

use super::world::*;
use crate::config::{EngineConfig, FencePolicy, LeaseTimers};
use crate::facts::*;
use crate::ids::InstanceId;
use crate::messages::*;
use crate::reason::*;

pub(super) const IP: &str = "192.168.1.100";

pub(super) fn mk_config(fence: FencePolicy) -> EngineConfig {
    EngineConfig { fence, ..EngineConfig::new(node("me"), InstanceId::new("one").unwrap()) }
}

/// Alone, with these addresses announced, on a segment that it hears.
pub(super) fn serving(ips: &[&str]) -> World {
    let mut world = World::with(mk_config(FencePolicy::Ride)).listed(vec![mk_service("a", ips)], vec![]);
    world.listens(Ok(()));
    world.live(4_000);
    for ip in ips {
        assert_eq!(world.reason(ip).name(), "Announcing");
    }
    world
}

pub(super) fn removals(world: &World) -> usize {
    let removes = |e: &&Effect| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. });
    world.log.iter().filter(removes).count()
}

fn rides(world: &World, ip: &str) -> bool {
    matches!(world.reason(ip), Reason::Riding { .. })
}

#[test]
fn an_address_stays_for_as_long_as_the_api_server_is_away() {
    for ip in [IP, "fd00:1::100"] {
        let mut world = serving(&[ip]);
        world.api = None;
        for _ in 0..600 {
            world.live(1_000);
            assert!(world.holds(ip), "{}: {:?}", world.now, world.reason(ip));
        }
        assert!(rides(&world, ip));
        let picture = world.engine.clone().snapshot(world.now);
        assert_eq!((picture.totals.riding, picture.totals.announcing, picture.counters.rides), (1, 1, 1));
        assert!(picture.riding_since.is_some());
        assert_eq!(removals(&world), 0);
    }
}

/// A refusal is as good as a silence.
#[test]
fn whatever_is_wrong_with_the_api_server() {
    for error in [LeaseError::Timeout, LeaseError::Unreachable("x".into()), LeaseError::Refused("no".into())]
    {
        let mut world = serving(&[IP]);
        world.api = Some(Err(error));
        world.live(60_000);
        assert!(world.holds(IP) && rides(&world, IP));
    }
}

/// Nobody knows when a daemon dies: from then on its kernel has to be done within what a
/// healthy one leaves it.
#[test]
fn a_rider_that_dies_is_ended_by_its_kernel() {
    let timers = mk_config(FencePolicy::Ride).timers;
    for after in (0..20_000).step_by(700) {
        let mut world = serving(&[IP]);
        world.api = None;
        world.live(after);
        let left = world.spec(IP).until.map(|until| world.now.until(until)).unwrap();
        assert!(left <= timers.renew_deadline, "after {after} ms {left:?} are left");
        assert!(left >= Duration::from_millis(700), "after {after} ms {left:?} are left");
        if after > 9_000 {
            assert!(left >= timers.renew_deadline - timers.renew_every(), "enough for a restart: {left:?}");
        }
    }
}

/// Until the renew deadline the kernel is done before anybody else may begin.
#[test]
fn until_the_deadline_the_kernel_fences_as_ever() {
    let mut world = serving(&[IP]);
    let timers = mk_config(FencePolicy::Ride).timers;
    // The second renewal, the first being at once.
    let renewed = world.now - (Duration::from_millis(4_000) - timers.renew_every());
    world.api = None;
    world.live(6_200);
    let until = world.spec(IP).until.unwrap();
    let gone = until + crate::config::kernel_lateness(Duration::from_secs(2));
    assert!(gone < renewed + timers.duration, "{gone} of a Lease renewed by {renewed}");
    assert!(!rides(&world, IP), "the Lease still stands");
}

#[test]
fn the_group_has_the_last_word() {
    let policies = [FencePolicy::Strict, FencePolicy::Ride];
    for configured in policies {
        for said in [None, Some(FencePolicy::Strict), Some(FencePolicy::Ride)] {
            let mut world = World::with(mk_config(configured)).listed(vec![mk_service("a", &[IP])], vec![]);
            world
                .feed(Input::Groups(FactsUpdate::Set(GroupFacts { fence_policy: said, ..mk_local_group() })));
            world.listens(Ok(()));
            world.live(4_000);
            world.api = None;
            world.live(9_000);
            let expected = said.unwrap_or(configured) == FencePolicy::Ride;
            assert_eq!(world.holds(IP), expected, "the daemon says {configured:?}, the group {said:?}");
            assert_eq!(world.reason(IP).name(), if expected { "Riding" } else { "Fenced" });
        }
    }
}

/// Riding rests on hearing claims.
#[test]
fn where_nobody_listens_the_fence_is_strict() {
    let mut world = serving(&[IP]);
    world.listens(Err("no such device".to_owned()));
    world.api = None;
    world.live(8_000);
    assert!(!world.holds(IP));
    assert_eq!(world.reason(IP).name(), "Fenced");
    let mut world = serving(&[IP]);
    world.api = None;
    world.live(20_000);
    assert!(world.holds(IP));
    world.listens(Err("broken".to_owned()));
    assert!(!world.holds(IP), "and so from the moment on that it ends");
    world.listens(Ok(()));
    world.live(5_000);
    assert!(!world.holds(IP), "somebody may have it by now");
}

#[test]
fn what_was_never_ours_is_not_taken() {
    let mut world = World::with(mk_config(FencePolicy::Ride));
    let ip = world.address_won_by("peer", "peer");
    world = world.listed(vec![mk_service("a", &[&ip])], vec![mk_peer("peer", 1, &[])]);
    world.listens(Ok(()));
    world.peer("peer", &[&ip]);
    world.live(4_000);
    world.api = None;
    world.live(60_000);
    assert!(!world.holds(&ip));
    assert_eq!(world.engine.clone().snapshot(world.now).riding_since, None);
}

/// Not one packet of a client is lost, and nothing moves.
#[test]
fn back_from_a_ride_nothing_blinks() {
    for away in [8_000, 12_000, 60_000] {
        let mut world = serving(&[IP, "192.168.1.101", "fd00:1::100"]);
        let announced = world.announcements(IP);
        world.api = None;
        world.live(away);
        world.api = Some(Ok(()));
        world.live(10_000);
        for ip in [IP, "192.168.1.101", "fd00:1::100"] {
            assert!(world.holds(ip));
            assert_eq!(world.reason(ip).name(), "Announcing", "{:?}", world.reason(ip));
        }
        assert_eq!(removals(&world), 0);
        assert!(world.announcements(IP) <= announced + 3, "at most once more");
        assert_eq!(world.engine.clone().snapshot(world.now).riding_since, None);
    }
}

/// The writes answer first, the watches minutes later.
#[test]
fn a_server_that_comes_back_by_halves_takes_nothing() {
    let mut world = serving(&[IP]);
    world.api = None;
    world.live(30_000);
    (world.echo, world.lists) = (false, false);
    world.api = Some(Ok(()));
    world.live(9_000);
    assert!(world.holds(IP) && rides(&world, IP), "{:?}", world.reason(IP));
    assert!(!world.lease.as_ref().unwrap().subnets.is_empty(), "it may be a moment");
    world.live(10_000);
    assert!(world.holds(IP) && rides(&world, IP), "{:?}", world.reason(IP));
    assert!(world.lease.as_ref().unwrap().subnets.is_empty(), "who sees more may have it");
    (world.echo, world.lists) = (true, true);
    world.answer_listings(&Source::ALL);
    world.live(5_000);
    assert_eq!(world.reason(IP).name(), "Announcing", "{:?}", world.reason(IP));
    assert!(!world.lease.as_ref().unwrap().subnets.is_empty());
    assert_eq!(removals(&world), 0);
}

/// The API server goes: its watches a renewal earlier than its writes.
#[test]
fn an_old_picture_is_ridden_through_as_well() {
    let mut world = serving(&[IP]);
    (world.echo, world.lists) = (false, false);
    world.live(20_000);
    assert!(world.holds(IP) && rides(&world, IP), "{:?}", world.reason(IP));
    world.api = None;
    world.live(60_000);
    assert!(world.holds(IP) && rides(&world, IP), "{:?}", world.reason(IP));
    assert_eq!(removals(&world), 0);
}

/// A short step has to be enough for tight timers, too.
#[test]
fn it_works_with_other_timers() {
    for (duration, deadline, retry) in [(5, 3, 1), (60, 40, 10), (15, 10, 2), (300, 200, 10)] {
        let seconds = Duration::from_secs;
        let timers = LeaseTimers {
            duration: seconds(duration),
            renew_deadline: seconds(deadline),
            retry_period: seconds(retry),
        };
        let config = EngineConfig { timers: timers.checked().unwrap(), ..mk_config(FencePolicy::Ride) };
        let mut world = World::with(config).listed(vec![mk_service("a", &[IP])], vec![]);
        world.listens(Ok(()));
        world.live(4_000);
        world.api = None;
        for _ in 0..duration * 4 {
            world.live(1_000);
            assert!(world.holds(IP), "{timers:?}: {} {:?}", world.now, world.reason(IP));
        }
        world.api = Some(Ok(()));
        world.live(duration * 1_000);
        assert_eq!((world.reason(IP).name(), removals(&world)), ("Announcing", 0));
    }
}
