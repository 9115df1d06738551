//! Groups whose addresses somebody else keeps.

use super::world::*;
use crate::allocation::*;
use crate::ids::{Family, ObjectKey};
use crate::pools::Families;

fn w() -> World {
    World::new(vec![mk_group("default", 1, &[("192.0.2.10", "192.0.2.0/24")]), mk_provider("ext")])
}

#[test]
fn it_is_asked_once_and_believed() {
    let mut w = w();
    w.provider = Box::new(|q| {
        assert_eq!((q.families.as_slice(), q.explicit.len()), ([Family::V4].as_slice(), 0));
        Ok(vec![vip("203.0.113.7")])
    });
    w.apply(of_group(mk_service("ns/a"), "ext"));
    assert_eq!(w.ips("ns/a"), "203.0.113.7");
    w.provider = Box::new(|_| panic!("asked again"));
    w.restart();
    w.rest();
    assert_eq!(w.ips("ns/a"), "203.0.113.7");
    w.delete("ns/a");
    let expected = GiveBack {
        group: name("ext"),
        service: ObjectKey::new("ns/a").unwrap(),
        ip: Some(vip("203.0.113.7")),
    };
    assert_eq!(w.book.take_give_backs(), [expected]);
}

/// Whoever deletes the group first has not given the addresses of its Services back.
#[test]
fn what_a_deleted_group_gave_goes_back_all_the_same() {
    let mut w = w();
    w.provider = Box::new(|_| Ok(vec![vip("203.0.113.7")]));
    w.apply(of_group(mk_service("ns/a"), "ext"));
    w.apply(mk_service("ns/b"));
    w.set_groups(vec![mk_group("default", 1, &[("192.0.2.10", "192.0.2.0/24")])]);
    assert_eq!((w.ips("ns/a"), w.book.take_give_backs().len()), ("203.0.113.7".into(), 0), "it keeps it");
    w.delete("ns/a");
    w.delete("ns/b");
    let back = w.book.take_give_backs();
    assert_eq!(back.len(), 1, "{back:?}");
    assert_eq!((&back[0].group, back[0].ip), (&name("ext"), Some(vip("203.0.113.7"))));
}

#[test]
fn one_that_is_down_makes_only_its_own_services_wait() {
    let mut w = w();
    w.provider = Box::new(|_| Err("connection refused".into()));
    w.apply(of_group(mk_service("ns/a"), "ext"));
    w.apply(mk_service("ns/b"));
    assert_eq!((w.told("ns/a"), w.ips("ns/b")), ("!Provider".into(), "192.0.2.10".into()));
    assert!(w.message("ns/a").contains("connection refused"));
    w.provider = Box::new(|_| Ok(vec![vip("203.0.113.7")]));
    w.book.ask_again(&ObjectKey::new("ns/a").unwrap());
    w.rest();
    assert_eq!((w.ips("ns/a"), w.told("ns/a")), ("203.0.113.7".into(), "AddressAssigned".into()));
}

#[test]
fn an_address_somebody_holds_is_not_taken_from_it() {
    let mut w = w();
    w.provider = Box::new(|_| Ok(vec![vip("203.0.113.7")]));
    w.apply(of_group(mk_service("ns/a"), "ext"));
    w.apply(of_group(mk_service("ns/b"), "ext"));
    assert_eq!((w.told("ns/b"), w.ips("ns/b")), ("!ProviderGaveHeld".into(), String::new()));
}

#[test]
fn explicit_addresses_go_to_it_and_a_move_gives_the_old_back() {
    let mut w = w();
    w.provider = Box::new(|q| match q.explicit.as_slice() {
        [] => Ok(vec![vip("203.0.113.7")]),
        [ip] if *ip == vip("203.0.113.9") => Ok(vec![*ip]),
        _ => Err("taken".into()),
    });
    w.apply(of_group(mk_service("ns/a"), "ext"));
    w.edit("ns/a", |a| a.explicit = Ok(vec![vip("203.0.113.8")]));
    assert_eq!((w.ips("ns/a"), w.told("ns/a")), ("203.0.113.7".into(), "!Provider".into()));
    assert!(w.book.take_give_backs().is_empty());
    w.edit("ns/a", |a| a.explicit = Ok(vec![vip("203.0.113.9")]));
    assert_eq!(w.ips("ns/a"), "203.0.113.9");
    assert_eq!(w.book.take_give_backs().len(), 1);
}

#[test]
fn one_family_is_enough_where_two_are_preferred() {
    let mut w = w();
    w.provider = Box::new(|q| match q.families.as_slice() {
        [Family::V6] => Err("no IPv6 here".into()),
        _ => Ok(vec![vip("203.0.113.7")]),
    });
    let mut a = of_group(mk_service("ns/a"), "ext");
    a.families = Families::Either { first: Family::V4 };
    w.apply(a);
    assert_eq!((w.ips("ns/a"), w.told("ns/a")), ("203.0.113.7".into(), "AddressAssigned".into()));
}

/// Deleted and made anew under the same name: the old address goes back before the new
/// Service asks, or the provider would give it and take it away.
#[test]
fn who_gives_back_asks_only_afterwards() {
    let mut w = w();
    w.provider = Box::new(|_| Ok(vec![vip("203.0.113.7")]));
    w.apply(of_group(mk_service("ns/a"), "ext"));
    w.provider = Box::new(|_| panic!("asked while something is on its way back"));
    w.apply(ServiceAsk { uid: "another".into(), ..of_group(mk_service("ns/a"), "ext") });
    assert_eq!(w.ips("ns/a"), "");
    let back = w.book.take_give_backs();
    assert_eq!(back.len(), 1);
    w.provider = Box::new(|_| Ok(vec![vip("203.0.113.8")]));
    w.book.gave_back(&back[0]);
    w.rest();
    assert_eq!(w.ips("ns/a"), "203.0.113.8");
}

#[test]
fn an_orphan_is_what_no_service_holds_asks_for_or_gives_back() {
    let mut w = w();
    w.provider = Box::new(|_| Ok(vec![vip("203.0.113.7")]));
    w.apply(of_group(mk_service("ns/holds"), "ext"));
    w.put(of_group(mk_service("ns/asks"), "ext"));
    let asks = w.book.take_next().unwrap();
    let Decision::Ask(question) = w.book.decide(&asks) else { panic!("it has to ask") };
    w.book.busy(&asks);
    let entry =
        |service: &str, ip: &str| ProviderListing { service: ObjectKey::new(service).unwrap(), ip: vip(ip) };
    let book = [
        entry("ns/holds", "203.0.113.7"),
        entry("ns/holds", "203.0.113.6"),
        entry("ns/asks", "203.0.113.8"),
        entry("ns/gone", "203.0.113.9"),
        // In the book under another name: somebody uses it all the same.
        entry("ns/gone", "203.0.113.7"),
    ];
    let orphans = |w: &World| w.book.orphans(book.to_vec());
    let expected = [book[1].clone(), book[3].clone()];
    assert_eq!(orphans(&w), expected);
    // Answered and not decided on yet: it is as good as held.
    w.book.answer(&asks, question, Ok(vec![vip("203.0.113.8")]));
    w.book.settled(&asks, WriteCertainty::Known);
    assert_eq!(orphans(&w), expected);
    w.rest();
    assert_eq!((w.ips("ns/asks"), orphans(&w)), ("203.0.113.8".into(), expected.to_vec()));
    w.delete("ns/asks");
    assert_eq!(orphans(&w), expected, "on its way back already");
    for what in w.book.take_give_backs() {
        w.book.gave_back(&what);
    }
    assert_eq!(orphans(&w).len(), 3, "if the provider still has it then, it was lost");
}
