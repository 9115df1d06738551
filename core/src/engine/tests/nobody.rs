//! What is said of an address that no node can have (R11).

use super::world::*;
use crate::facts::*;
use crate::messages::*;
use crate::reason::*;

const NOBODYS: &str = "203.0.113.7";
const LOCAL: &str = "192.168.1.100";

fn said(world: &World) -> Vec<String> {
    let all = world.log.iter().filter_map(|e| match e {
        Effect::Event(e) if e.kind == EventKind::NoEligibleNodes => Some(e.message.clone()),
        _ => None,
    });
    all.collect()
}

#[test]
fn one_that_could_not_serve_anything_is_not_waited_for() {
    // Selected by no LBNodeAgent: its own reason is another one, so it says nothing.
    let bystander = LeaseFacts { subnets: Default::default(), ..mk_peer("aaa", 1, &[]) };
    // Of the older kind: it knows no such event.
    let older = LeaseFacts { announced: None, ..mk_peer("bbb", 1, &[]) };
    let mut world = World::new().listed(vec![], vec![bystander, older]);
    for last in 1..20 {
        let ip = format!("203.0.113.{last}");
        world.feed(Input::Services(FactsUpdate::Set(mk_service(&format!("s{last}"), &[&ip]))));
    }
    assert_eq!(said(&world).len(), 19, "one event for each");
}

#[test]
fn the_next_one_says_it_when_the_one_to_say_it_is_gone() {
    let mut world = World::new().listed(vec![mk_service("a", &[NOBODYS])], vec![mk_peer("aaa", 1, &[])]);
    world.ms(2_000);
    assert!(said(&world).is_empty(), "aaa says it");
    world.feed(Input::Leases(FactsUpdate::Gone(node("aaa"))));
    world.ms(11_000);
    assert_eq!(said(&world).len(), 1);
    world.ms(60_000);
    assert_eq!(said(&world).len(), 1, "once per change");
}

#[test]
fn a_lack_of_endpoints_is_said_when_it_lasts() {
    let mut world = World::new().listed(vec![], vec![]);
    let service = ServiceFacts { only_local_endpoints: true, ..mk_service("a", &[LOCAL]) };
    let key = service.key.clone();
    let slice = |on: &[&str]| {
        let nodes = on.iter().map(|n| node(n)).collect();
        Input::Endpoints(FactsUpdate::Set(EndpointFacts { slice: key.clone(), service: key.clone(), nodes }))
    };
    world.feed(Input::Services(FactsUpdate::Set(service)));
    assert_eq!(world.reason(LOCAL), Reason::NoEndpoints);
    world.ms(4_000);
    world.feed(slice(&["me"]));
    world.feed(slice(&[]));
    world.ms(4_900);
    assert!(said(&world).is_empty(), "pods were exchanged");
    world.ms(200);
    assert_eq!(said(&world), [format!("No node can announce {LOCAL}: {}", Reason::NoEndpoints)]);
}

#[test]
fn selectors_that_leave_nobody_are_said() {
    let mut world = World::new().listed(vec![mk_service("a", &[LOCAL])], vec![]);
    world.feed(Input::Agents(FactsUpdate::All(vec![AgentFacts {
        key: crate::ObjectKey::of("purelb-system", "other").unwrap(),
        selector: Selector {
            match_labels: [("zone".to_owned(), "b".to_owned())].into(),
            ..Selector::default()
        },
        config: Ok(AgentConfig::default()),
    }])));
    world.ms(6_000);
    assert_eq!(world.reason(LOCAL), Reason::NotSelected);
    assert_eq!(said(&world), [format!("No node can announce {LOCAL}: no LBNodeAgent selects a live node")]);
}

#[test]
fn a_node_that_is_not_selected_is_silent_while_another_is() {
    let mut world = World::new().listed(vec![mk_service("a", &[LOCAL])], vec![mk_peer("zzz", 1, &[])]);
    world.feed(Input::Agents(FactsUpdate::All(vec![AgentFacts {
        key: crate::ObjectKey::of("purelb-system", "other").unwrap(),
        selector: Selector {
            match_labels: [("zone".to_owned(), "b".to_owned())].into(),
            ..Selector::default()
        },
        config: Ok(AgentConfig::default()),
    }])));
    world.peer("zzz", &[LOCAL]);
    world.ms(3_000);
    assert_eq!((world.reason(LOCAL), said(&world).len()), (Reason::NotSelected, 0));
}
