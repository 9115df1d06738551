use super::world::*;
use crate::facts::*;
use crate::messages::*;
use crate::reason::*;

fn mk_remote(ip: &str) -> ServiceFacts {
    mk_service("a", &[ip])
}

/// A world in which 10.100.0.0/24 is remote.
fn remote_world() -> World {
    World::of_groups(vec![mk_group(None)])
}

fn mk_group(aggregation: Option<u8>) -> GroupFacts {
    let ranges = vec![RangeFacts::whole("10.100.0.0/24".parse().unwrap(), aggregation)];
    GroupFacts::of_ranges("default", PoolType::Remote, ranges)
}

#[test]
fn a_remote_address_goes_to_the_dummy_for_ever_on_every_node() {
    let mut world = remote_world().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    world.feed(Input::Groups(FactsUpdate::Set(mk_group(None))));
    world.feed(Input::Services(FactsUpdate::Set(mk_remote("10.100.0.7"))));
    let spec = world.spec("10.100.0.7");
    assert_eq!((spec.index, spec.valid, spec.net.to_string().as_str()), (DUMMY, None, "10.100.0.7/24"));
    assert!(!spec.no_prefix_route);
    assert_eq!(world.reason("10.100.0.7"), Reason::Announcing { interface: ifname("kube-lb0") });
    assert_eq!(world.announcements("10.100.0.7"), 0);
    assert!(world.lease.as_ref().unwrap().announced.is_empty());
}

/// Every node has it; one of them tells the Service, and only if it put it there.
#[test]
fn one_node_tells_of_a_remote_address_once() {
    let ip = "10.100.0.7";
    // The first by name speaks.
    for (peer, events) in [("peer", 1), ("aaa", 0)] {
        let mut world = remote_world().listed(vec![], vec![mk_peer(peer, 1, &[])]);
        world.feed(Input::Services(FactsUpdate::Set(mk_remote(ip))));
        assert!(world.holds(ip));
        assert_eq!(world.events(EventKind::AnnouncingNonLocal), events, "{peer}");
    }
    // Found in the kernel at the start.
    let mut world = remote_world();
    world.list_all_but_services(vec![mk_peer("peer", 1, &[])]);
    world.feed(Input::Link(FactsUpdate::Set(mk_link(DUMMY, "kube-lb0"))));
    let net = format!("{ip}/24");
    world.feed(Input::AddressSet(AddrFacts { ours: true, permanent: true, ..mk_address(DUMMY, &net) }));
    world.feed(Input::Services(FactsUpdate::All(vec![mk_remote(ip)])));
    assert_eq!(world.reason(ip).name(), "Announcing");
    assert_eq!(world.events(EventKind::AnnouncingNonLocal), 0);
}

#[test]
fn an_outage_of_the_api_leaves_remote_addresses_alone() {
    let mut world = remote_world().listed(vec![mk_remote("10.100.0.7")], vec![]);
    world.api = None;
    world.ms(60_000);
    assert!(world.holds("10.100.0.7"));
}

#[test]
fn local_endpoints_decide_here_too() {
    let mut world = remote_world().listed(vec![], vec![]);
    let service = ServiceFacts { only_local_endpoints: true, ..mk_remote("10.100.0.7") };
    let key = service.key.clone();
    world.feed(Input::Services(FactsUpdate::Set(service)));
    assert_eq!(world.reason("10.100.0.7"), Reason::NoEndpoints);
    let slice =
        |on: &str| EndpointFacts { slice: key.clone(), service: key.clone(), nodes: [node(on)].into() };
    world.feed(Input::Endpoints(FactsUpdate::Set(slice("me"))));
    assert!(world.holds("10.100.0.7"));
    world.feed(Input::Endpoints(FactsUpdate::Set(slice("peer"))));
    assert!(!world.holds("10.100.0.7"));
}

#[test]
fn a_changed_aggregation_replaces_the_address() {
    let mut world = remote_world().listed(vec![], vec![]);
    world.feed(Input::Groups(FactsUpdate::Set(mk_group(None))));
    world.feed(Input::Services(FactsUpdate::Set(mk_remote("10.100.0.7"))));
    world.feed(Input::Groups(FactsUpdate::Set(mk_group(Some(32)))));
    let nets: Vec<String> = world.kernel.keys().map(|(_, n)| n.to_string()).collect();
    assert_eq!(nets, ["10.100.0.7/32"]);
}

#[test]
fn a_draining_node_leaves_the_paths_to_the_others_if_there_are_any() {
    let since = "2026-01-01T00:00:00Z".to_owned();
    let mut world = remote_world().listed(vec![mk_remote("10.100.0.7")], vec![]);
    world.feed(Input::Command(Command::Drain { since, force: false }));
    assert!(world.holds("10.100.0.7"));
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("peer"))));
    world.peer("peer", &[]);
    world.feed(Input::Command(Command::Resync));
    assert!(!world.holds("10.100.0.7"));
}

/// The node is 192.168.1.10/24 on eth0.
fn own_net(aggregation: Option<u8>) -> World {
    let ranges = vec![RangeFacts::whole("192.168.1.0/24".parse().unwrap(), aggregation)];
    let group = GroupFacts::of_ranges("default", PoolType::Remote, ranges);
    World::of_groups(vec![group]).listed(vec![mk_remote("192.168.1.200")], vec![])
}

#[test]
fn a_prefix_route_never_hides_the_nodes_own_network() {
    let mut world = own_net(None);
    let reason = world.reason("192.168.1.200");
    let what = HiddenNetwork::OwnAddress { address: vip("192.168.1.10"), interface: ifname("eth0") };
    assert_eq!(reason, Reason::HidesOwnNetwork { net: "192.168.1.0/24".parse().unwrap(), what });
    assert!(!world.holds("192.168.1.200"));
    assert_eq!(world.events(EventKind::AnnouncementFailed), 1);
    // Once the address is another one it is no longer in the way, and the other way round.
    world.feed(Input::AddressGone { index: ETH0, net: "192.168.1.10/24".parse().unwrap() });
    assert!(world.holds("192.168.1.200"));
    world.feed(Input::AddressSet(mk_address(ETH0, "192.168.1.11/24")));
    assert!(!world.holds("192.168.1.200"));
    assert!(own_net(Some(32)).holds("192.168.1.200"), "a host route hides nothing");
}

/// Whatever its mask: with the gateway's address on the node itself there is no way out.
#[test]
fn the_gateways_own_address_is_refused_as_a_host_address_too() {
    let mut world = own_net(Some(32));
    assert!(world.holds("192.168.1.200"));
    let gateway = Some("192.168.1.200".parse().unwrap());
    let route = DefaultRoute { family: crate::ids::Family::V4, metric: 0, index: ETH0, gateway };
    world.feed(Input::DefaultRoutes(vec![route]));
    world.ms(100);
    let what = HiddenNetwork::Gateway { address: vip("192.168.1.200") };
    let net = "192.168.1.200/32".parse().unwrap();
    assert_eq!(world.reason("192.168.1.200"), Reason::HidesOwnNetwork { net, what });
    assert!(!world.holds("192.168.1.200"));
}

#[test]
fn a_prefix_route_never_hides_the_way_out() {
    let mut world = own_net(Some(25));
    assert!(world.holds("192.168.1.200"), "192.168.1.128/25 has no address of the node");
    let gateway = Some("192.168.1.254".parse().unwrap());
    let route = DefaultRoute { family: crate::ids::Family::V4, metric: 0, index: ETH0, gateway };
    world.feed(Input::DefaultRoutes(vec![route]));
    let what = HiddenNetwork::Gateway { address: vip("192.168.1.254") };
    let net = "192.168.1.128/25".parse().unwrap();
    assert_eq!(world.reason("192.168.1.200"), Reason::HidesOwnNetwork { net, what });
    assert!(!world.holds("192.168.1.200"));
}

#[test]
fn an_address_of_no_group_is_served_nowhere() {
    let mut world = World::of_groups(vec![]).listed(vec![mk_remote("192.168.1.200")], vec![]);
    assert_eq!(world.reason("192.168.1.200"), Reason::NotInPool);
    assert_eq!(world.events(EventKind::NoEligibleNodes), 1);
    world.feed(Input::Groups(FactsUpdate::Set(mk_local_group())));
    assert_eq!(world.reason("192.168.1.200"), Reason::Announcing { interface: ifname("eth0") });
    world.feed(Input::Groups(FactsUpdate::Gone("default".to_owned())));
    assert!(world.holds("192.168.1.200"), "a group that goes does not take what it gave");
}
