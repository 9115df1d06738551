use super::*;
use std::time::Duration;

const TIMES: HandoffTimes =
    HandoffTimes { deadline: Duration::from_secs(5), linger: Duration::from_millis(250) };

fn ms(millis: u64) -> Mono {
    Mono::from_millis(millis)
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// One address, and who says in its Lease that it has it.
struct Case {
    handoff: Handoff,
    held: bool,
    published: bool,
    announcing: Vec<&'static str>,
    /// When the successor was last heard of; `None` = just now, always.
    heard: Option<Option<Mono>>,
}

impl Case {
    fn holding() -> Self {
        let mut case = Self::leftover();
        assert_eq!(case.look(0, Verdict::Mine), (Stance::Have, None));
        case
    }

    fn leftover() -> Self {
        Self { handoff: Handoff::default(), held: true, published: true, announcing: vec![], heard: None }
    }

    fn look(&mut self, at: u64, verdict: Verdict) -> (Stance, Option<Ended>) {
        let announces = |n: &NodeName| self.announcing.contains(&n.as_str());
        let view = View {
            now: ms(at),
            verdict,
            held: self.held,
            published: self.published,
            heard: self.heard.unwrap_or(Some(ms(at))),
            announces: &announces,
        };
        self.handoff.look(&view, TIMES)
    }
}

fn peer(name: &str) -> Verdict {
    Verdict::Peer(node(name))
}

#[test]
fn the_old_owner_keeps_it_until_the_new_one_says_it_has_it_and_a_moment_longer() {
    let mut case = Case::holding();
    assert_eq!(case.look(100, peer("b")), (Stance::Keep, None));
    assert_eq!(case.handoff.giving_to(), Some(&node("b")));
    assert_eq!(case.handoff.deadline(), Some(ms(5100)));
    case.announcing = vec!["b"];
    assert_eq!(case.look(150, peer("b")), (Stance::Keep, Some(Ended::Confirmed)));
    assert_eq!(case.handoff.deadline(), Some(ms(400)));
    assert_eq!(case.look(399, peer("b")), (Stance::Keep, None));
    assert_eq!(case.look(400, peer("b")), (Stance::Absent, None));
    assert_eq!(
        case.look(500, peer("b")),
        (Stance::Absent, None),
        "the kernel takes its time; we stay decided"
    );
    case.held = false;
    assert_eq!(case.look(501, peer("b")), (Stance::Absent, None));
    assert_eq!(case.handoff.deadline(), None);
}

#[test]
fn a_peer_that_never_confirms_is_decided_by_the_deadline() {
    let mut case = Case::holding();
    case.look(100, peer("old-format"));
    assert_eq!(case.look(5099, peer("old-format")), (Stance::Keep, None));
    assert_eq!(case.look(5100, peer("old-format")), (Stance::Absent, Some(Ended::TimedOut)));
    assert_eq!(case.look(5101, peer("old-format")), (Stance::Absent, None), "said once");
}

#[test]
fn the_deadline_does_not_run_before_the_others_can_know() {
    let mut case = Case::holding();
    case.published = false;
    assert_eq!(case.look(100, peer("b")), (Stance::Keep, None));
    assert_eq!(case.handoff.deadline(), None);
    assert_eq!(case.look(60_000, peer("b")), (Stance::Keep, None));
    case.published = true;
    case.look(60_100, peer("b"));
    assert_eq!(case.handoff.deadline(), Some(ms(65_100)));
}

/// A successor that died just before we began would never take it: to let go after the
/// deadline leaves nobody.
#[test]
fn the_deadline_does_not_run_for_one_that_may_be_dead() {
    let mut case = Case::holding();
    case.heard = Some(Some(ms(99)));
    assert_eq!(case.look(100, peer("b")), (Stance::Keep, None));
    assert_eq!(case.handoff.waits_for(), Some(&node("b")));
    assert_eq!(case.look(9_999, peer("b")), (Stance::Keep, None), "until its Lease has expired");
    // Another is next: alive when we began, and silent since it is its turn.
    case.heard = Some(Some(ms(9_000)));
    assert_eq!(case.look(10_000, peer("c")), (Stance::Keep, None));
    assert_eq!(case.handoff.deadline(), None);
    case.heard = Some(Some(ms(12_000)));
    case.look(12_000, peer("c"));
    assert_eq!((case.handoff.deadline(), case.handoff.waits_for()), (Some(ms(17_000)), None));
    // Its Lease is deleted under it.
    case.heard = Some(None);
    assert_eq!(case.look(17_000, peer("c")), (Stance::Keep, None));
    assert_eq!(case.look(21_000, Verdict::Mine), (Stance::Have, None));
}

#[test]
fn a_successor_that_changes_midway_gets_its_full_time() {
    let mut case = Case::holding();
    case.look(100, peer("b"));
    assert_eq!(case.look(4000, peer("c")), (Stance::Keep, None));
    assert_eq!(case.handoff.deadline(), Some(ms(9000)));
    // b, no longer the winner, confirms late: that is not the confirmation we wait for.
    case.announcing = vec!["b"];
    assert_eq!(case.look(4100, peer("c")), (Stance::Keep, None));
    case.announcing = vec!["b", "c"];
    assert_eq!(case.look(4200, peer("c")), (Stance::Keep, Some(Ended::Confirmed)));
}

#[test]
fn a_successor_that_dies_before_it_confirms_gives_the_address_back() {
    let mut case = Case::holding();
    case.look(100, peer("b"));
    assert_eq!(case.look(3000, Verdict::Mine), (Stance::Have, None));
    assert_eq!(case.handoff.deadline(), None);
}

#[test]
fn a_successor_that_is_gone_while_we_linger_is_replaced() {
    let mut case = Case::holding();
    case.announcing = vec!["b"];
    assert_eq!(case.look(100, peer("b")), (Stance::Keep, Some(Ended::Confirmed)));
    case.announcing = vec![];
    assert_eq!(case.look(200, peer("c")), (Stance::Keep, None));
    assert_eq!(case.handoff.giving_to(), Some(&node("c")));
    assert_eq!(case.look(400, peer("c")), (Stance::Keep, None), "the old linger is void");
}

#[test]
fn a_confirmed_successor_that_hands_on_does_not_hold_us() {
    let mut case = Case::holding();
    case.announcing = vec!["b"];
    case.look(100, peer("b"));
    assert_eq!(case.look(200, peer("c")), (Stance::Keep, None));
    assert_eq!(
        case.look(350, peer("c")),
        (Stance::Absent, None),
        "b has it: between b and c it is their affair"
    );
}

#[test]
fn what_is_forbidden_goes_at_once_in_every_state() {
    for prepare in [0, 1, 2] {
        let mut case = Case::holding();
        if prepare > 0 {
            case.look(10, peer("b"));
        }
        if prepare > 1 {
            case.announcing = vec!["b"];
            case.look(20, peer("b"));
        }
        assert_eq!(case.look(30, Verdict::Forbidden), (Stance::Absent, None), "state {prepare}");
    }
}

#[test]
fn without_any_other_node_it_is_kept_but_not_taken_up() {
    let mut case = Case::holding();
    assert_eq!(case.look(10, Verdict::Nobody { keep: true }), (Stance::Keep, None));
    assert_eq!(case.look(20, Verdict::Nobody { keep: false }), (Stance::Absent, None));
    case.held = false;
    assert_eq!(case.look(30, Verdict::Nobody { keep: true }), (Stance::Absent, None));
}

#[test]
fn who_does_not_hold_it_waits_for_nothing() {
    let mut case = Case::holding();
    case.held = false;
    assert_eq!(case.look(10, peer("b")), (Stance::Absent, None));
    assert_eq!(case.handoff.deadline(), None);
}

#[test]
fn an_adopted_leftover_of_another_winner_is_given_not_dropped() {
    let mut case = Case::leftover();
    assert_eq!(case.look(10, peer("b")), (Stance::Keep, None));
    assert_eq!(case.handoff.deadline(), Some(ms(5010)));
}
