use std::collections::BTreeSet;

use super::*;
use crate::ids::InstanceId;

fn mk_lease(node: &str, renewal: &str, seconds: i64) -> LeaseFacts {
    LeaseFacts {
        node: NodeName::new(node).unwrap(),
        instance: Some(InstanceId::new("one").unwrap()),
        duration_seconds: seconds,
        renewal: renewal.to_owned(),
        subnets: BTreeSet::new(),
        draining: None,
        announced: None,
        control_endpoint: None,
    }
}

fn at(seconds: u64) -> Mono {
    Mono::from_millis(seconds * 1000)
}

fn live(members: &Membership, now: Mono) -> Vec<&str> {
    members.iter().filter(|(_, m)| m.live(now)).map(|(n, _)| n.as_str()).collect()
}

#[test]
fn a_first_listing_counts_from_the_listing() {
    let mut members = Membership::default();
    members.replace(at(100), vec![mk_lease("a", "years ago", 10)]);
    assert_eq!(live(&members, at(109)), ["a"]);
    assert_eq!(live(&members, at(110)), [""; 0]);
    assert_eq!(members.next_expiry(), Some(at(110)));
    assert_eq!(members.take_expired(at(109)), []);
    assert_eq!(members.take_expired(at(110)), [NodeName::new("a").unwrap()]);
    assert_eq!((members.take_expired(at(111)), members.next_expiry()), (vec![], None), "said once");
}

#[test]
fn the_same_lease_seen_again_does_not_live_longer() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    members.observe(at(9), mk_lease("a", "r1", 10));
    members.replace(at(9), vec![mk_lease("a", "r1", 10)]);
    assert_eq!(live(&members, at(10)), [""; 0]);
}

#[test]
fn a_new_mark_counts_from_when_we_saw_it_whatever_it_says() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "2026-01-01T00:00:10Z", 10));
    // The holder's clock jumped back an hour; it lived to write this all the same.
    members.observe(at(5), mk_lease("a", "2025-12-31T23:00:00Z", 10));
    assert_eq!(live(&members, at(14)), ["a"]);
    assert_eq!(live(&members, at(15)), [""; 0]);
    members.observe(at(20), mk_lease("a", "r3", 10));
    assert_eq!(live(&members, at(29)), ["a"], "an expired member comes back with a new mark");
}

#[test]
fn an_edit_by_hand_is_no_evidence_of_life_but_may_shorten_it() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    members.observe(at(8), mk_lease("a", "r1", 100));
    assert_eq!(live(&members, at(10)), [""; 0]);

    members.observe(at(20), mk_lease("a", "r2", 10));
    members.observe(at(21), mk_lease("a", "r2", 3));
    assert_eq!(live(&members, at(22)), ["a"]);
    assert_eq!(live(&members, at(23)), [""; 0]);
}

#[test]
fn a_renewal_may_shorten_or_lengthen_the_duration() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    members.observe(at(1), mk_lease("a", "r2", 2));
    assert_eq!(live(&members, at(3)), [""; 0]);
    members.observe(at(4), mk_lease("a", "r3", 30));
    assert_eq!(live(&members, at(33)), ["a"]);
}

#[test]
fn another_instance_is_evidence_even_with_the_same_mark() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    let other = LeaseFacts { instance: Some(InstanceId::new("two").unwrap()), ..mk_lease("a", "r1", 10) };
    members.observe(at(9), other);
    assert_eq!(live(&members, at(18)), ["a"]);
}

#[test]
fn absurd_durations_have_a_meaning() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("zero", "r", 0));
    members.observe(at(0), mk_lease("negative", "r", -5));
    members.observe(at(0), mk_lease("least", "r", i64::MIN));
    members.observe(at(0), mk_lease("year", "r", 31_536_000));
    members.observe(at(0), mk_lease("most", "r", i64::MAX));
    assert_eq!(live(&members, at(0)), ["most", "year"]);
    assert_eq!(live(&members, at(299)), ["most", "year"]);
    assert_eq!(live(&members, at(300)), [""; 0]);
}

#[test]
fn who_is_deleted_or_not_in_a_listing_is_gone_at_once() {
    let mut members = Membership::default();
    members.replace(at(0), vec![mk_lease("a", "r", 10), mk_lease("b", "r", 10), mk_lease("c", "r", 10)]);
    members.remove(&NodeName::new("a").unwrap());
    assert_eq!(live(&members, at(0)), ["b", "c"]);
    members.replace(at(1), vec![mk_lease("c", "r", 10)]);
    assert_eq!(live(&members, at(1)), ["c"]);
    // A Lease made anew starts a life of its own.
    members.observe(at(5), mk_lease("a", "r", 10));
    assert_eq!(live(&members, at(14)), ["a"]);
}

#[test]
fn whatever_happens_each_member_has_one_expiry() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    members.observe(at(1), mk_lease("a", "r2", 10));
    members.observe(at(2), mk_lease("a", "r2", 5));
    members.evidence(at(3), &NodeName::new("a").unwrap(), Evidence::LeaseChanged);
    assert_eq!(members.next_expiry(), Some(at(8)));
    members.replace(at(4), vec![mk_lease("b", "r1", 10)]);
    assert_eq!(members.take_expired(at(60)), [NodeName::new("b").unwrap()]);
    members.observe(at(61), mk_lease("b", "r2", 10));
    assert_eq!(members.next_expiry(), Some(at(71)), "an expired member that comes back expires again");
    members.remove(&NodeName::new("b").unwrap());
    assert_eq!(members.next_expiry(), None);
}
