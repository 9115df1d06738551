use super::world::*;
use crate::facts::*;
use crate::io::*;
use crate::reason::*;

fn mk_remote(ip: &str) -> ServiceFacts {
    ServiceFacts { pool: PoolType::Remote, ..mk_service("a", &[ip]) }
}

fn mk_group(aggregation: Option<u8>) -> GroupFacts {
    let ranges = vec![RangeFacts { subnet: "10.100.0.0/24".parse().unwrap(), aggregation }];
    GroupFacts { name: "default".to_owned(), pool: PoolType::Remote, ranges }
}

#[test]
fn a_remote_address_goes_to_the_dummy_for_ever_on_every_node() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    world.feed(Input::Groups(Update::Set(mk_group(None))));
    world.feed(Input::Services(Update::Set(mk_remote("10.100.0.7"))));
    let spec = world.spec("10.100.0.7");
    assert_eq!((spec.index, spec.valid, spec.net.to_string().as_str()), (DUMMY, None, "10.100.0.7/24"));
    assert!(!spec.no_prefix_route);
    assert_eq!(world.reason("10.100.0.7"), Reason::Announcing { interface: ifname("kube-lb0") });
    assert_eq!(world.announcements("10.100.0.7"), 0);
    assert_eq!(world.events(EventKind::AnnouncingNonLocal), 1);
    assert!(world.lease.as_ref().unwrap().announced.is_empty());
}

#[test]
fn an_outage_of_the_api_leaves_remote_addresses_alone() {
    let mut world = World::new().listed(vec![mk_remote("10.100.0.7")], vec![]);
    world.api = None;
    world.ms(60_000);
    assert!(world.holds("10.100.0.7"));
}

#[test]
fn local_endpoints_decide_here_too() {
    let mut world = World::new().listed(vec![], vec![]);
    let service = ServiceFacts { only_local_endpoints: true, ..mk_remote("10.100.0.7") };
    let key = service.key.clone();
    world.feed(Input::Services(Update::Set(service)));
    assert_eq!(world.reason("10.100.0.7"), Reason::NoEndpoints);
    let slice =
        |on: &str| EndpointFacts { slice: key.clone(), service: key.clone(), nodes: [node(on)].into() };
    world.feed(Input::Endpoints(Update::Set(slice("me"))));
    assert!(world.holds("10.100.0.7"));
    world.feed(Input::Endpoints(Update::Set(slice("peer"))));
    assert!(!world.holds("10.100.0.7"));
}

#[test]
fn a_changed_aggregation_replaces_the_address() {
    let mut world = World::new().listed(vec![], vec![]);
    world.feed(Input::Groups(Update::Set(mk_group(None))));
    world.feed(Input::Services(Update::Set(mk_remote("10.100.0.7"))));
    world.feed(Input::Groups(Update::Set(mk_group(Some(32)))));
    let nets: Vec<String> = world.kernel.keys().map(|(_, n)| n.to_string()).collect();
    assert_eq!(nets, ["10.100.0.7/32"]);
}

#[test]
fn a_draining_node_leaves_the_paths_to_the_others_if_there_are_any() {
    let since = "2026-01-01T00:00:00Z".to_owned();
    let mut world = World::new().listed(vec![mk_remote("10.100.0.7")], vec![]);
    world.feed(Input::Command(Command::Drain { since, force: false }));
    assert!(world.holds("10.100.0.7"));
    world.feed(Input::Nodes(Update::Set(mk_node("peer"))));
    world.peer("peer", &[]);
    world.feed(Input::Command(Command::Resync));
    assert!(!world.holds("10.100.0.7"));
}
