//! Multi-pool Services grow and shrink with the subnets live nodes advertise.

use std::collections::BTreeSet;
use std::time::Duration;

use super::world::*;
use crate::allocation::*;
use crate::facts::LeaseFacts;
use crate::ids::NodeName;
use crate::time::Mono;

fn nets(texts: &[&str]) -> BTreeSet<ipnet::IpNet> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

fn three() -> World {
    World::new(vec![multi(mk_group(
        "default",
        1,
        &[
            ("10.0.1.10-10.0.1.19", "10.0.1.0/24"),
            ("10.0.2.10-10.0.2.19", "10.0.2.0/24"),
            ("10.0.3.10-10.0.3.19", "10.0.3.0/24"),
        ],
    ))])
}

#[test]
fn one_address_of_every_live_range() {
    let mut w = three();
    w.apply(mk_service("ns/a"));
    assert_eq!(w.told("ns/a"), "!NoEligibleRange");
    w.book.set_live(nets(&["10.0.1.0/24", "10.0.3.0/24"]));
    w.rest();
    assert_eq!(w.ips("ns/a"), "10.0.1.10,10.0.3.10");
    w.book.set_live(nets(&["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"]));
    w.rest();
    assert_eq!(w.ips("ns/a"), "10.0.1.10,10.0.2.10,10.0.3.10");
    w.book.set_live(nets(&["10.0.2.0/24"]));
    w.rest();
    assert_eq!(w.ips("ns/a"), "10.0.2.10", "shrinks with the subnets");
    w.book.set_live(BTreeSet::new());
    w.rest();
    assert_eq!(
        (w.ips("ns/a"), w.told("ns/a")),
        ("10.0.2.10".into(), "AddressAssigned".into()),
        "never to nothing"
    );
}

#[test]
fn the_service_overrides_its_group() {
    let mut w = three();
    w.book.set_live(nets(&["10.0.1.0/24", "10.0.2.0/24"]));
    let mut a = mk_service("ns/a");
    a.multi_pool = Some(false);
    w.apply(a);
    assert_eq!(w.ips("ns/a"), "10.0.1.10");
    w.edit("ns/a", |a| a.multi_pool = None);
    assert_eq!(w.ips("ns/a"), "10.0.1.10,10.0.2.10");
}

fn lease(node: &str, renewal: &str, subnets: &[&str]) -> LeaseFacts {
    LeaseFacts {
        node: NodeName::new(node).unwrap(),
        instance: None,
        duration_seconds: 10,
        renewal: renewal.into(),
        subnets: nets(subnets),
        draining: None,
        announced: None,
        declined: None,
        macs: None,
        rank: None,
        control_endpoint: None,
    }
}

#[test]
fn a_subnet_lives_as_long_as_a_lease_is_renewed_and_a_while_longer() {
    let at = |seconds: u64| Mono::from_millis(seconds * 1000);
    let mut live = LiveSubnets::new(Duration::from_secs(60));
    assert!(live.seen(&lease("n1", "r1", &["10.0.1.0/24"]), at(0)));
    assert!(!live.seen(&lease("n1", "r1", &["10.0.1.0/24"]), at(9)), "nothing new");
    assert_eq!(live.next_change(at(9)), Some(at(70)), "the same renewal is no sign of life");
    assert_eq!(live.at(at(69)), nets(&["10.0.1.0/24"]));
    assert_eq!(live.at(at(70)), nets(&[]));
    assert!(live.seen(&lease("n1", "r2", &["10.0.2.0/24"]), at(70)));
    assert_eq!(live.at(at(71)), nets(&["10.0.1.0/24", "10.0.2.0/24"]), "a dropped subnet lingers");
    live.gone(&NodeName::new("n1").unwrap(), at(80));
    assert_eq!(live.at(at(139)), nets(&["10.0.2.0/24"]));
    assert_eq!((live.at(at(140)), live.next_change(at(140))), (nets(&[]), None));
    assert!(live.seen(&lease("n2", "r1", &["10.0.9.0/24"]), at(200)));
    assert!(!live.seen(&lease("n2", "r2", &["10.0.9.0/24"]), at(205)), "renewed, and no more");
    let mut shorter = lease("n2", "r3", &["10.0.9.0/24"]);
    shorter.duration_seconds = 1;
    assert!(live.seen(&shorter, at(206)), "it ends sooner now");
    live.retain(&BTreeSet::new(), at(206));
    assert_eq!(live.at(at(267)), nets(&[]));
}
