//! Which group, which address, and why not.

use super::world::*;
use crate::allocation::*;
use crate::facts::PoolType;
use crate::ids::Family;
use crate::pools::{Families, Port, Protocol};

const NET: &str = "192.0.2.0/24";

fn two_groups() -> World {
    World::new(vec![
        mk_group("default", 1, &[("192.0.2.10-192.0.2.12", NET), ("2001:db8::/64", "2001:db8::/64")]),
        mk_group("other", 2, &[("192.0.2.20-192.0.2.22", NET)]),
    ])
}

#[test]
fn the_default_group_serves_who_names_none() {
    let mut w = two_groups();
    w.apply(mk_service("ns/a"));
    assert_eq!(w.ips("ns/a"), "192.0.2.10");
    let a = w.get("ns/a");
    assert_eq!((a.from.as_deref(), a.pool_type, a.marked), (Some("default"), Some(PoolType::Local), true));
    assert_eq!(w.told("ns/a"), "AddressAssigned");
    assert_eq!(w.events, ["AddressAssigned: ns/a"]);
    assert_eq!(w.message("ns/a"), "Assigned 192.0.2.10 from ServiceGroup default");
}

#[test]
fn explicit_then_annotation_then_namespace_then_default() {
    let mut w = two_groups();
    w.book.set_groups(
        [
            mk_group("default", 1, &[("192.0.2.10-192.0.2.12", NET)]),
            mk_group("other", 2, &[("192.0.2.20-192.0.2.22", NET)]),
            for_namespaces(mk_group("bound", 3, &[("192.0.2.30-192.0.2.32", NET)]), &["team"]),
        ],
        Default::default(),
    );
    w.apply(mk_service("team/plain"));
    w.apply(of_group(mk_service("team/named"), "other"));
    w.apply(asking_for(mk_service("team/explicit"), &["192.0.2.11"]));
    w.apply(mk_service("else/plain"));
    assert_eq!(w.ips("team/plain"), "192.0.2.30");
    assert_eq!(w.ips("team/named"), "192.0.2.20");
    assert_eq!(w.ips("team/explicit"), "192.0.2.11");
    assert_eq!(w.ips("else/plain"), "192.0.2.10");
}

#[test]
fn of_several_groups_of_a_namespace_the_default_one_then_the_oldest() {
    let pool = |n: u8| format!("192.0.2.{n}0-192.0.2.{n}5");
    let (p1, p2, p3) = (pool(1), pool(2), pool(3));
    let older = for_namespaces(mk_group("older", 1, &[(&p1, NET)]), &["team"]);
    let newer = for_namespaces(mk_group("newer", 2, &[(&p2, NET)]), &["team"]);
    let mut w = World::new(vec![older.clone(), newer.clone()]);
    w.apply(mk_service("team/a"));
    assert_eq!(w.get("team/a").from.as_deref(), Some("older"));
    let mut chosen = for_namespaces(mk_group("chosen", 3, &[(&p3, NET)]), &["team"]);
    chosen.namespace_default = true;
    w.set_groups(vec![older, newer, chosen]);
    w.apply(mk_service("team/b"));
    assert_eq!(w.get("team/b").from.as_deref(), Some("chosen"));
    assert_eq!(w.get("team/a").from.as_deref(), Some("older"), "who has an address keeps it");
}

#[test]
fn a_boundary_holds_in_both_directions() {
    let mut w = World::new(vec![
        mk_group("default", 1, &[("192.0.2.10-192.0.2.12", NET)]),
        enforced(mk_group("closed", 2, &[("192.0.2.20-192.0.2.22", NET)]), &["team"]),
    ]);
    w.apply(mk_service("team/inside"));
    assert_eq!(w.ips("team/inside"), "192.0.2.20");
    w.apply(of_group(mk_service("else/annotated"), "closed"));
    w.apply(asking_for(mk_service("else/explicit"), &["192.0.2.21"]));
    w.apply(of_group(mk_service("team/out"), "default"));
    w.apply(asking_for(mk_service("team/reaching"), &["192.0.2.11"]));
    for key in ["else/annotated", "else/explicit"] {
        assert_eq!((w.ips(key), w.told(key)), (String::new(), "!GroupClosed".into()), "{key}");
    }
    for key in ["team/out", "team/reaching"] {
        assert_eq!((w.ips(key), w.told(key)), (String::new(), "!NamespaceBound".into()), "{key}");
    }
    assert_eq!(w.events.iter().filter(|e| e.starts_with("AllocationFailed")).count(), 4);
}

#[test]
fn every_refusal_says_why_once() {
    let mut w = two_groups();
    w.apply(mk_service("ns/holder"));
    let in_use = asking_for(mk_service("ns/in-use"), &["192.0.2.10"]);
    let mut bad = mk_service("ns/bad");
    bad.explicit = Err("purelb.io/addresses: \"x\" is not an IP address".into());
    let mut wrong_family = asking_for(mk_service("ns/family"), &["2001:db8::5"]);
    wrong_family.families = Families::One(Family::V4);
    let mut dual = of_group(mk_service("ns/dual"), "other");
    dual.families = Families::Both { first: Family::V4 };
    let table = [
        (in_use, "!InUse", "192.0.2.10 is in use by Service ns/holder"),
        (bad, "!BadAddresses", "is not an IP address"),
        (asking_for(mk_service("ns/out"), &["198.51.100.1"]), "!OutOfPool", "198.51.100.1 is not in a pool"),
        (
            of_group(asking_for(mk_service("ns/elsewhere"), &["192.0.2.20"]), "default"),
            "!OutOfPool",
            "belongs to ServiceGroup purelb-system/other",
        ),
        (wrong_family, "!WrongFamily", "IPv4 only"),
        (of_group(mk_service("ns/nogroup"), "nope"), "!NoSuchGroup", "purelb-system/nope does not exist"),
        (of_group(mk_service("ns/badname"), "a/b/c"), "!BadGroupName", "is not the name"),
        (dual, "!NoRange", "no IPv6 pool"),
    ];
    for (ask, reason, words) in table {
        let key = ask.key.to_string();
        w.apply(ask);
        assert_eq!((w.ips(&key), w.told(&key)), (String::new(), reason.to_owned()), "{key}");
        assert!(w.message(&key).contains(words), "{key}: {}", w.message(&key));
        let said = || format!("AllocationFailed: {key}");
        assert_eq!(w.events.iter().filter(|e| **e == said()).count(), 1);
    }
    let before = (w.events.len(), w.writes);
    w.restart();
    w.rest();
    assert_eq!((w.events.len(), w.writes), before, "nobody is told twice");
}

#[test]
fn families_as_the_service_says() {
    let mut w = two_groups();
    let with = |key: &str, families| ServiceAsk { families, ..mk_service(key) };
    w.apply(with("ns/v6", Families::One(Family::V6)));
    w.apply(with("ns/both", Families::Both { first: Family::V6 }));
    w.apply(of_group(with("ns/either", Families::Either { first: Family::V6 }), "other"));
    assert_eq!(w.ips("ns/v6"), "2001:db8::1", "the subnet-router anycast address is nobody's");
    assert_eq!(w.ips("ns/both"), "2001:db8::2,192.0.2.10", "primary family first");
    assert_eq!(w.ips("ns/either"), "192.0.2.20", "one family is all the group has");
    assert_eq!(w.told("ns/either"), "AddressAssigned");
    let v6 = w.book.stats(&name("default")).v6;
    assert_eq!((v6.size, v6.in_use), ((1 << 64) - 1, 2));
}

#[test]
fn single_and_dual_stack_both_ways() {
    let mut w = two_groups();
    w.apply(mk_service("ns/a"));
    w.edit("ns/a", |a| a.families = Families::Both { first: Family::V4 });
    assert_eq!(w.ips("ns/a"), "192.0.2.10,2001:db8::1");
    w.edit("ns/a", |a| a.families = Families::One(Family::V6));
    assert_eq!(w.ips("ns/a"), "2001:db8::1");
    w.apply(mk_service("ns/b"));
    assert_eq!(w.ips("ns/b"), "192.0.2.10", "the IPv4 address was given back");
    w.edit("ns/a", |a| a.families = Families::One(Family::V4));
    assert_eq!(w.ips("ns/a"), "192.0.2.11");
}

#[test]
fn shared_addresses_by_key_and_port() {
    let mut w = two_groups();
    w.apply(sharing(mk_service("ns/a"), "k", 80));
    w.apply(sharing(mk_service("ns/b"), "k", 443));
    w.apply(sharing(mk_service("ns/c"), "k", 80));
    w.apply(sharing(mk_service("ns/d"), "other", 80));
    assert_eq!((w.ips("ns/a"), w.ips("ns/b")), ("192.0.2.10".into(), "192.0.2.10".into()));
    assert_eq!((w.told("ns/c"), w.ips("ns/c")), ("!PortTaken".into(), String::new()));
    assert_eq!(w.ips("ns/d"), "192.0.2.11");
    w.edit("ns/a", |a| a.terms.ports = [Port::new(Protocol::Tcp, 8080)].into());
    assert_eq!((w.told("ns/c"), w.ips("ns/c")), ("AddressAssigned".into(), "192.0.2.10".into()));
}

#[test]
fn strangers_are_never_touched_and_their_addresses_never_given() {
    let mut w = two_groups();
    let mut foreign = mk_service("ns/foreign");
    (foreign.whose, foreign.held, foreign.marked) = (ServiceOwner::Foreign, vec![vip("192.0.2.10")], true);
    foreign.terms = crate::pools::SharingTerms::alone();
    w.apply(foreign.clone());
    w.apply(mk_service("ns/a"));
    assert_eq!(w.get("ns/foreign"), &foreign);
    assert_eq!(w.ips("ns/a"), "192.0.2.11");
}

#[test]
fn a_service_that_is_no_load_balancer_any_more_gives_back() {
    let mut w = two_groups();
    w.apply(mk_service("ns/a"));
    w.edit("ns/a", |a| (a.whose, a.held) = (ServiceOwner::NoLoadBalancer, Vec::new()));
    let a = w.get("ns/a");
    assert!(!a.marked && a.from.is_none());
    assert_eq!(w.events.last().unwrap(), "AddressReleased: ns/a");
    w.apply(mk_service("ns/b"));
    assert_eq!(w.ips("ns/b"), "192.0.2.10");
    w.edit("ns/b", |b| (b.whose, b.held) = (ServiceOwner::Foreign, vec![vip("203.0.113.1")]));
    assert!(!w.get("ns/b").marked, "our mark comes off when another class takes over");
}

#[test]
fn balanced_takes_from_the_emptiest_range() {
    let mut w = World::new(vec![balanced(mk_group(
        "default",
        1,
        &[("192.0.2.10-192.0.2.19", NET), ("198.51.100.10-198.51.100.19", "198.51.100.0/24")],
    ))]);
    for key in ["ns/a", "ns/b", "ns/c"] {
        w.apply(mk_service(key));
    }
    assert_eq!(
        [w.ips("ns/a"), w.ips("ns/b"), w.ips("ns/c")],
        ["192.0.2.10", "198.51.100.10", "192.0.2.11"].map(String::from)
    );
}

#[test]
fn marks_are_put_right_whatever_else_the_service_asks_for() {
    let mut w = two_groups();
    w.apply(mk_service("ns/a"));
    let forge = |ask: &mut ServiceAsk| {
        ask.pool_type = Some(PoolType::Remote);
        ask.from = Some("other".to_owned());
        ask.skip_ipv6_dad = true;
    };
    let right = |w: &World| {
        let a = w.get("ns/a");
        assert_eq!(a.pool_type, Some(PoolType::Local));
        assert_eq!((a.from.as_deref(), a.skip_ipv6_dad), (Some("default"), false));
        assert_eq!(w.ips("ns/a"), "192.0.2.10");
    };
    w.edit("ns/a", forge);
    right(&w);
    // Together with a request that can only be refused.
    let impossible = [
        Ok(vec![vip("203.0.113.9")]),
        Err("nonsense".to_owned()),
        Ok(vec![vip("192.0.2.10"), vip("192.0.2.11")]),
    ];
    for explicit in impossible {
        w.edit("ns/a", |ask| {
            forge(ask);
            ask.explicit = explicit;
        });
        assert!(w.told("ns/a").starts_with('!'), "{}", w.told("ns/a"));
        right(&w);
    }
    w.edit("ns/a", |ask| {
        forge(ask);
        ask.group = Some("nothing".to_owned());
    });
    right(&w);
}

#[test]
fn who_was_given_nothing_carries_no_marks() {
    let mut w = two_groups();
    let mut ask = asking_for(mk_service("ns/a"), &["203.0.113.9"]);
    (ask.marked, ask.from, ask.pool_type) = (true, Some("default".into()), Some(PoolType::Remote));
    w.apply(ask);
    let a = w.get("ns/a");
    assert_eq!((a.marked, a.from.as_deref(), a.pool_type), (false, None, None));
}
