//! Several Services on one address.

use super::*;

#[test]
fn one_key_one_address_different_ports() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
    assert_eq!(Ask::of("a").key("k", &[80]).ips(&mut pools), "10.0.0.1");
    let grant = Ask::of("b").key("k", &[443, 8443]).get(&mut pools).unwrap();
    assert_eq!(grant.addresses, [GrantedAddress { ip: vip("10.0.0.1"), how: GrantKind::Shared }]);
    assert_eq!(pools.references(vip("10.0.0.1")), 2);
    assert_eq!(pools.stats(&named("default")).v4.in_use, 1);

    // Another key, or none, does not get in; nor does a port that is taken.
    assert_eq!(Ask::of("c").key("other", &[81]).ips(&mut pools), "10.0.0.2");
    assert_eq!(Ask::of("d").ips(&mut pools), "10.0.0.3");
    let error = Ask::of("e").key("k", &[81, 443]).get(&mut pools).unwrap_err();
    assert_eq!(error.reason(), "port_taken");
    assert!(error.to_string().contains("TCP/443") && error.to_string().contains("web/b"), "{error}");
}

#[test]
fn the_same_number_of_two_protocols_is_two_ports() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
    assert_eq!(Ask::of("tcp").key("dns", &[53]).ips(&mut pools), "10.0.0.1");
    let mut udp = Ask::of("udp").key("dns", &[]);
    udp.terms.ports.insert(Port::new(Protocol::Udp, 53));
    assert_eq!(udp.ips(&mut pools), "10.0.0.1");
}

#[test]
fn a_shared_address_is_free_when_the_last_one_leaves() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
    for (name, port) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_eq!(Ask::of(name).key("k", &[port]).ips(&mut pools), "10.0.0.1");
    }
    let ip = vip("10.0.0.1");
    assert_eq!(pools.release(&svc("a"), ip), ReleaseOutcome::StillHeldBy(2));
    assert_eq!(pools.release(&svc("a"), ip), ReleaseOutcome::NotHeld);
    assert_eq!(pools.release_all(&svc("b")), [(ip, ReleaseOutcome::StillHeldBy(1))]);
    // The port came back with the Service.
    assert_eq!(Ask::of("d").key("k", &[1]).ips(&mut pools), "10.0.0.1");
    assert_eq!(pools.release(&svc("d"), ip), ReleaseOutcome::StillHeldBy(1));
    assert_eq!(Ask::of("alone").ips(&mut pools), "10.0.0.2");
    assert_eq!(pools.release_all(&svc("c")), [(ip, ReleaseOutcome::Freed)]);
    assert_eq!(Ask::of("next").ips(&mut pools), "10.0.0.1");
}

#[test]
fn explicit_sharing_needs_the_key_too() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
    assert_eq!(Ask::of("a").key("k", &[80]).explicit(&["10.0.0.5"]).ips(&mut pools), "10.0.0.5");
    assert_eq!(Ask::of("b").key("k", &[81]).explicit(&["10.0.0.5"]).ips(&mut pools), "10.0.0.5");
    for (ask, reason) in [
        (Ask::of("c").explicit(&["10.0.0.5"]), "in_use"),
        (Ask::of("c").key("z", &[82]).explicit(&["10.0.0.5"]), "in_use"),
        (Ask::of("c").key("k", &[81]).explicit(&["10.0.0.5"]), "port_taken"),
    ] {
        assert_eq!(ask.get(&mut pools).unwrap_err().reason(), reason);
    }
    // The key follows to the address it lives at, in both families.
    assert_eq!(Ask::of("d").key("k", &[83]).ips(&mut pools), "10.0.0.5");
}

#[test]
fn a_key_has_one_address_per_family_and_in_multi_pool_per_range() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9", "10.0.1.1-10.0.1.9", "fd00::1-fd00::9"]);
    let both = Families::Both { first: Family::V4 };
    assert_eq!(Ask::of("a").key("k", &[1]).ips(&mut pools), "10.0.0.1");
    assert_eq!(Ask::of("b").key("k", &[2]).families(both).ips(&mut pools), "10.0.0.1 fd00::1");
    assert_eq!(Ask::of("c").key("k", &[3]).families(both).ips(&mut pools), "10.0.0.1 fd00::1");
    let every = RangePick::EveryRange(&|_| true);
    assert_eq!(Ask::of("d").key("k", &[4]).pick(every).ips(&mut pools), "10.0.0.1 10.0.1.1");
    assert_eq!(Ask::of("e").key("k", &[5]).pick(every).ips(&mut pools), "10.0.0.1 10.0.1.1");
}

#[test]
fn a_key_of_another_group_is_another_key() {
    let mut pools = AddressPools::new();
    pools.set_groups([
        mk_group("default", 0, &["10.0.0.1-10.0.0.9"]),
        mk_group("two", 0, &["10.1.0.1-10.1.0.9"]),
    ]);
    assert_eq!(Ask::of("a").key("k", &[1]).ips(&mut pools), "10.0.0.1");
    assert_eq!(Ask::of("b").key("k", &[1]).group("two").ips(&mut pools), "10.1.0.1");
}

#[test]
fn ports_edited_into_a_clash_keep_the_address_and_say_so() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
    Ask::of("a").key("k", &[80]).ips(&mut pools);
    Ask::of("b").key("k", &[81]).ips(&mut pools);
    let grant = Ask::of("b").key("k", &[80]).get(&mut pools).unwrap();
    assert_eq!(grant.addresses, [GrantedAddress { ip: vip("10.0.0.1"), how: GrantKind::Kept }]);
    let clash = SharingConflict {
        ip: vip("10.0.0.1"),
        services: vec![svc("a"), svc("b")],
        clash: SharingClash::Port(Port::new(Protocol::Tcp, 80)),
    };
    assert_eq!(grant.conflicts, std::slice::from_ref(&clash));
    assert_eq!(pools.conflicts().collect::<Vec<_>>(), [clash]);
    // Edited back: settled, and the old port is free again.
    assert!(Ask::of("b").key("k", &[82]).get(&mut pools).unwrap().conflicts.is_empty());
    assert_eq!(Ask::of("c").key("k", &[81]).ips(&mut pools), "10.0.0.1");
    assert_eq!(pools.conflicts().count(), 0);
}

#[test]
fn blank_keys_are_no_keys() {
    assert_eq!(SharingKey::new("  "), None);
    assert_eq!(SharingKey::new(" k ").unwrap().as_str(), "k");
}

/// Where traffic must stay on the node it arrives at, one node has to have the pods of all.
#[test]
fn local_traffic_shares_only_with_the_same_pods() {
    let pods = |namespace: &str, app: &str| {
        let selector = [("app".to_owned(), app.to_owned())].into();
        Some(PodSet::of(&ObjectKey::of(namespace, "any").unwrap(), &selector))
    };
    let local = |name: &str, port: u16, pods: Option<PodSet>| {
        let mut ask = Ask::of(name).key("k", &[port]);
        ask.terms.pods = pods;
        ask
    };
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
    assert_eq!(local("a", 80, pods("web", "a")).ips(&mut pools), "10.0.0.1");
    assert_eq!(local("same", 81, pods("web", "a")).ips(&mut pools), "10.0.0.1");
    assert_eq!(local("anywhere", 82, None).ips(&mut pools), "10.0.0.1", "any node serves it");
    let by_hand = |name: &str| Some(PodSet::of(&svc(name), &Default::default()));
    for other in [pods("web", "b"), pods("elsewhere", "a"), by_hand("b")] {
        let error = local("b", 83, other).get(&mut pools).unwrap_err();
        assert_eq!(error.reason(), "other_pods");
        assert!(error.to_string().contains("10.0.0.1 is shared with Service web/a"), "{error}");
    }
    pools.release_all(&svc("a"));
    pools.release_all(&svc("same"));
    assert_eq!(local("b", 83, by_hand("b")).ips(&mut pools), "10.0.0.1");
    assert_eq!(local("c", 84, by_hand("c")).get(&mut pools).unwrap_err().reason(), "other_pods");
    assert_eq!(pools.conflicts().count(), 0);
}
