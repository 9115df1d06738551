//! R13 and R14: whose claim ends a ride.

use super::ride::*;
use super::segment::{PEER, STRANGER};
use super::world::*;
use crate::config::FencePolicy;
use crate::facts::*;
use crate::messages::*;
use crate::reason::*;
use crate::segment::*;

const NEIGHBOUR: &str = "192.168.1.101";

/// Beside a member that wins nothing of ours, and then without an API server.
fn riding() -> World {
    let mut world = World::with(mk_config(FencePolicy::Ride));
    let peer = |world: &mut World| {
        let renewal = world.now.as_nanos();
        let facts = LeaseFacts {
            macs: Some([PEER].into()),
            subnets: Default::default(),
            ..mk_peer("peer", renewal, &[])
        };
        world.feed(Input::Leases(FactsUpdate::Set(facts)));
    };
    world = world.listed(vec![mk_service("a", &[IP, NEIGHBOUR])], vec![]);
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("peer"))));
    peer(&mut world);
    world.listens(Ok(()));
    world.live(4_000);
    peer(&mut world);
    world.api = None;
    world.live(15_000);
    assert_eq!(world.reason(IP).name(), "Riding");
    world
}

fn claim(world: &mut World, text: &str, mac: HardwareAddr) {
    let at = world.now;
    let kind = SightingKind::Announcement;
    let sighting = SegmentSighting { index: ETH0, address: vip(text), mac, kind, at };
    let report = SegmentReport { sightings: vec![sighting], listened_until: at, overrun: vec![] };
    world.feed(Input::Heard(report));
}

/// There is never nobody, and two for no longer than the linger time.
#[test]
fn a_member_that_claims_it_has_it_after_the_linger_time() {
    let mut world = riding();
    let announced = world.announcements(IP);
    claim(&mut world, IP, PEER);
    assert_eq!(world.reason(IP), Reason::HandingOver { to: node("peer") });
    world.live(200);
    assert!(world.holds(IP), "frames are in flight");
    world.live(100);
    assert!(!world.holds(IP));
    assert_eq!(world.reason(IP), Reason::NotWinner { winner: node("peer") });
    assert!(world.holds(NEIGHBOUR), "what it did not claim stays");
    world.live(30_000);
    assert!(!world.holds(IP) && world.holds(NEIGHBOUR), "nor is it put back");
    assert_eq!(world.announcements(IP), announced, "no client was called back");
    assert_eq!(world.engine.clone().snapshot(world.now).counters.rides_ended_by_claim, 1);
    // With the API server back it is ours again, or the other's, as the Leases say.
    world.api = Some(Ok(()));
    world.live(15_000);
    assert_eq!(world.reason(IP).name(), "Announcing");
}

/// One forged frame takes no address down; two owners do not stay.
#[test]
fn a_stranger_is_heeded_if_it_says_so_again() {
    let mut world = riding();
    claim(&mut world, IP, STRANGER);
    world.live(30_000);
    assert!(world.holds(IP), "{:?}", world.reason(IP));
    claim(&mut world, IP, STRANGER);
    world.live(1_500);
    claim(&mut world, IP, STRANGER);
    world.live(600);
    assert!(!world.holds(IP), "{:?}", world.reason(IP));
}

/// It was told while our Lease was good, and settled then.
#[test]
fn a_claim_from_before_the_ride_says_nothing() {
    let mut world = serving(&[IP]);
    claim(&mut world, IP, STRANGER);
    world.api = None;
    world.live(20_000);
    assert!(world.holds(IP));
}
