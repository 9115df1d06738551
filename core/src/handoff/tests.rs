use super::*;
use std::time::Duration;

const TIME_BOUNDS: HandoffTimes =
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
        assert_eq!(case.advance(0, OwnerVerdict::Mine), (VipStance::Have, None));
        case
    }

    fn leftover() -> Self {
        Self { handoff: Handoff::default(), held: true, published: true, announcing: vec![], heard: None }
    }

    fn advance(&mut self, at: u64, verdict: OwnerVerdict) -> (VipStance, Option<HandoffEnd>) {
        let announces = |n: &NodeName| self.announcing.contains(&n.as_str());
        let view = HandoffView {
            now: ms(at),
            verdict,
            held: self.held,
            published: self.published,
            heard: self.heard.unwrap_or(Some(ms(at))),
            announces: &announces,
        };
        self.handoff.advance(&view, TIME_BOUNDS)
    }
}

fn peer(name: &str) -> OwnerVerdict {
    OwnerVerdict::Peer(node(name))
}

#[test]
fn the_old_owner_keeps_it_until_the_new_one_says_it_has_it_and_a_moment_longer() {
    let mut case = Case::holding();
    assert_eq!(case.advance(100, peer("b")), (VipStance::Keep, None));
    assert_eq!(case.handoff.giving_to(), Some(&node("b")));
    assert_eq!(case.handoff.deadline(), Some(ms(5100)));
    case.announcing = vec!["b"];
    assert_eq!(case.advance(150, peer("b")), (VipStance::Keep, Some(HandoffEnd::Confirmed)));
    assert_eq!(case.handoff.deadline(), Some(ms(400)));
    assert_eq!(case.advance(399, peer("b")), (VipStance::Keep, None));
    assert_eq!(case.advance(400, peer("b")), (VipStance::Absent, None));
    assert_eq!(
        case.advance(500, peer("b")),
        (VipStance::Absent, None),
        "the kernel takes its time; we stay decided"
    );
    case.held = false;
    assert_eq!(case.advance(501, peer("b")), (VipStance::Absent, None));
    assert_eq!(case.handoff.deadline(), None);
}

#[test]
fn a_peer_that_never_confirms_is_decided_by_the_deadline() {
    let mut case = Case::holding();
    case.advance(100, peer("old-format"));
    assert_eq!(case.advance(5099, peer("old-format")), (VipStance::Keep, None));
    assert_eq!(case.advance(5100, peer("old-format")), (VipStance::Absent, Some(HandoffEnd::TimedOut)));
    assert_eq!(case.advance(5101, peer("old-format")), (VipStance::Absent, None), "said once");
}

#[test]
fn the_deadline_does_not_run_before_the_others_can_know() {
    let mut case = Case::holding();
    case.published = false;
    assert_eq!(case.advance(100, peer("b")), (VipStance::Keep, None));
    assert_eq!(case.handoff.deadline(), None);
    assert_eq!(case.advance(60_000, peer("b")), (VipStance::Keep, None));
    case.published = true;
    case.advance(60_100, peer("b"));
    assert_eq!(case.handoff.deadline(), Some(ms(65_100)));
}

/// A successor that died just before we began would never take it: to let go after the
/// deadline leaves nobody.
#[test]
fn the_deadline_does_not_run_for_one_that_may_be_dead() {
    let mut case = Case::holding();
    case.heard = Some(Some(ms(99)));
    assert_eq!(case.advance(100, peer("b")), (VipStance::Keep, None));
    assert_eq!(case.handoff.waits_for(), Some(&node("b")));
    assert_eq!(case.advance(9_999, peer("b")), (VipStance::Keep, None), "until its Lease has expired");
    // Another is next: alive when we began, and silent since it is its turn.
    case.heard = Some(Some(ms(9_000)));
    assert_eq!(case.advance(10_000, peer("c")), (VipStance::Keep, None));
    assert_eq!(case.handoff.deadline(), None);
    case.heard = Some(Some(ms(12_000)));
    case.advance(12_000, peer("c"));
    assert_eq!((case.handoff.deadline(), case.handoff.waits_for()), (Some(ms(17_000)), None));
    // Its Lease is deleted under it.
    case.heard = Some(None);
    assert_eq!(case.advance(17_000, peer("c")), (VipStance::Keep, None));
    assert_eq!(case.advance(21_000, OwnerVerdict::Mine), (VipStance::Have, None));
}

#[test]
fn a_successor_that_changes_midway_gets_its_full_time() {
    let mut case = Case::holding();
    case.advance(100, peer("b"));
    assert_eq!(case.advance(4000, peer("c")), (VipStance::Keep, None));
    assert_eq!(case.handoff.deadline(), Some(ms(9000)));
    // b, no longer the winner, confirms late: that is not the confirmation we wait for.
    case.announcing = vec!["b"];
    assert_eq!(case.advance(4100, peer("c")), (VipStance::Keep, None));
    case.announcing = vec!["b", "c"];
    assert_eq!(case.advance(4200, peer("c")), (VipStance::Keep, Some(HandoffEnd::Confirmed)));
}

#[test]
fn a_successor_that_dies_before_it_confirms_gives_the_address_back() {
    let mut case = Case::holding();
    case.advance(100, peer("b"));
    assert_eq!(case.advance(3000, OwnerVerdict::Mine), (VipStance::Have, None));
    assert_eq!(case.handoff.deadline(), None);
}

#[test]
fn a_successor_that_is_gone_while_we_linger_is_replaced() {
    let mut case = Case::holding();
    case.announcing = vec!["b"];
    assert_eq!(case.advance(100, peer("b")), (VipStance::Keep, Some(HandoffEnd::Confirmed)));
    case.announcing = vec![];
    assert_eq!(case.advance(200, peer("c")), (VipStance::Keep, None));
    assert_eq!(case.handoff.giving_to(), Some(&node("c")));
    assert_eq!(case.advance(400, peer("c")), (VipStance::Keep, None), "the old linger is void");
}

#[test]
fn a_confirmed_successor_that_hands_on_does_not_hold_us() {
    let mut case = Case::holding();
    case.announcing = vec!["b"];
    case.advance(100, peer("b"));
    assert_eq!(case.advance(200, peer("c")), (VipStance::Keep, None));
    assert_eq!(
        case.advance(350, peer("c")),
        (VipStance::Absent, None),
        "b has it: between b and c it is their affair"
    );
}

#[test]
fn what_is_forbidden_goes_at_once_in_every_state() {
    for prepare in [0, 1, 2] {
        let mut case = Case::holding();
        if prepare > 0 {
            case.advance(10, peer("b"));
        }
        if prepare > 1 {
            case.announcing = vec!["b"];
            case.advance(20, peer("b"));
        }
        assert_eq!(case.advance(30, OwnerVerdict::Forbidden), (VipStance::Absent, None), "state {prepare}");
    }
}

#[test]
fn without_any_other_node_it_is_kept_but_not_taken_up() {
    let mut case = Case::holding();
    assert_eq!(case.advance(10, OwnerVerdict::Nobody { keep: true }), (VipStance::Keep, None));
    assert_eq!(case.advance(20, OwnerVerdict::Nobody { keep: false }), (VipStance::Absent, None));
    case.held = false;
    assert_eq!(case.advance(30, OwnerVerdict::Nobody { keep: true }), (VipStance::Absent, None));
}

#[test]
fn who_does_not_hold_it_waits_for_nothing() {
    let mut case = Case::holding();
    case.held = false;
    assert_eq!(case.advance(10, peer("b")), (VipStance::Absent, None));
    assert_eq!(case.handoff.deadline(), None);
}

#[test]
fn an_adopted_leftover_of_another_winner_is_given_not_dropped() {
    let mut case = Case::leftover();
    assert_eq!(case.advance(10, peer("b")), (VipStance::Keep, None));
    assert_eq!(case.handoff.deadline(), Some(ms(5010)));
}
