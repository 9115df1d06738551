//! What is timed: the way of an address to a node, handoffs, and how close the fence came.

use std::time::Duration;

use super::world::*;
use crate::messages::*;
use crate::reason::*;
use crate::snapshot::{EngineTimes, FenceView};

const IP: &str = "192.168.1.100";

fn times(world: &World) -> EngineTimes {
    world.engine.clone().snapshot(world.now).times
}

/// `me` holds an address that the better candidate `peer` is to have.
fn giving() -> (World, String) {
    let mut world = World::new().listed(vec![], vec![]);
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("peer"))));
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.peer("peer", &[]);
    (world, ip)
}

#[test]
fn the_way_of_an_address_is_timed_once() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.ms(20_000);
    let seen = times(&world);
    assert_eq!((seen.to_kernel.count(), seen.to_announced.count()), (1, 1), "renewals are no arrivals");
    assert!(world.engine.snapshot(world.now).vips.iter().all(|v| v.announced));
    // Somebody takes it away: putting it back is another way.
    let spec = world.spec(IP).clone();
    world.kernel.remove(&(spec.index, spec.net));
    world.feed(Input::AddressGone { index: spec.index, net: spec.net });
    world.ms(100);
    assert_eq!(world.reason(IP).name(), "Announcing");
    assert_eq!(times(&world).to_kernel.count(), 2);
}

#[test]
fn a_confirmed_handoff_is_timed_to_the_word_of_the_other() {
    let (mut world, ip) = giving();
    world.ms(700);
    world.peer("peer", &[&ip]);
    world.ms(300);
    let seen = times(&world);
    assert_eq!((seen.handoff_confirmed.count(), seen.handoff_confirmed.sum), (1, 700_000));
    assert_eq!((seen.handoff_timed_out.count(), seen.handoff_abandoned.count()), (0, 0));
}

#[test]
fn a_handoff_that_is_not_needed_any_more_was_abandoned() {
    let (mut world, ip) = giving();
    world.ms(400);
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    assert_eq!(world.reason(&ip).name(), "Announcing");
    let seen = times(&world);
    assert_eq!((seen.handoff_abandoned.count(), seen.handoff_abandoned.sum), (1, 400_000));
    assert_eq!(seen.handoff_confirmed.count(), 0);
}

#[test]
fn how_close_the_fence_came_is_known_after_the_renewal() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.ms(20_000);
    let calm = times(&world).fence_margin;
    assert!(calm.count() >= 5 && calm.counts[..9].iter().all(|n| *n == 0), "about half is left: {calm:?}");
    world.api = None;
    world.ms(6_000);
    assert!(world.holds(IP));
    world.api = Some(Ok(()));
    world.ms(1_500);
    let close = times(&world).fence_margin;
    assert!(close.counts[..6].iter().sum::<u64>() >= 1, "{close:?}");
    assert!(!matches!(world.reason(IP), Reason::Fenced { .. }));
}

/// The timer is set a moment after the step, when a picture has been drawn: a fence that
/// fell in between must not be overslept until something else happens.
#[test]
fn a_fence_that_fell_since_the_last_step_is_still_a_deadline() {
    let mut w = World::new().listed(vec![mk_service("web", &["192.168.1.100"])], vec![]);
    w.ms(100);
    assert!(w.holds("192.168.1.100"));
    w.api = None;
    let fence = match w.engine.snapshot(w.now).fence {
        FenceView::Healthy { until } => until,
        other => panic!("{other:?}"),
    };
    w.pass(w.now.until(fence) - Duration::from_millis(1));
    w.now = fence + Duration::from_millis(3);
    assert!(w.engine.deadline(w.now).is_some_and(|at| at <= w.now), "{:?}", w.engine.deadline(w.now));
    w.feed(Input::Tick);
    assert!(!w.holds("192.168.1.100"));
    assert!(w.engine.deadline(w.now).is_none_or(|at| at > w.now), "once acted upon, it is over");
}

#[test]
fn so_is_a_picture_that_grew_too_old() {
    let mut w = World::new().listed(vec![mk_service("web", &["192.168.1.100"])], vec![]);
    w.ms(100);
    (w.echo, w.lists) = (false, false);
    w.ms(3_400);
    let sent = w.now;
    w.ms(6_500);
    assert!(w.holds("192.168.1.100"));
    w.now = sent + Duration::from_secs(7);
    assert!(w.engine.deadline(w.now).is_some_and(|at| at <= w.now));
    w.feed(Input::Tick);
    assert!(!w.holds("192.168.1.100"));
}
