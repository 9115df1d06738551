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
        declined: None,
        macs: None,
        rank: None,
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
    members.replace(at(100), vec![mk_lease("a", "years ago", 10)], &BTreeSet::new());
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
    members.replace(at(9), vec![mk_lease("a", "r1", 10)], &BTreeSet::new());
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
fn an_edit_by_hand_is_no_evidence_of_life_and_does_not_shorten_it() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    members.observe(at(8), mk_lease("a", "r1", 100));
    assert_eq!(live(&members, at(10)), [""; 0]);

    members.observe(at(20), mk_lease("a", "r2", 10));
    for edited in [3, 0, -1] {
        members.observe(at(21), mk_lease("a", "r2", edited));
        assert_eq!(live(&members, at(29)), ["a"], "its holder counts on ten seconds");
    }
    assert_eq!(live(&members, at(30)), [""; 0]);
}

#[test]
fn a_renewal_may_shorten_or_lengthen_the_duration() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    members.observe(at(1), mk_lease("a", "r2", 2));
    members.observe(at(2), mk_lease("a", "r3", 2));
    assert_eq!(live(&members, at(4)), [""; 0]);
    members.observe(at(5), mk_lease("a", "r4", 30));
    assert_eq!(live(&members, at(34)), ["a"]);
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
    members.replace(
        at(0),
        vec![mk_lease("a", "r", 10), mk_lease("b", "r", 10), mk_lease("c", "r", 10)],
        &BTreeSet::new(),
    );
    members.deleted(at(0), &NodeName::new("a").unwrap(), false);
    assert_eq!(live(&members, at(0)), ["b", "c"]);
    members.replace(at(1), vec![mk_lease("c", "r", 10)], &BTreeSet::new());
    assert_eq!(live(&members, at(1)), ["c"]);
    // A Lease made anew starts a life of its own.
    members.observe(at(5), mk_lease("a", "r", 10));
    assert_eq!(live(&members, at(14)), ["a"]);
}

fn mk_holder(node: &str, mark: &str) -> LeaseFacts {
    let announced = Some(BTreeSet::from(["192.0.2.1".parse().unwrap()]));
    LeaseFacts { announced, ..mk_lease(node, mark, 10) }
}

/// Somebody deleted the Lease of a node that may be cut off: until the Lease would have
/// run out it may have its addresses.
#[test]
fn who_is_deleted_with_addresses_listed_counts_until_its_lease_would_have_run_out() {
    let node = |n| NodeName::new(n).unwrap();
    let mut members = Membership::default();
    for name in ["a", "b"] {
        members.observe(at(0), mk_holder(name, "r1"));
        members.observe(at(4), mk_holder(name, "r2"));
    }
    members.deleted(at(5), &node("a"), false);
    members.replace(at(6), vec![], &BTreeSet::new());
    assert_eq!(live(&members, at(13)), ["a", "b"]);
    assert_eq!(live(&members, at(14)), [""; 0]);
    let gone = members.get(&node("a")).unwrap();
    assert!(gone.is_gone() && gone.lists_addresses() && gone.heard().is_none());
    // It is back: as alive as ever.
    members.observe(at(7), mk_holder("a", "r3"));
    assert!(!members.get(&node("a")).unwrap().is_gone());
    assert_eq!(live(&members, at(16)), ["a"]);
    // It left as it should: nothing to wait for.
    members.observe(at(8), LeaseFacts { announced: Some(BTreeSet::new()), ..mk_holder("a", "r4") });
    members.deleted(at(8), &node("a"), false);
    assert!(members.get(&node("a")).is_none());
    // Long dead when it is cleared away.
    members.deleted(at(20), &node("b"), false);
    assert!(members.get(&node("b")).is_none());
}

#[test]
fn who_was_dead_may_believe_in_other_dead() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    members.observe(at(9), mk_lease("a", "r2", 10));
    let knows = |m: &Membership| m.get(&NodeName::new("a").unwrap()).unwrap().knows_all_from();
    assert_eq!(knows(&members), at(10));
    members.observe(at(30), mk_lease("a", "r3", 10));
    assert_eq!(knows(&members), at(40), "it was away, and looks around like one that starts");
}

#[test]
fn whatever_happens_each_member_has_one_expiry() {
    let mut members = Membership::default();
    members.observe(at(0), mk_lease("a", "r1", 10));
    members.observe(at(1), mk_lease("a", "r2", 10));
    members.observe(at(2), mk_lease("a", "r2", 5));
    members.evidence(at(3), &NodeName::new("a").unwrap(), Evidence::LeaseChanged);
    assert_eq!(members.next_expiry(), Some(at(13)));
    members.replace(at(4), vec![mk_lease("b", "r1", 10)], &BTreeSet::new());
    assert_eq!(members.take_expired(at(60)), [NodeName::new("b").unwrap()]);
    members.observe(at(61), mk_lease("b", "r2", 10));
    assert_eq!(members.next_expiry(), Some(at(71)), "an expired member that comes back expires again");
    members.forget(&NodeName::new("b").unwrap());
    assert_eq!(members.next_expiry(), None);
}

#[test]
fn who_is_deleted_in_doubt_counts_from_then_on() {
    let node = |name: &str| NodeName::new(name).unwrap();
    let mut members = Membership::new(Duration::from_secs(10));
    let holder = |name: &str| LeaseFacts {
        announced: Some(["192.0.2.1".parse().unwrap()].into()),
        ..mk_lease(name, "r1", 10)
    };
    members.replace(at(0), vec![holder("a"), holder("b")], &BTreeSet::new());
    members.replace(at(12), vec![], &BTreeSet::from([node("a")]));
    assert!(members.get(&node("b")).is_none(), "it was seen to run out");
    assert!(members.get(&node("a")).is_some_and(|m| m.is_gone() && m.live(at(21)) && !m.live(at(22))));
    assert_eq!(members.next_expiry(), Some(at(22)));
    members.replace(at(23), vec![], &BTreeSet::from([node("a")]));
    assert_eq!(members.get(&node("a")).map(Member::expires), Some(at(22)), "gone before: not once more");
}

/// A watch that was silent shows a renewal and an edit of it at once.
#[test]
fn a_shorter_duration_is_believed_when_it_is_said_twice() {
    let mut members = Membership::new(Duration::from_secs(10));
    let name = NodeName::new("a").unwrap();
    let ends = |members: &Membership| members.get(&name).map(Member::expires);
    members.observe(at(0), mk_lease("a", "r1", 48));
    members.observe(at(10), mk_lease("a", "r2", 1));
    assert_eq!(ends(&members), Some(at(58)), "it may be somebody's edit");
    members.observe(at(20), mk_lease("a", "r3", 48));
    members.observe(at(30), mk_lease("a", "r4", 20));
    assert_eq!(ends(&members), Some(at(78)));
    members.observe(at(40), mk_lease("a", "r5", 20));
    assert_eq!(ends(&members), Some(at(60)), "its own word");
}
