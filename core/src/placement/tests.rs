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
        pool: PoolType::Local,
        group: Some("default".to_owned()),
        only_local_endpoints: false,
        prefer_endpoints: false,
        skip_ipv6_dad: false,
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
    let ranges = vec![RangeFacts { subnet: subnet.parse().unwrap(), aggregation }];
    GroupFacts { name: "default".to_owned(), pool: PoolType::Local, ranges }
}

#[test]
fn services_come_change_and_go() {
    let mut demands = Demands::default();
    let touched = demands.update_services(Update::Set(mk_service("a", &["10.0.0.1", "fd00::1"])));
    assert_eq!(touched.len(), 2);
    assert!(
        demands.update_services(Update::Set(mk_service("a", &["10.0.0.1", "fd00::1"]))).is_empty(),
        "no change"
    );
    let touched = demands.update_services(Update::Set(mk_service("a", &["10.0.0.2"])));
    assert_eq!(touched, BTreeSet::from([vip("10.0.0.1"), vip("10.0.0.2"), vip("fd00::1")]));
    assert_eq!(demands.of(vip("10.0.0.1")), None);
    let touched = demands.update_services(Update::All(vec![mk_service("b", &["10.0.0.3"])]));
    assert_eq!(touched, BTreeSet::from([vip("10.0.0.2"), vip("10.0.0.3")]));
    demands.update_services(Update::Gone(key("b")));
    assert_eq!(demands.vips().count(), 0);
}

#[test]
fn a_shared_address_lives_as_long_as_one_service_asks_for_it() {
    let mut demands = Demands::default();
    demands
        .update_services(Update::All(vec![mk_service("a", &["10.0.0.1"]), mk_service("b", &["10.0.0.1"])]));
    assert_eq!(demands.of(vip("10.0.0.1")).unwrap().services.len(), 2);
    demands.update_services(Update::Gone(key("a")));
    assert_eq!(demands.of(vip("10.0.0.1")).unwrap().services, BTreeSet::from([key("b")]));
}

#[test]
fn local_endpoints_narrow_and_widen_with_the_slices() {
    let mut demands = Demands::default();
    demands.update_services(Update::Set(ServiceFacts {
        only_local_endpoints: true,
        ..mk_service("a", &["10.0.0.1"])
    }));
    let restriction = |d: &Demands| d.of(vip("10.0.0.1")).unwrap().restriction;
    assert_eq!(restriction(&demands), Restriction::Nodes(nodes(&[])));
    let touched = demands.update_endpoints(Update::All(vec![
        mk_slice("s1", "a", &["n1"]),
        mk_slice("s2", "a", &["n2"]),
        mk_slice("s3", "other", &["n3"]),
    ]));
    assert_eq!(touched, BTreeSet::from([vip("10.0.0.1")]));
    assert_eq!(restriction(&demands), Restriction::Nodes(nodes(&["n1", "n2"])));
    demands.update_endpoints(Update::Set(mk_slice("s1", "a", &["n4"])));
    demands.update_endpoints(Update::Gone(key("s2")));
    assert_eq!(restriction(&demands), Restriction::Nodes(nodes(&["n4"])));
}

#[test]
fn sharers_with_local_endpoints_meet_on_common_nodes_if_there_are_any() {
    let mut demands = Demands::default();
    let local = |name| ServiceFacts { only_local_endpoints: true, ..mk_service(name, &["10.0.0.1"]) };
    demands.update_services(Update::All(vec![local("a"), local("b")]));
    demands.update_endpoints(Update::All(vec![
        mk_slice("s1", "a", &["n1", "n2"]),
        mk_slice("s2", "b", &["n2"]),
    ]));
    assert_eq!(demands.of(vip("10.0.0.1")).unwrap().restriction, Restriction::Nodes(nodes(&["n2"])));
    demands.update_endpoints(Update::Set(mk_slice("s2", "b", &["n3"])));
    assert_eq!(
        demands.of(vip("10.0.0.1")).unwrap().restriction,
        Restriction::Nodes(nodes(&["n1", "n2", "n3"]))
    );
}

#[test]
fn prefix_lengths_follow_aggregation_then_the_subnet() {
    let mut demands = Demands::default();
    demands.update_services(Update::Set(mk_service("a", &["10.0.0.1", "fd00::1"])));
    let eth0 = Some("10.0.0.0/16".parse().unwrap());
    let net = |d: &Demands, v: &str, subnet| d.of(vip(v)).unwrap().net(vip(v), subnet).to_string();
    assert_eq!(net(&demands, "10.0.0.1", eth0), "10.0.0.1/16");
    assert_eq!(net(&demands, "10.0.0.1", None), "10.0.0.1/32");
    demands.update_groups(Update::Set(mk_group("10.0.0.0/24", None)));
    assert_eq!(net(&demands, "10.0.0.1", eth0), "10.0.0.1/16", "the interface's own length");
    assert_eq!(net(&demands, "10.0.0.1", None), "10.0.0.1/24", "remote: the pool's");
    assert_eq!(net(&demands, "fd00::1", None), "fd00::1/128", "no range of the group contains it");
    demands.update_groups(Update::Set(mk_group("10.0.0.0/24", Some(32))));
    assert_eq!(net(&demands, "10.0.0.1", eth0), "10.0.0.1/32");
    demands.update_groups(Update::Set(mk_group("10.0.0.0/24", Some(200))));
    assert_eq!(net(&demands, "10.0.0.1", eth0), "10.0.0.1/32", "never longer than the family has bits");
}

#[test]
fn affinity_prefers_and_combines() {
    let mut demands = Demands::default();
    demands.update_services(Update::Set(ServiceFacts {
        prefer_endpoints: true,
        ..mk_service("a", &["10.0.0.1"])
    }));
    demands.update_endpoints(Update::Set(mk_slice("s", "a", &["n1"])));
    let demand = demands.of(vip("10.0.0.1")).unwrap();
    assert_eq!(demand.restriction, Restriction::Prefer(nodes(&["n1"])));
    assert!(demand.permits(&NodeName::new("n9").unwrap()));
    let strict = ServiceFacts { only_local_endpoints: true, ..mk_service("b", &["10.0.0.1"]) };
    demands.update_services(Update::Set(strict));
    let demand = demands.of(vip("10.0.0.1")).unwrap();
    assert_eq!(demand.restriction, Restriction::Prefer(nodes(&["n1"])), "b has no endpoint yet: a stays");
    demands.update_endpoints(Update::Set(mk_slice("t", "b", &["n2"])));
    let demand = demands.of(vip("10.0.0.1")).unwrap();
    assert_eq!(demand.restriction, Restriction::Both { only: nodes(&["n2"]), prefer: nodes(&["n1"]) });
    assert!(!demand.permits(&NodeName::new("n1").unwrap()));
}
