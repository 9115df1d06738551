use std::collections::BTreeSet;

use super::*;
use crate::rank::Rank;

fn ms(millis: u64) -> Mono {
    Mono::from_millis(millis)
}

fn id(text: &str) -> InstanceId {
    InstanceId::new(text).unwrap()
}

fn mk_lease() -> OwnLease {
    OwnLease::new(NodeName::new("a").unwrap(), id("me"), LeaseTimers::default())
}

fn mk_content(draining: bool) -> LeaseContent {
    LeaseContent {
        instance: id("me"),
        duration: Duration::from_secs(10),
        subnets: BTreeSet::new(),
        draining: draining.then(|| "2026-01-01T00:00:00Z".to_owned()),
        rank: Rank::First,
        announced: Default::default(),
        macs: Default::default(),
        declined: BTreeSet::new(),
        node_uid: "uid".to_owned(),
    }
}

fn mk_seen(instance: &str, renewal: &str) -> LeaseFacts {
    LeaseFacts {
        instance: Some(id(instance)),
        renewal: renewal.to_owned(),
        ..placeholder(&NodeName::new("a").unwrap())
    }
}

fn ok(renewal: &str) -> Result<LeaseRenewal, LeaseError> {
    Ok(LeaseRenewal { renewal: renewal.to_owned() })
}

/// Created at 0, seen by the watch.
fn mk_held() -> OwnLease {
    let mut lease = mk_lease();
    let write = lease.due(ms(0), &mk_content(false), false).unwrap();
    assert_eq!(write.mode, LeaseMode::Create);
    assert_eq!(lease.answered(ms(5), write.seq, ms(0), ok("r0")), LeaseOutcome::Renewed { sent: ms(0) });
    assert_eq!(lease.observed(Some(&mk_seen("me", "r0"))), None);
    lease
}

#[test]
fn one_write_per_third_of_the_duration() {
    let mut lease = mk_held();
    assert_eq!(lease.deadline(ms(5)), Some(Mono::ZERO + LeaseTimers::default().renew_every()));
    assert_eq!(lease.due(ms(3333), &mk_content(false), false), None);
    let write = lease.due(ms(3334), &mk_content(false), false).unwrap();
    assert_eq!(write.mode, LeaseMode::Renew);
    assert_eq!(lease.due(ms(3335), &mk_content(true), false), None, "one at a time");
}

#[test]
fn changed_content_does_not_wait() {
    let mut lease = mk_held();
    let write = lease.due(ms(100), &mk_content(true), false).unwrap();
    lease.answered(ms(110), write.seq, ms(100), ok("r1"));
    assert_eq!(lease.written().unwrap().draining.as_deref(), Some("2026-01-01T00:00:00Z"));
    assert_eq!(lease.due(ms(120), &mk_content(true), false), None);
}

#[test]
fn after_a_failure_soon_again_but_not_at_once() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    let outcome = lease.answered(ms(4010), write.seq, ms(4000), Err(LeaseError::Refused("no".to_owned())));
    assert!(matches!(outcome, LeaseOutcome::Failed { .. }));
    assert_eq!(lease.due(ms(4011), &mk_content(true), false), None);
    let next = lease.deadline(ms(4011)).unwrap();
    assert!(next >= ms(4510) && next < ms(6010), "within the retry period: {next}");
    assert!(lease.due(next, &mk_content(true), false).is_some());
}

#[test]
fn a_write_nobody_answers_is_a_failure_and_a_late_answer_still_counts() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    let give_up = lease.deadline(ms(4000)).unwrap();
    assert!(give_up <= ms(5250));
    assert_eq!(lease.expire(ms(4001)), None);
    assert!(matches!(lease.expire(give_up), Some(LeaseOutcome::Failed { .. })));
    assert_eq!(
        lease.answered(ms(9000), write.seq, ms(4000), ok("r1")),
        LeaseOutcome::Renewed { sent: ms(4000) }
    );
}

#[test]
fn what_an_earlier_instance_left_is_taken_over() {
    let mut lease = mk_lease();
    lease.observed(Some(&mk_seen("before", "r9")));
    let write = lease.due(ms(0), &mk_content(false), true).unwrap();
    assert_eq!(write.mode, LeaseMode::TakeOver);
    lease.answered(ms(5), write.seq, ms(0), ok("r0"));
    // The watch still shows the past: no reason to give up.
    assert_eq!(lease.observed(Some(&mk_seen("before", "r10"))), None);
    assert!(lease.is_ours());
}

#[test]
fn another_instance_keeps_us_out_while_it_lives() {
    let mut lease = mk_held();
    let taken = Some(LeaseOutcome::Lost { cause: FenceCause::Taken { by: id("other") } });
    assert_eq!(lease.observed(Some(&mk_seen("other", "r1"))), taken);
    assert_eq!(lease.due(ms(60_000), &mk_content(false), true), None);
    assert_eq!(lease.deadline(ms(60_000)), None);
    assert_eq!(lease.due(ms(60_000), &mk_content(false), false).unwrap().mode, LeaseMode::TakeOver);
}

#[test]
fn a_renewal_refused_because_of_another_instance_is_a_loss() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    let outcome = lease.answered(ms(4005), write.seq, ms(4000), Err(LeaseError::Taken(id("other"))));
    assert_eq!(outcome, LeaseOutcome::Lost { cause: FenceCause::Taken { by: id("other") } });
}

#[test]
fn a_deleted_lease_is_lost_and_made_anew_at_once() {
    let mut lease = mk_held();
    assert_eq!(lease.observed(None), Some(LeaseOutcome::Lost { cause: FenceCause::Deleted }));
    assert_eq!(lease.due(ms(50), &mk_content(false), false).unwrap().mode, LeaseMode::Create);

    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    let outcome = lease.answered(ms(4005), write.seq, ms(4000), Err(LeaseError::Missing));
    assert_eq!(outcome, LeaseOutcome::Lost { cause: FenceCause::Deleted });
    assert_eq!(lease.due(ms(4006), &mk_content(false), false).unwrap().mode, LeaseMode::Create);
}

#[test]
fn an_old_deletion_that_the_watch_shows_after_our_creation_is_not_ours() {
    let mut lease = mk_lease();
    let write = lease.due(ms(0), &mk_content(false), false).unwrap();
    lease.answered(ms(5), write.seq, ms(0), ok("r0"));
    assert_eq!(lease.observed(None), None);
    assert!(lease.is_ours());
}

#[test]
fn a_creation_that_meets_a_lease_takes_it_over() {
    let mut lease = mk_lease();
    let write = lease.due(ms(0), &mk_content(false), false).unwrap();
    lease.answered(ms(5), write.seq, ms(0), Err(LeaseError::Exists));
    let next = lease.deadline(ms(5)).unwrap();
    assert_eq!(lease.due(next, &mk_content(false), false).unwrap().mode, LeaseMode::TakeOver);
}

#[test]
fn a_renewal_that_does_not_come_back_makes_us_look_and_then_give_up() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    lease.answered(ms(4005), write.seq, ms(4000), ok("r1"));
    assert!(!lease.wants_relist(ms(5999)));
    assert!(lease.wants_relist(ms(6000)));
    assert!(!lease.wants_relist(ms(6001)), "once per silence");
    assert!(!lease.view_is_stale(ms(10_999)));
    assert!(lease.view_is_stale(ms(11_000)));
    lease.observed(Some(&mk_seen("me", "r1")));
    assert!(!lease.view_is_stale(ms(11_001)));
}

#[test]
fn an_echo_that_overtakes_the_answer_counts() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    lease.observed(Some(&mk_seen("me", "r1")));
    lease.answered(ms(4005), write.seq, ms(4000), ok("r1"));
    assert!(!lease.wants_relist(ms(60_000)));
}

#[test]
fn an_old_event_with_our_instance_is_no_echo() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    lease.answered(ms(4005), write.seq, ms(4000), Err(LeaseError::Missing));
    let write = lease.due(ms(4010), &mk_content(false), false).unwrap();
    lease.answered(ms(4015), write.seq, ms(4010), ok("r2"));
    // The watch is behind: it shows our first life, its end, and only then the second.
    assert_eq!(lease.observed(Some(&mk_seen("me", "r1"))), None);
    assert_eq!(lease.confirmed(), None, "what others did meanwhile is not known");
    assert_eq!(lease.observed(None), None, "the end of the first life is not that of the second");
    lease.observed(Some(&mk_seen("me", "r2")));
    assert!(lease.confirmed().is_some());
}

#[test]
fn many_writes_do_not_hide_that_nothing_comes_back() {
    let mut lease = mk_held();
    for n in 0..40 {
        let at = ms(4000 + n * 100);
        let write = lease.due(at, &mk_content(n % 2 == 0), false).unwrap();
        lease.answered(at, write.seq, at, ok(&format!("w{n}")));
    }
    assert!(lease.wants_relist(ms(8000)));
    assert!(!lease.view_is_stale(ms(10_999)));
    assert!(lease.view_is_stale(ms(11_000)), "counted from the first that did not come back");
    lease.observed(Some(&mk_seen("me", "w39")));
    assert!(!lease.view_is_stale(ms(11_000)));
    assert_eq!(lease.looked(), Some(ms(7900)));
}

#[test]
fn a_look_that_is_wanted_during_a_write_follows_it() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    lease.hurry(ms(4100));
    lease.answered(ms(4200), write.seq, ms(4000), ok("r1"));
    let next = lease.due(ms(4200), &mk_content(false), false).expect("sent after somebody asked");
    lease.answered(ms(4210), next.seq, ms(4200), ok("r2"));
    assert_eq!(lease.due(ms(4220), &mk_content(false), false), None, "once");
}

#[test]
fn after_a_fence_only_a_write_sent_since_confirms() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    lease.was_fenced(ms(7000));
    assert_eq!(lease.confirmed(), None);
    lease.answered(ms(7100), write.seq, ms(4000), ok("r1"));
    assert!(!lease.will_confirm());
    lease.observed(Some(&mk_seen("me", "r1")));
    assert_eq!(lease.confirmed(), None, "sent before the fence");
    let write = lease.due(ms(7400), &mk_content(false), false).unwrap();
    lease.answered(ms(7410), write.seq, ms(7400), ok("r2"));
    assert!(lease.will_confirm());
    assert_eq!(lease.confirmed(), None, "an answer is no echo");
    lease.observed(Some(&mk_seen("me", "r2")));
    assert!(lease.confirmed().is_some());
}

/// The watch is faster than the answer to a renewal that was overtaken by a deletion.
#[test]
fn an_answer_about_a_lease_that_is_gone_changes_nothing() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    assert_eq!(lease.observed(None), Some(LeaseOutcome::Lost { cause: FenceCause::Deleted }));
    assert_eq!(
        lease.answered(ms(4020), write.seq, ms(4000), ok("r1")),
        LeaseOutcome::Renewed { sent: ms(4000) }
    );
    assert!(!lease.is_ours());
    let next = lease.due(ms(4021), &mk_content(false), false).unwrap();
    assert_eq!(next.mode, LeaseMode::Create, "at once");
}

#[test]
fn an_answer_about_a_lease_that_was_taken_changes_nothing() {
    let mut lease = mk_held();
    let write = lease.due(ms(4000), &mk_content(false), false).unwrap();
    lease.observed(Some(&mk_seen("other", "o1")));
    lease.answered(ms(4020), write.seq, ms(4000), ok("r1"));
    assert_eq!(lease.due(ms(9000), &mk_content(false), true), None, "the other one lives");
}
