//! What users change later, and what edits of groups must not do.

use super::world::*;
use crate::allocation::*;
use crate::ids::Family;
use crate::pools::{Families, PodSet};

const NET: &str = "192.0.2.0/24";

fn w() -> World {
    World::new(vec![
        mk_group("default", 1, &[("192.0.2.10-192.0.2.12", NET)]),
        mk_group("other", 2, &[("192.0.2.20-192.0.2.22", NET)]),
    ])
}

#[test]
fn other_explicit_addresses_move_the_service() {
    let mut w = w();
    w.apply(mk_service("ns/a"));
    w.edit("ns/a", |a| a.explicit = Ok(vec![vip("192.0.2.12")]));
    assert_eq!(w.ips("ns/a"), "192.0.2.12");
    w.edit("ns/a", |a| a.explicit = Ok(vec![vip("192.0.2.21")]));
    assert_eq!((w.ips("ns/a"), w.get("ns/a").from.as_deref()), ("192.0.2.21".into(), Some("other")));
    w.edit("ns/a", |a| a.explicit = Ok(Vec::new()));
    assert_eq!(w.ips("ns/a"), "192.0.2.21", "asking for nothing keeps what is there");
    assert_eq!(w.events, vec!["AddressAssigned: ns/a"; 3]);
}

#[test]
fn an_explicit_address_that_cannot_be_had_costs_nothing() {
    let mut w = w();
    w.apply(mk_service("ns/a"));
    w.apply(mk_service("ns/b"));
    w.edit("ns/b", |b| b.explicit = Ok(vec![vip("192.0.2.10")]));
    assert_eq!((w.ips("ns/b"), w.told("ns/b")), ("192.0.2.11".into(), "!InUse".into()));
    assert!(w.message("ns/b").ends_with("keeps 192.0.2.11"), "{}", w.message("ns/b"));
    w.delete("ns/a");
    assert_eq!((w.ips("ns/b"), w.told("ns/b")), ("192.0.2.10".into(), "AddressAssigned".into()));
}

#[test]
fn another_group_only_with_re_evaluate() {
    let mut w = w();
    w.apply(mk_service("ns/a"));
    w.edit("ns/a", |a| a.group = Some("other".into()));
    assert_eq!(w.ips("ns/a"), "192.0.2.10");
    w.edit("ns/a", |a| a.re_evaluate = true);
    let a = w.get("ns/a");
    assert_eq!(
        (w.ips("ns/a"), a.from.as_deref(), a.re_evaluate),
        ("192.0.2.20".into(), Some("other"), false)
    );
    w.apply(mk_service("ns/b"));
    assert_eq!(w.ips("ns/b"), "192.0.2.10", "the old address is free");
}

#[test]
fn re_evaluate_waits_where_it_cannot_be_obeyed() {
    let mut w = World::new(vec![
        mk_group("default", 1, &[("192.0.2.10", NET)]),
        mk_group("other", 2, &[("192.0.2.20", NET)]),
    ]);
    w.apply(mk_service("ns/a"));
    w.apply(of_group(mk_service("ns/b"), "other"));
    w.edit("ns/a", |a| (a.group, a.re_evaluate) = (Some("other".into()), true));
    assert_eq!((w.ips("ns/a"), w.told("ns/a")), ("192.0.2.10".into(), "!Exhausted".into()));
    w.delete("ns/b");
    assert_eq!((w.ips("ns/a"), w.get("ns/a").re_evaluate), ("192.0.2.20".into(), false));
}

#[test]
fn a_removed_range_marks_its_services_and_takes_nothing() {
    let mut w = w();
    w.apply(mk_service("ns/a"));
    w.set_groups(vec![mk_group("default", 1, &[("192.0.2.100-192.0.2.101", NET)])]);
    assert_eq!((w.ips("ns/a"), w.told("ns/a")), ("192.0.2.10".into(), "RangeRemoved".into()));
    assert_eq!(w.events.last().unwrap(), "ConfigurationWarning: ns/a");
    w.set_groups(Vec::new());
    assert_eq!(w.ips("ns/a"), "192.0.2.10", "not even without any group");
    let events = w.events.len();
    w.set_groups(vec![mk_group("default", 1, &[("192.0.2.10-192.0.2.12", NET)])]);
    assert_eq!((w.told("ns/a"), w.events.len()), ("AddressAssigned".into(), events));
}

#[test]
fn a_group_refused_for_overlap_keeps_its_services() {
    let mut w = w();
    w.apply(of_group(mk_service("ns/a"), "other"));
    w.set_groups(vec![
        mk_group("default", 1, &[("192.0.2.10-192.0.2.30", NET)]),
        mk_group("other", 2, &[("192.0.2.20-192.0.2.22", NET)]),
    ]);
    assert_eq!(w.ips("ns/a"), "192.0.2.20");
    w.apply(of_group(mk_service("ns/b"), "other"));
    assert_eq!(w.told("ns/b"), "!GroupRefused");
    for i in 0..12 {
        w.apply(mk_service(&format!("ns/c{i}")));
        assert_ne!(w.ips(&format!("ns/c{i}")), "192.0.2.20");
    }
}

#[test]
fn a_boundary_drawn_later_takes_nothing_away() {
    let mut w = w();
    w.apply(mk_service("ns/a"));
    w.set_groups(vec![enforced(mk_group("default", 1, &[("192.0.2.10-192.0.2.12", NET)]), &["team"])]);
    assert_eq!((w.ips("ns/a"), w.told("ns/a")), ("192.0.2.10".into(), "AddressAssigned".into()));
}

#[test]
fn a_family_that_comes_later_is_added() {
    let mut w = w();
    let mut a = mk_service("ns/a");
    a.families = Families::Either { first: Family::V4 };
    w.apply(a);
    assert_eq!(w.ips("ns/a"), "192.0.2.10");
    let pools = [("192.0.2.10-192.0.2.12", NET), ("2001:db8::/64", "2001:db8::/64")];
    w.set_groups(vec![mk_group("default", 1, &pools)]);
    assert_eq!(w.ips("ns/a"), "192.0.2.10,2001:db8::1");
}

#[test]
fn the_deprecated_field_is_answered_with_a_warning() {
    let mut w = w();
    let mut a = asking_for(mk_service("ns/a"), &["192.0.2.12"]);
    a.deprecated_field = true;
    w.apply(a);
    assert_eq!(w.ips("ns/a"), "192.0.2.12");
    assert_eq!(w.events, ["AddressAssigned: ns/a", "DeprecationWarning: ns/a"]);
}

fn local_to(mut ask: ServiceAsk, app: &str) -> ServiceAsk {
    let selector = [("app".to_owned(), app.to_owned())].into();
    ask.terms.pods = Some(PodSet::of(&ask.key, &selector));
    ask
}

/// Who may not share an address does not get onto it by changing later, and does not stay.
#[test]
fn a_service_that_turns_local_leaves_the_address_of_other_pods() {
    let mut w = World::new(vec![mk_group("default", 1, &[("192.0.2.10-192.0.2.12", "192.0.2.0/24")])]);
    w.apply(local_to(sharing(mk_service("ns/a"), "k", 80), "a"));
    w.apply(sharing(mk_service("ns/b"), "k", 81));
    w.apply(local_to(sharing(mk_service("ns/c"), "k", 82), "c"));
    assert_eq!((w.ips("ns/a"), w.ips("ns/b")), ("192.0.2.10".into(), "192.0.2.10".into()));
    assert_eq!((w.ips("ns/c"), w.told("ns/c")), (String::new(), "!OtherPods".into()));
    w.edit("ns/b", |b| *b = local_to(b.clone(), "b"));
    assert_eq!((w.ips("ns/b"), w.told("ns/b")), (String::new(), "!OtherPods".into()), "who changes leaves");
    assert_eq!((w.ips("ns/a"), w.told("ns/a")), ("192.0.2.10".into(), "AddressAssigned".into()));
    // Asking for the very address does not help.
    w.edit("ns/b", |b| b.explicit = Ok(vec![vip("192.0.2.10")]));
    assert_eq!((w.ips("ns/b"), w.told("ns/b")), (String::new(), "!OtherPods".into()));
    // The same pods, or a policy that needs none on the node, do.
    w.edit("ns/b", |b| *b = local_to(b.clone(), "a"));
    assert_eq!((w.ips("ns/b"), w.told("ns/b")), ("192.0.2.10".into(), "AddressAssigned".into()));
    w.edit("ns/c", |c| c.terms.pods = None);
    assert_eq!(w.ips("ns/c"), "192.0.2.10");
    // The others are gone: so is the obstacle.
    w.edit("ns/c", |c| *c = local_to(c.clone(), "c"));
    assert_eq!(w.told("ns/c"), "!OtherPods");
    w.delete("ns/a");
    w.delete("ns/b");
    assert_eq!(w.ips("ns/c"), "192.0.2.10");
}

/// What is found shared at the start stays as it is, and is told.
#[test]
fn a_restart_takes_no_shared_address_away() {
    let mut book = Allocations::new(SYSTEM, "default").unwrap();
    book.set_groups(
        [mk_group("default", 1, &[("192.0.2.10-192.0.2.12", "192.0.2.0/24")])],
        Default::default(),
    );
    for (key, app, port) in [("ns/a", "a", 80), ("ns/b", "b", 81)] {
        let mut ask = local_to(sharing(mk_service(key), "k", port), app);
        (ask.held, ask.marked, ask.from) = (vec![vip("192.0.2.10")], true, Some("default".into()));
        ask.pool_type = Some(crate::facts::PoolType::Local);
        book.observe(ask);
    }
    while let Some(key) = book.take_next() {
        let Decision::Write(change) = book.decide(&key) else { panic!("{key} is not told") };
        assert_eq!(change.ingress, None, "{key}");
        let told = change.told.unwrap();
        assert_eq!((told.holds, told.reason.as_str()), (true, "AddressConflict"));
        assert!(told.message.contains("externalTrafficPolicy: Local"), "{}", told.message);
    }
}
