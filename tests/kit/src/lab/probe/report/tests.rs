use super::*;

const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 100));
const TIMEOUT: Duration = Duration::from_secs(1);

/// A probe sent at `sent` ms, answered by node 0 or 1 at `answer` ms.
fn mk_record(sent: u64, answer: Option<(u64, u32)>) -> Record {
    let answer = answer.map(|(at, node)| (Mono::from_millis(at), node));
    Record { vip: 0, sent: Mono::from_millis(sent), answer }
}

fn report(records: &[Record], now: u64) -> VipReport {
    let nodes = ["a".to_owned(), "b".to_owned()];
    let now = Mono::from_millis(now);
    Report::of(&[VIP], &nodes, records, Lag::default(), TIMEOUT, now).vip(VIP).clone()
}

#[test]
fn a_move_with_loss_is_told_as_it_was() {
    let found = report(
        &[
            mk_record(0, Some((1, 0))),
            mk_record(10, Some((11, 0))),
            mk_record(20, None),
            mk_record(30, None),
            mk_record(40, Some((42, 1))),
            mk_record(50, None),
        ],
        5000,
    );
    assert_eq!((found.sent, found.answered, found.lost, found.in_flight), (6, 3, 3, 0));
    assert_eq!(found.gap(), Duration::from_millis(31));
    let turns: Vec<_> = found.turns.iter().map(|turn| (turn.node.as_str(), turn.answers)).collect();
    assert_eq!(turns, [("a", 2), ("b", 1)]);
    assert_eq!(found.owner(), Some("b"));
    let ms = Mono::from_millis;
    assert_eq!(
        found.losses,
        [Loss { probes: 2, first: ms(20), last: ms(30) }, Loss { probes: 1, first: ms(50), last: ms(50) }]
    );
}

#[test]
fn young_probes_are_not_lost_yet_and_late_answers_do_not_count() {
    let found = report(&[mk_record(0, Some((1500, 0))), mk_record(1000, None), mk_record(2500, None)], 3000);
    assert_eq!((found.lost, found.late, found.in_flight, found.answered), (2, 1, 1, 0));
    assert_eq!(found.longest_gap, None);
}

#[test]
fn answers_that_overtake_make_no_gap() {
    let found = report(
        &[mk_record(0, Some((100, 0))), mk_record(10, Some((20, 0))), mk_record(50, Some((60, 0)))],
        5000,
    );
    assert_eq!(found.gap(), Duration::from_millis(40));
    assert_eq!(found.longest_round_trip, Duration::from_millis(100));
}

#[test]
fn two_owners_at_once_show_as_turns() {
    let records: Vec<_> =
        (0..6).map(|n| mk_record(n * 10, Some((n * 10 + 1, u32::from(n % 2 == 1))))).collect();
    let found = report(&records, 5000);
    assert_eq!(found.turns.len(), 6);
    assert_eq!(found.answers_by_node(), BTreeMap::from([("a", 3), ("b", 3)]));
}
