//! R14: what ends a ride.

use super::ride::*;
use super::world::*;
use crate::facts::*;
use crate::ids::InstanceId;
use crate::messages::*;

fn riding() -> World {
    let mut world = serving(&[IP]);
    world.api = None;
    world.live(15_000);
    assert_eq!(world.reason(IP).name(), "Riding");
    world
}

#[test]
fn a_lease_that_was_deleted_or_taken_ends_it_at_once() {
    let mut world = riding();
    let other = LeaseFacts { instance: Some(InstanceId::new("other").unwrap()), ..mk_peer("me", 99, &[]) };
    world.feed(Input::Leases(FactsUpdate::Set(other)));
    assert!(!world.holds(IP), "{:?}", world.reason(IP));
    assert_eq!(world.reason(IP).name(), "Fenced");
    world.live(10_000);
    assert!(!world.holds(IP));
    let mut world = riding();
    world.feed(Input::Leases(FactsUpdate::Gone(node("me"))));
    assert!(!world.holds(IP), "{:?}", world.reason(IP));
}

/// And so does the cluster's word on the Node.
#[test]
fn a_node_that_is_gone_or_out_of_service_does_not_ride() {
    let gone = Input::Nodes(FactsUpdate::Gone(node("me")));
    let out = Input::Nodes(FactsUpdate::Set(NodeFacts { out_of_service: true, ..mk_node("me") }));
    for input in [gone, out] {
        let mut world = riding();
        world.feed(input);
        assert!(!world.holds(IP), "{:?}", world.reason(IP));
        assert_eq!(world.reason(IP).name(), "OutOfService");
    }
}

#[test]
fn a_stop_takes_it_down() {
    let mut world = riding();
    world.feed(Input::Command(Command::Shutdown { mode: ShutdownMode::Now, since: "now".to_owned() }));
    world.live(3_000);
    assert!(!world.holds(IP) && world.exited);
    let mut world = riding();
    world.feed(Input::Command(Command::Shutdown { mode: ShutdownMode::Leave, since: "now".to_owned() }));
    assert!(world.holds(IP) && world.exited, "the next process adopts it");
}

/// The kernel has what it was given. A link that is back in time goes on, one that is not
/// leaves nothing that could answer beside whoever took over.
#[test]
fn without_a_carrier_it_is_given_no_more_life() {
    let carrier = |carrier| Input::Link(FactsUpdate::Set(LinkFacts { carrier, ..mk_link(ETH0, "eth0") }));
    let mut world = riding();
    world.feed(carrier(false));
    world.live(1_000);
    world.feed(carrier(true));
    world.listens(Ok(()));
    world.live(60_000);
    assert!(world.holds(IP), "a short loss");
    world.feed(carrier(false));
    world.live(6_000);
    assert!(!world.holds(IP), "{:?}", world.reason(IP));
    world.feed(carrier(true));
    world.listens(Ok(()));
    world.live(10_000);
    assert!(!world.holds(IP));
}

/// Another has it meanwhile, and the handoff that was under way goes on where it was.
#[test]
fn back_from_a_ride_another_winner_gets_it_by_handoff() {
    let mut world = riding();
    let ip = IP;
    let better =
        (0..50).map(|n| format!("n{n}")).find(|n| World::new().address_is_won_by(n, "me", ip)).unwrap();
    world.api = Some(Ok(()));
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node(&better))));
    world.peer(&better, &[]);
    world.live(2_000);
    assert!(world.holds(ip), "it has not said that it has it: {:?}", world.reason(ip));
    assert_eq!(world.reason(ip).name(), "HandingOver");
    world.peer(&better, &[ip]);
    world.live(400);
    assert!(!world.holds(ip));
}

/// What the API server says when it is back counts, make before break or not.
#[test]
fn a_service_that_is_gone_goes_when_everything_is_known() {
    let mut world = riding();
    world.api = Some(Ok(()));
    world.feed(Input::Services(FactsUpdate::All(vec![])));
    world.live(3_000);
    assert!(!world.holds(IP));
}

/// A rider has only so much time: what is refused is tried again.
#[test]
fn a_refused_lifetime_is_given_again() {
    let mut world = riding();
    world.apply_error = Some(KernelRefusal::Passing("busy".to_owned()));
    world.live(3_000);
    world.apply_error = None;
    world.live(30_000);
    assert!(world.holds(IP));
}

/// Its kernel has ended what it was given, and somebody may have it: nothing is put back
/// before that is known.
#[test]
fn a_process_that_was_stopped_asks_its_kernel_first() {
    for (before, stopped) in [(15_000, 8_000), (2_000, 9_000), (6_000, 3_000)] {
        let mut world = serving(&[IP, "192.168.1.101"]);
        world.api = None;
        world.live(before);
        world.stop_for(stopped);
        let said = world.log.len();
        world.feed(Input::Tick);
        let puts =
            world.log[said..].iter().filter(|e| matches!(e, Effect::Apply { op: KernelChange::Put(_), .. }));
        assert_eq!(puts.count(), 0, "stopped for {stopped} ms after {before} ms");
        world.live(20_000);
        assert!(!world.holds(IP), "{:?}", world.reason(IP));
    }
    let mut world = riding();
    world.stop_for(3_000);
    world.feed(Input::Tick);
    world.live(20_000);
    assert!(world.holds(IP), "it was back in time");
}
