use super::*;

fn id(text: &str) -> InstanceId {
    InstanceId::new(text).unwrap()
}

fn attempt(mode: LeaseMode, memory: &mut LeaseMemory) -> LeaseAttempt {
    LeaseAttempt::new(mode, id("me"), 1, memory)
}

fn lease(by: &str, version: &str) -> LeaseReply {
    LeaseReply::Lease { instance: Some(id(by)), version: Some(version.into()), renewal: "mark".into() }
}

fn failed(code: u16) -> LeaseReply {
    LeaseReply::Failed { code, timeout: false, error: "words".into() }
}

fn patch(version: &str) -> LeaseRequest {
    LeaseRequest::Patch { version: version.into() }
}

/// Sends what is asked, answers with `replies` in turn; what was sent, and the end.
fn play(
    mode: LeaseMode,
    memory: &mut LeaseMemory,
    replies: &[LeaseReply],
) -> (Vec<LeaseRequest>, Option<LeaseWriteResult>) {
    let mut attempt = attempt(mode, memory);
    let mut sent = Vec::new();
    for reply in replies {
        let Some(request) = attempt.request(memory) else {
            return (sent, Some(Err(attempt.given_up())));
        };
        let end = attempt.replied(memory, &request, reply.clone());
        sent.push(request);
        if end.is_some() {
            return (sent, end);
        }
    }
    (sent, None)
}

fn done() -> Option<LeaseWriteResult> {
    Some(Ok(LeaseRenewal { renewal: "mark".into() }))
}

#[test]
fn a_renewal_names_the_version_it_was_made_for() {
    let mut memory = LeaseMemory::default();
    let (sent, end) = play(LeaseMode::Renew, &mut memory, &[lease("me", "1"), lease("me", "2")]);
    assert_eq!((sent, end), (vec![LeaseRequest::Look, patch("1")], done()));
    let (sent, end) = play(LeaseMode::Renew, &mut memory, &[lease("me", "3")]);
    assert_eq!((sent, end), (vec![patch("2")], done()));
}

#[test]
fn an_outsiders_edit_costs_a_round_and_another_instance_the_lease() {
    let mut memory = LeaseMemory { version: Some("1".into()), ..Default::default() };
    let replies = [failed(409), lease("me", "7"), lease("me", "8")];
    let (sent, end) = play(LeaseMode::Renew, &mut memory, &replies);
    assert_eq!((sent, end), (vec![patch("1"), LeaseRequest::Look, patch("7")], done()));
    let (_, end) = play(LeaseMode::Renew, &mut memory, &[failed(409), lease("other", "9")]);
    assert_eq!(end, Some(Err(LeaseError::Taken(id("other")))));
    let nobodys = LeaseReply::Lease { instance: None, version: None, renewal: String::new() };
    memory.version = Some("9".into());
    let (_, end) = play(LeaseMode::Renew, &mut memory, &[failed(409), nobodys]);
    assert!(matches!(end, Some(Err(LeaseError::Conflict(_)))));
}

#[test]
fn a_takeover_looks_first_whatever_was_known() {
    let mut memory = LeaseMemory { version: Some("1".into()), ..Default::default() };
    let (sent, end) = play(LeaseMode::TakeOver, &mut memory, &[lease("older", "5"), lease("me", "6")]);
    assert_eq!((sent, end), (vec![LeaseRequest::Look, patch("5")], done()));
    let (_, end) = play(LeaseMode::TakeOver, &mut memory, &[LeaseReply::Absent]);
    assert_eq!(end, Some(Err(LeaseError::Missing)));
}

#[test]
fn a_creation_that_finds_one_goes_on_only_with_its_own() {
    let mut memory = LeaseMemory::default();
    let lost_answer = [failed(409), lease("me", "2"), lease("me", "3")];
    let (sent, end) = play(LeaseMode::Create, &mut memory, &lost_answer);
    assert_eq!((sent, end), (vec![LeaseRequest::Create, LeaseRequest::Look, patch("2")], done()));
    for found in [lease("other", "2"), LeaseReply::Absent, failed(500)] {
        let (_, end) = play(LeaseMode::Create, &mut memory, &[failed(409), found]);
        assert_eq!(end, Some(Err(LeaseError::Exists)));
    }
    let (_, end) = play(LeaseMode::Create, &mut memory, &[failed(404)]);
    assert!(matches!(end, Some(Err(LeaseError::Refused(_)))), "no namespace: there is nothing to make it in");
}

#[test]
fn what_is_gone_is_missing_and_what_is_refused_stays_so() {
    let known = || LeaseMemory { version: Some("1".into()), ..Default::default() };
    assert_eq!(play(LeaseMode::Renew, &mut known(), &[failed(404)]).1, Some(Err(LeaseError::Missing)));
    assert!(matches!(
        play(LeaseMode::Renew, &mut known(), &[failed(403)]).1,
        Some(Err(LeaseError::Refused(_)))
    ));
    assert!(matches!(
        play(LeaseMode::Renew, &mut known(), &[failed(503)]).1,
        Some(Err(LeaseError::Refused(_)))
    ));
    // With a second endpoint there is another to ask.
    let mut memory = known();
    let mut attempt = LeaseAttempt::new(LeaseMode::Renew, id("me"), 2, &mut memory);
    let request = attempt.request(&memory).unwrap();
    assert_eq!(attempt.replied(&mut memory, &request, failed(503)), None);
}

#[test]
fn rounds_end_and_say_what_failed_last() {
    let mut memory = LeaseMemory { version: Some("1".into()), ..Default::default() };
    let (sent, end) = play(LeaseMode::Renew, &mut memory, &vec![failed(0); 20]);
    assert_eq!(sent.len(), ROUNDS + 1);
    assert!(matches!(end, Some(Err(LeaseError::Unreachable(_)))));
    let silent = LeaseReply::Failed { code: 0, timeout: true, error: String::new() };
    let (_, end) = play(LeaseMode::Renew, &mut memory, &vec![silent; 20]);
    assert_eq!(end, Some(Err(LeaseError::Timeout)));
    // Refused credentials are read again once, not for every round.
    let (sent, end) = play(LeaseMode::Renew, &mut memory, &vec![failed(401); 20]);
    assert_eq!(sent.len(), 2);
    assert!(matches!(end, Some(Err(LeaseError::Refused(_)))));
}

#[test]
fn a_mark_never_repeats_whatever_the_wall_clock_does() {
    let mut memory = LeaseMemory::default();
    assert_eq!(memory.mark(5_000), 5_000);
    assert_eq!(memory.mark(5_000), 5_001, "the clock stands");
    assert_eq!(memory.mark(9_000), 9_000);
    assert_eq!(memory.mark(5_000), 5_002, "the clock jumped back to where it was");
    for _ in 0..100 {
        memory.mark(5_000);
    }
    assert!(memory.marks.len() <= MARKS);
}
