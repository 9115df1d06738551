use super::*;

fn key(name: &str) -> ObjectKey {
    ObjectKey::of("web", name).unwrap()
}

fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

fn mk_service(name: &str, vips: &[&str]) -> ServiceFacts {
    ServiceFacts {
        key: key(name),
        vips: vips.iter().map(|v| vip(v)).collect(),
        group: Some("default".to_owned()),
        only_local_endpoints: false,
        prefer_endpoints: false,
        slots: BTreeMap::new(),
    }
}

fn nodes(names: &[&str]) -> BTreeSet<NodeName> {
    names.iter().map(|n| NodeName::new(n).unwrap()).collect()
}

fn mk_slice(name: &str, service: &str, on: &[&str]) -> EndpointFacts {
    EndpointFacts { slice: key(name), service: key(service), nodes: nodes(on) }
}

fn mk_group(subnet: &str, aggregation: Option<u8>) -> GroupFacts {
    let ranges = vec![RangeFacts::whole(subnet.parse().unwrap(), aggregation)];
    GroupFacts::of_ranges("default", PoolType::Local, ranges)
}

#[test]
fn services_come_change_and_go() {
    let mut demands = Demands::default();
    let touched = demands.update_services(FactsUpdate::Set(mk_service("a", &["10.0.0.1", "fd00::1"])));
    assert_eq!(touched.len(), 2);
    assert!(
        demands.update_services(FactsUpdate::Set(mk_service("a", &["10.0.0.1", "fd00::1"]))).is_empty(),
        "no change"
    );
    let touched = demands.update_services(FactsUpdate::Set(mk_service("a", &["10.0.0.2"])));
    assert_eq!(touched, BTreeSet::from([vip("10.0.0.1"), vip("10.0.0.2"), vip("fd00::1")]));
    assert_eq!(demands.of(vip("10.0.0.1")), None);
    let touched = demands.update_services(FactsUpdate::All(vec![mk_service("b", &["10.0.0.3"])]));
    assert_eq!(touched, BTreeSet::from([vip("10.0.0.2"), vip("10.0.0.3")]));
    demands.update_services(FactsUpdate::Gone(key("b")));
    assert_eq!(demands.vips().count(), 0);
}

#[test]
fn a_shared_address_lives_as_long_as_one_service_asks_for_it() {
    let mut demands = Demands::default();
    demands.update_services(FactsUpdate::All(vec![
        mk_service("a", &["10.0.0.1"]),
        mk_service("b", &["10.0.0.1"]),
    ]));
    assert_eq!(demands.of(vip("10.0.0.1")).unwrap().services.len(), 2);
    demands.update_services(FactsUpdate::Gone(key("a")));
    assert_eq!(demands.of(vip("10.0.0.1")).unwrap().services, BTreeSet::from([key("b")]));
}

#[test]
fn local_endpoints_narrow_and_widen_with_the_slices() {
    let mut demands = Demands::default();
    demands.update_services(FactsUpdate::Set(ServiceFacts {
        only_local_endpoints: true,
        ..mk_service("a", &["10.0.0.1"])
    }));
    let restriction = |d: &Demands| d.of(vip("10.0.0.1")).unwrap().restriction;
    assert_eq!(restriction(&demands), Restriction::Nodes(nodes(&[])));
    let touched = demands.update_endpoints(FactsUpdate::All(vec![
        mk_slice("s1", "a", &["n1"]),
        mk_slice("s2", "a", &["n2"]),
        mk_slice("s3", "other", &["n3"]),
    ]));
    assert_eq!(touched, BTreeSet::from([vip("10.0.0.1")]));
    assert_eq!(restriction(&demands), Restriction::Nodes(nodes(&["n1", "n2"])));
    demands.update_endpoints(FactsUpdate::Set(mk_slice("s1", "a", &["n4"])));
    demands.update_endpoints(FactsUpdate::Gone(key("s2")));
    assert_eq!(restriction(&demands), Restriction::Nodes(nodes(&["n4"])));
}

#[test]
fn sharers_with_local_endpoints_meet_on_common_nodes_if_there_are_any() {
    let mut demands = Demands::default();
    let local = |name| ServiceFacts { only_local_endpoints: true, ..mk_service(name, &["10.0.0.1"]) };
    demands.update_services(FactsUpdate::All(vec![local("a"), local("b")]));
    demands.update_endpoints(FactsUpdate::All(vec![
        mk_slice("s1", "a", &["n1", "n2"]),
        mk_slice("s2", "b", &["n2"]),
    ]));
    assert_eq!(demands.of(vip("10.0.0.1")).unwrap().restriction, Restriction::Nodes(nodes(&["n2"])));
    demands.update_endpoints(FactsUpdate::Set(mk_slice("s2", "b", &["n3"])));
    assert_eq!(
        demands.of(vip("10.0.0.1")).unwrap().restriction,
        Restriction::Nodes(nodes(&["n1", "n2", "n3"]))
    );
}

#[test]
fn prefix_lengths_follow_aggregation_then_the_subnet() {
    let mut demands = Demands::default();
    demands.update_services(FactsUpdate::Set(mk_service("a", &["10.0.0.1", "fd00::1"])));
    let eth0 = Some("10.0.0.0/16".parse().unwrap());
    let net = |d: &Demands, v: &str, subnet| d.of(vip(v)).unwrap().net(vip(v), subnet).to_string();
    assert_eq!(net(&demands, "10.0.0.1", eth0), "10.0.0.1/16");
    assert_eq!(net(&demands, "10.0.0.1", None), "10.0.0.1/32", "no group");
    demands.update_groups(FactsUpdate::Set(mk_group("10.0.0.0/24", None)));
    assert_eq!(net(&demands, "10.0.0.1", eth0), "10.0.0.1/16", "the interface's own length");
    assert_eq!(net(&demands, "10.0.0.1", None), "10.0.0.1/24", "remote: the pool's");
    assert_eq!(net(&demands, "fd00::1", None), "fd00::1/128", "no range of the group contains it");
    demands.update_groups(FactsUpdate::Set(mk_group("10.0.0.0/24", Some(32))));
    assert_eq!(net(&demands, "10.0.0.1", eth0), "10.0.0.1/32");
    demands.update_groups(FactsUpdate::Set(mk_group("10.0.0.0/24", Some(200))));
    assert_eq!(net(&demands, "10.0.0.1", eth0), "10.0.0.1/32", "never longer than the family has bits");
}

#[test]
fn affinity_prefers_and_combines() {
    let mut demands = Demands::default();
    demands.update_services(FactsUpdate::Set(ServiceFacts {
        prefer_endpoints: true,
        ..mk_service("a", &["10.0.0.1"])
    }));
    demands.update_endpoints(FactsUpdate::Set(mk_slice("s", "a", &["n1"])));
    let demand = demands.of(vip("10.0.0.1")).unwrap();
    assert_eq!(demand.restriction, Restriction::Prefer(nodes(&["n1"])));
    assert!(demand.permits(&NodeName::new("n9").unwrap()));
    let strict = ServiceFacts { only_local_endpoints: true, ..mk_service("b", &["10.0.0.1"]) };
    demands.update_services(FactsUpdate::Set(strict));
    let demand = demands.of(vip("10.0.0.1")).unwrap();
    assert_eq!(demand.restriction, Restriction::Prefer(nodes(&["n1"])), "b has no endpoint yet: a stays");
    demands.update_endpoints(FactsUpdate::Set(mk_slice("t", "b", &["n2"])));
    let demand = demands.of(vip("10.0.0.1")).unwrap();
    assert_eq!(demand.restriction, Restriction::Both { only: nodes(&["n2"]), prefer: nodes(&["n1"]) });
    assert!(!demand.permits(&NodeName::new("n1").unwrap()));
}

fn mk_range(first: &str, last: &str, subnet: &str) -> RangeFacts {
    RangeFacts {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
        ..RangeFacts::whole(subnet.parse().unwrap(), None)
    }
}

fn group_of(name: &str, created: i64, pool: PoolType, ranges: Vec<RangeFacts>) -> GroupFacts {
    GroupFacts { created, ..GroupFacts::of_ranges(name, pool, ranges) }
}

/// The group an address belongs to, and how that is served.
fn belongs(demands: &Demands, ip: &str) -> (Option<String>, PoolType) {
    let demand = demands.of(vip(ip)).unwrap();
    (demand.group, demand.pool)
}

fn to(group: &str, pool: PoolType) -> (Option<String>, PoolType) {
    (Some(group.to_owned()), pool)
}

#[test]
fn what_a_service_says_of_its_group_moves_no_address_of_another() {
    let mut demands = Demands::default();
    demands.update_groups(FactsUpdate::All(vec![
        group_of("lan", 1, PoolType::Local, vec![mk_range("192.0.2.100", "192.0.2.200", "192.0.2.0/24")]),
        group_of("edge", 2, PoolType::Remote, vec![mk_range("192.0.2.201", "192.0.2.210", "192.0.2.0/24")]),
        GroupFacts { provided: true, ..group_of("netbox", 3, PoolType::Remote, vec![]) },
    ]));
    for mark in ["lan", "edge", "netbox", "nothing"] {
        let group = Some(mark.to_owned());
        let vips = ["192.0.2.130", "192.0.2.205", "192.0.2.7", "198.51.100.1"];
        demands.update_services(FactsUpdate::Set(ServiceFacts { group, ..mk_service("a", &vips) }));
        assert_eq!(belongs(&demands, "192.0.2.130"), to("lan", PoolType::Local), "{mark}");
        assert_eq!(belongs(&demands, "192.0.2.205"), to("edge", PoolType::Remote), "{mark}");
        assert_eq!(
            belongs(&demands, "192.0.2.7"),
            to("lan", PoolType::Local),
            "{mark}: in their subnet only"
        );
        let outside = if mark == "netbox" { to("netbox", PoolType::Remote) } else { (None, PoolType::Local) };
        assert_eq!(belongs(&demands, "198.51.100.1"), outside, "{mark}");
        demands.update_services(FactsUpdate::Gone(key("a")));
    }
}

#[test]
fn the_older_of_two_groups_with_the_same_addresses_has_them() {
    let range = |last: &str| vec![mk_range("192.0.2.100", last, "192.0.2.0/24")];
    let mut demands = Demands::default();
    demands.update_services(FactsUpdate::Set(mk_service("a", &["192.0.2.130"])));
    demands.update_groups(FactsUpdate::Set(group_of("b", 1, PoolType::Local, range("192.0.2.140"))));
    let touched =
        demands.update_groups(FactsUpdate::Set(group_of("a", 2, PoolType::Remote, range("192.0.2.200"))));
    assert!(touched.is_empty());
    assert_eq!(belongs(&demands, "192.0.2.130"), to("b", PoolType::Local));
    let touched =
        demands.update_groups(FactsUpdate::Set(group_of("a", 0, PoolType::Remote, range("192.0.2.200"))));
    assert_eq!(touched, BTreeSet::from([vip("192.0.2.130")]));
    assert_eq!(belongs(&demands, "192.0.2.130"), to("a", PoolType::Remote));
}

#[test]
fn what_a_group_gave_stays_served_when_its_range_goes() {
    let given = group_of("g", 1, PoolType::Remote, vec![mk_range("10.9.0.1", "10.9.0.9", "10.9.0.0/24")]);
    let edited = group_of("g", 1, PoolType::Remote, vec![mk_range("10.8.0.1", "10.8.0.9", "10.8.0.0/24")]);
    let mut demands = Demands::default();
    demands.update_services(FactsUpdate::Set(mk_service("a", &["10.9.0.5"])));
    demands.update_groups(FactsUpdate::Set(given.clone()));
    assert!(demands.update_groups(FactsUpdate::Set(given.clone())).is_empty(), "an echo of its status");
    assert!(demands.update_groups(FactsUpdate::Set(edited.clone())).is_empty());
    assert_eq!(belongs(&demands, "10.9.0.5"), to("g", PoolType::Remote), "while we remember");

    // A process that starts later has the allocator's word for it.
    let mut later = Demands::default();
    later.update_services(FactsUpdate::Set(mk_service("a", &["10.9.0.5"])));
    later.update_groups(FactsUpdate::Set(edited.clone()));
    assert_eq!(belongs(&later, "10.9.0.5"), (None, PoolType::Local));
    let retained = BTreeSet::from([vip("10.9.0.5")]);
    later.update_groups(FactsUpdate::Set(GroupFacts { retained, ..edited }));
    assert_eq!(belongs(&later, "10.9.0.5"), to("g", PoolType::Remote));
    assert_eq!(later.of(vip("10.9.0.5")).unwrap().net(vip("10.9.0.5"), None).to_string(), "10.9.0.5/32");
    later.update_services(FactsUpdate::Gone(key("a")));
    later.update_groups(FactsUpdate::Gone("g".to_owned()));
    later.update_services(FactsUpdate::Set(mk_service("b", &["10.9.0.5"])));
    assert_eq!(belongs(&later, "10.9.0.5"), (None, PoolType::Local), "another Service begins anew");
}

/// `netbox.aggregation`: the prefix length of what the book of another gives.
#[test]
fn an_address_of_a_provider_has_the_length_its_group_asks_for() {
    for (aggregation, v4, v6) in [
        (None, 32, 128),
        (Some(8), 8, 128),
        (Some(24), 24, 128),
        (Some(32), 32, 128),
        (Some(33), 32, 33),
        (Some(64), 32, 64),
        (Some(128), 32, 128),
    ] {
        let mut demands = Demands::default();
        let netbox = group_of("netbox", 1, PoolType::Remote, vec![]);
        demands.update_groups(FactsUpdate::All(vec![GroupFacts { provided: true, aggregation, ..netbox }]));
        let service = mk_service("a", &["198.51.100.1", "2001:db8::1"]);
        demands
            .update_services(FactsUpdate::Set(ServiceFacts { group: Some("netbox".to_owned()), ..service }));
        let length = |ip: &str| {
            let vip: Vip = ip.parse().unwrap();
            demands.of(vip).unwrap().net(vip, None).prefix_len()
        };
        assert_eq!((length("198.51.100.1"), length("2001:db8::1")), (v4, v6), "{aggregation:?}");
    }
}

#[test]
fn of_two_ranges_in_one_subnet_the_one_with_the_address_counts() {
    let ip = |last: u8| std::net::IpAddr::from([10, 0, 0, last]);
    let range = |from, to, aggregation| RangeFacts {
        subnet: "10.0.0.0/24".parse().unwrap(),
        first: ip(from),
        last: ip(to),
        aggregation,
    };
    let mut demands = Demands::default();
    let ranges = vec![range(10, 19, None), range(20, 29, Some(32))];
    demands.update_groups(FactsUpdate::All(vec![GroupFacts::of_ranges("default", PoolType::Local, ranges)]));
    for (last, aggregation) in [(10, None), (19, None), (20, Some(32)), (29, Some(32)), (40, None)] {
        let service = ServiceFacts {
            key: ObjectKey::of("web", "a").unwrap(),
            vips: BTreeSet::from([Vip::new(ip(last))]),
            group: Some("default".to_owned()),
            only_local_endpoints: false,
            prefer_endpoints: false,
            slots: Default::default(),
        };
        demands.update_services(FactsUpdate::All(vec![service]));
        let range = demands.of(Vip::new(ip(last))).unwrap().range.unwrap();
        assert_eq!(range.aggregation, aggregation, "10.0.0.{last}");
    }
}
