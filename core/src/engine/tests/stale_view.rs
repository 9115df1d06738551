//! What an engine may conclude from a picture that is old, half or second-hand. Each of
//! these was a gap or a second owner in the simulator first.

use super::world::*;
use crate::config::EngineConfig;
use crate::facts::*;
use crate::ids::InstanceId;
use crate::messages::*;
use crate::reason::*;

const IP: &str = "192.168.1.100";

/// A process that starts where an earlier one left an address, with these Leases.
fn restarted(leases: Vec<LeaseFacts>, ip: &str) -> World {
    let old = World::new().listed(vec![mk_service("a", &[ip])], vec![]);
    let mut new = World::with(EngineConfig::new(node("me"), InstanceId::new("two").unwrap()));
    new.kernel = old.kernel.clone();
    new.api = None;
    let new = new.listed(vec![mk_service("a", &[ip])], leases);
    assert_eq!(new.reason(ip), Reason::Pending { missing: PendingCause::Lease });
    new
}

#[test]
fn leftovers_wait_for_our_first_lease_write_and_are_extended_by_it() {
    let mut world = restarted(vec![mk_peer("me", 7, &[IP])], IP);
    assert!(world.holds(IP), "the earlier run's Lease stands");
    world.api = Some(Ok(()));
    let puts = |w: &World| {
        w.log.iter().filter(|e| matches!(e, Effect::Apply { op: KernelChange::Put(_), .. })).count()
    };
    let before = puts(&world);
    world.ms(3_000);
    assert!(world.holds(IP) && puts(&world) > before);
    assert_eq!(world.reason(IP), Reason::Announcing { interface: ifname("eth0") });
}

#[test]
fn leftovers_without_a_lease_go_at_once() {
    assert!(!restarted(vec![], IP).holds(IP), "others may have it");
}

#[test]
fn leftovers_are_not_given_to_a_peer_that_may_be_dead() {
    let ip = World::new().address_won_by("peer", "peer");
    let mut world = restarted(vec![mk_peer("me", 7, &[&ip]), mk_peer("peer", 1, &[&ip])], &ip);
    world.api = Some(Ok(()));
    world.ms(9_000);
    assert!(world.holds(&ip), "its Lease lists the address and nothing was heard of it");
    assert_eq!(world.announcements(&ip), 0, "clients are not drawn away from a node that may live");
    assert!(world.lease.as_ref().unwrap().announced.contains(&vip(&ip)), "and it can know that we have it");
    world.ms(2_000);
    assert_eq!(world.reason(&ip), Reason::Announcing { interface: ifname("eth0") });
    let mut world = restarted(vec![mk_peer("me", 7, &[&ip]), mk_peer("peer", 1, &[&ip])], &ip);
    world.api = Some(Ok(()));
    world.ms(2_500);
    world.peer("peer", &[&ip]);
    world.ms(300);
    assert!(!world.holds(&ip), "it lives");
}

#[test]
fn a_silent_peer_is_dead_only_if_our_own_writes_come_back() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.peer("peer", &[&ip]);
    // The API server goes away for us, and comes back just before we would claim.
    world.api = None;
    world.ms(11_000);
    world.api = Some(Ok(()));
    world.echo = false;
    world.ms(1_500);
    assert!(!world.holds(&ip), "written, and the watch has yet to catch up");
    world.peer("peer", &[&ip]);
    world.echo = true;
    world.ms(9_000);
    assert!(!world.holds(&ip), "it lived all the time");
    world.ms(5_000);
    assert!(world.holds(&ip), "now it is silent, and we would have seen it");
}

#[test]
fn undrained_means_that_the_lease_says_so() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.feed(Input::Command(Command::Drain { since: "now".into(), force: false }));
    world.peer("peer", &[&ip]);
    world.ms(300);
    assert!(!world.holds(&ip));
    world.api = Some(Err(LeaseError::Timeout));
    world.feed(Input::Command(Command::Undrain));
    assert!(!world.holds(&ip), "the others still take us for draining");
    world.api = Some(Ok(()));
    world.ms(1_000);
    assert!(world.holds(&ip));
}

#[test]
fn a_recreated_lease_claims_nothing_before_it_came_back() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.echo = false;
    world.feed(Input::Leases(FactsUpdate::Gone(node("me"))));
    world.ms(1_000);
    assert!(!world.holds(IP), "written again, and who took over meanwhile is not known yet");
    world.echo = true;
    world.ms(4_000);
    assert!(world.holds(IP));
}

#[test]
fn a_deselected_node_hands_over() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    let match_labels = [("role".to_owned(), "edge".to_owned())].into();
    world.feed(Input::Agents(FactsUpdate::All(vec![AgentFacts {
        key: crate::ObjectKey::of("purelb-system", "default").unwrap(),
        selector: Selector { match_labels, ..Selector::default() },
        config: Ok(AgentConfig::default()),
    }])));
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
    assert!(world.lease.as_ref().unwrap().subnets.is_empty());
    world.peer("peer", &[&ip]);
    world.ms(300);
    assert!(!world.holds(&ip));
    assert_eq!(world.reason(&ip), Reason::NotSelected);
}

/// One edit deselects this node and selects another, which has yet to hear of it.
#[test]
fn a_deselected_node_waits_for_who_is_selected_instead() {
    let mut alone = mk_peer("peer", 1, &[]);
    alone.subnets.clear();
    let mut world = World::new().listed(vec![], vec![alone]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(world.holds(&ip), "the other has no subnet");
    world.feed(Input::Agents(FactsUpdate::All(vec![AgentFacts {
        key: crate::ObjectKey::of("purelb-system", "default").unwrap(),
        selector: Selector {
            match_labels: [("role".to_owned(), "edge".to_owned())].into(),
            ..Selector::default()
        },
        config: Ok(AgentConfig::default()),
    }])));
    assert_eq!(world.reason(&ip), Reason::Pending { missing: PendingCause::Successor });
    world.ms(300);
    world.peer("peer", &[]);
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
    assert!(world.holds(&ip));
    world.peer("peer", &[&ip]);
    world.ms(300);
    assert!(!world.holds(&ip));
}

#[test]
fn a_tentative_address_is_no_handoff() {
    let mut world = World::new().listed(vec![], vec![]);
    world.dad = Dad::Running;
    let ip = (1..999)
        .map(|n| format!("fd00:1::{n:x}"))
        .find(|ip| crate::election::score("peer", ip) < crate::election::score("me", ip))
        .unwrap();
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(world.holds(&ip));
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("peer"))));
    world.peer("peer", &[]);
    assert!(!world.holds(&ip), "or the winner's detection would fail");
}

#[test]
fn a_duplicate_that_is_our_peer_is_not_waited_for() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    world.dad = Dad::Failed;
    let ip = (1..999)
        .map(|n| format!("fd00:1::{n:x}"))
        .find(|ip| crate::election::score("me", ip) < crate::election::score("peer", ip))
        .unwrap();
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    assert!(!world.holds(&ip) && matches!(world.reason(&ip), Reason::Duplicate { .. }));
    world.dad = Dad::Passed;
    world.peer("peer", &[&ip]);
    assert!(world.spec(&ip).no_dad);
}

#[test]
fn a_relist_announces_once_more() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.ms(5_000);
    let before = world.announcements(IP);
    let mut own = mk_peer("me", 7, &[IP]);
    own.instance = Some(InstanceId::new("one").unwrap());
    world.feed(Input::Leases(FactsUpdate::All(vec![own])));
    assert_eq!(world.announcements(IP), before + 1);
}

#[test]
fn ours_again_midway_is_announced_again() {
    let mut world = World::new().listed(vec![], vec![]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("peer"))));
    world.ms(2_000);
    let before = world.announcements(&ip);
    let older = LeaseFacts { announced: None, ..mk_peer("peer", 5, &[]) };
    world.feed(Input::Leases(FactsUpdate::Set(older)));
    assert_eq!(world.reason(&ip), Reason::HandingOver { to: node("peer") });
    world.ms(1_000);
    world.feed(Input::Leases(FactsUpdate::Gone(node("peer"))));
    assert!(world.holds(&ip));
    assert_eq!(world.announcements(&ip), before + 1, "the peer took and announced it at once");
}
