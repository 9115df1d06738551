//! Exhausted pools, restarts, and writes that do not go through.

use super::world::*;
use crate::allocation::*;
use crate::ids::ObjectKey;

const NET: &str = "192.0.2.0/24";

fn small() -> World {
    World::new(vec![mk_group("default", 1, &[("192.0.2.10-192.0.2.11", NET)])])
}

fn created(key: &str, at: i64) -> ServiceAsk {
    ServiceAsk { created: at, ..mk_service(key) }
}

#[test]
fn whoever_waits_longest_gets_what_is_freed() {
    let mut w = small();
    for (key, at) in [("ns/a", 1), ("ns/b", 2), ("ns/late", 9), ("ns/early", 3)] {
        w.apply(created(key, at));
    }
    assert_eq!((w.told("ns/late"), w.told("ns/early")), ("!Exhausted".into(), "!Exhausted".into()));
    assert_eq!(w.book.waiting(), 2);
    w.delete("ns/a");
    assert_eq!((w.ips("ns/early"), w.ips("ns/late")), ("192.0.2.10".into(), String::new()));
    w.set_groups(vec![mk_group("default", 1, &[("192.0.2.10-192.0.2.12", NET)])]);
    assert_eq!(w.ips("ns/late"), "192.0.2.12", "a wider range helps as well");
    assert_eq!(w.book.waiting(), 0);
}

#[test]
fn in_one_pass_the_oldest_is_served_first() {
    let mut w = small();
    for (key, at) in [("ns/c", 3), ("ns/b", 2), ("ns/a", 1)] {
        w.put(created(key, at));
    }
    w.rest();
    assert_eq!((w.ips("ns/a"), w.ips("ns/b")), ("192.0.2.10".into(), "192.0.2.11".into()));
    assert_eq!(w.told("ns/c"), "!Exhausted");
}

#[test]
fn a_restart_changes_nothing() {
    let mut w = small();
    for (key, at) in [("ns/b", 1), ("ns/a", 2), ("ns/c", 3)] {
        w.apply(created(key, at));
    }
    let (objects, writes) = (w.objects.clone(), w.writes);
    w.restart();
    w.rest();
    assert_eq!((w.objects, w.writes), (objects, writes));
}

#[test]
fn services_of_a_former_release_without_our_condition_are_left_alone() {
    let mut w = small();
    w.apply(mk_service("ns/a"));
    w.edit("ns/a", |a| a.told = None);
    let writes = w.writes;
    w.restart();
    w.rest();
    assert_eq!(w.writes, writes);
}

#[test]
fn an_address_decided_but_not_written_is_not_given_to_another() {
    let mut w = small();
    w.put(mk_service("ns/a"));
    let a = w.book.take_next().unwrap();
    assert!(matches!(w.book.decide(&a), Decision::Write(change)
        if change.ingress == Some(vec![vip("192.0.2.10")])));
    w.book.busy(&a);
    w.put(mk_service("ns/b"));
    w.put(mk_service("ns/a"));
    let b = w.book.take_next().unwrap();
    assert_eq!(b, ObjectKey::new("ns/b").unwrap(), "the one under way is left alone");
    assert!(matches!(w.book.decide(&b), Decision::Write(change)
        if change.ingress == Some(vec![vip("192.0.2.11")])));
    // The write fails: the same is decided again.
    w.book.settled(&a, WriteCertainty::Known);
    w.book.look_again(&a);
    w.book.look_again(&b);
    w.rest();
    assert_eq!((w.ips("ns/a"), w.ips("ns/b")), ("192.0.2.10".into(), "192.0.2.11".into()));
}

#[test]
fn a_status_somebody_emptied_gets_the_same_address_again() {
    let mut w = small();
    w.apply(mk_service("ns/a"));
    w.apply(mk_service("ns/b"));
    w.delete("ns/a");
    w.edit("ns/b", |b| b.held.clear());
    assert_eq!(w.ips("ns/b"), "192.0.2.11");
}

#[test]
fn another_service_of_the_same_name_starts_anew() {
    let mut w = small();
    w.apply(mk_service("ns/a"));
    let reborn = ServiceAsk { uid: "another".into(), ..mk_service("ns/a") };
    w.apply(reborn);
    assert_eq!(w.ips("ns/a"), "192.0.2.10");
    assert_eq!(w.book.pools().references(vip("192.0.2.10")), 1);
}

#[test]
fn starting_over_forgets_what_was_never_written() {
    let mut w = small();
    w.put(mk_service("ns/a"));
    let a = w.book.take_next().unwrap();
    w.book.decide(&a);
    let mut b = mk_service("ns/b");
    (b.held, b.marked, b.from) = (vec![vip("192.0.2.10")], true, Some("default".into()));
    w.objects.insert(b.key.clone(), b.clone());
    w.book.observe(b);
    w.book.start_over();
    w.rest();
    assert_eq!((w.ips("ns/a"), w.ips("ns/b")), ("192.0.2.11".into(), "192.0.2.10".into()));
}

/// A release is looked at by those it could help, and by no more of them than it helps.
#[test]
fn a_release_wakes_only_whom_it_could_help() {
    let pools = |group: &str, third: u8| {
        mk_group(group, 1, &[(&*format!("192.0.{third}.10"), &*format!("192.0.{third}.0/24"))])
    };
    let mut w = World::new(vec![pools("default", 2), pools("other", 3)]);
    w.apply(mk_service("ns/a"));
    w.apply(of_group(mk_service("ns/b"), "other"));
    for i in 0..100 {
        w.apply(created(&format!("ns/waits{i:03}"), 10 + i));
    }
    w.apply(asking_for(mk_service("ns/this-one"), &["192.0.3.10"]));
    assert_eq!(w.book.waiting(), 101);
    let looked = |w: &mut World, act: &dyn Fn(&mut World)| {
        let before = w.decisions;
        act(w);
        w.decisions - before
    };
    // Of the other group: only who asks for that very address.
    let seen = looked(&mut w, &|w| w.delete("ns/b"));
    assert_eq!((seen, w.ips("ns/this-one")), (2, "192.0.3.10".to_owned()), "decided, and written");
    // One address: the oldest gets it, the next one finds nothing, the rest sleeps on.
    let seen = looked(&mut w, &|w| w.delete("ns/a"));
    assert_eq!(w.ips("ns/waits000"), "192.0.2.10");
    assert_eq!(seen, 3, "one is served and looked at once more, one is refused");
    // An edit of a Service that shares nothing helps nobody.
    let seen = looked(&mut w, &|w| w.edit("ns/this-one", |s| s.terms.ports.clear()));
    assert_eq!(seen, 1);
    // More room helps everybody it has room for.
    w.set_groups(vec![mk_group("default", 1, &[("192.0.2.10-192.0.2.30", NET)]), pools("other", 3)]);
    assert_eq!((w.ips("ns/waits020"), w.book.waiting()), ("192.0.2.30".to_owned(), 79));
}

/// Who waits for an address or a port on it hears of every change there.
#[test]
fn whoever_waits_for_an_address_hears_of_what_changes_there() {
    let mut w = small();
    w.apply(sharing(mk_service("ns/a"), "k", 80));
    w.apply(sharing(created("ns/port", 1), "k", 80));
    w.apply(asking_for(created("ns/mine", 2), &["192.0.2.10"]));
    assert_eq!((w.told("ns/port"), w.told("ns/mine")), ("!PortTaken".into(), "!InUse".into()));
    w.edit("ns/a", |a| *a = sharing(a.clone(), "k", 81));
    assert_eq!((w.ips("ns/port"), w.told("ns/mine")), ("192.0.2.10".into(), "!InUse".into()));
    w.delete("ns/a");
    w.delete("ns/port");
    assert_eq!(w.ips("ns/mine"), "192.0.2.10");
}

/// A pool is full, and somebody on it begins to share: whoever has the same key waits no longer.
#[test]
fn a_key_that_is_given_later_helps_who_has_it() {
    let mut w = World::new(vec![mk_group("default", 1, &[("192.0.2.10", NET)])]);
    w.apply(mk_service("ns/a"));
    w.apply(sharing(created("ns/b", 1), "k", 81));
    assert_eq!(w.told("ns/b"), "!Exhausted");
    w.edit("ns/a", |a| *a = sharing(a.clone(), "k", 80));
    assert_eq!(w.ips("ns/b"), "192.0.2.10");
}
