use purelb_wire::ClaimKind;

use super::*;

const WINDOW: Duration = Duration::from_secs(1);

/// Claims by the owners `a`, `b`, `c`, each at its time in milliseconds.
fn mk_claims(story: &[(u64, u8)]) -> Vec<SeenClaim> {
    let claim = |&(at, owner): &(u64, u8)| SeenClaim {
        at: Mono::from_millis(at),
        segment: "lan".into(),
        ip: "192.0.2.100".parse().unwrap(),
        mac: mk_mac(owner),
        host: Some(char::from(owner).to_string()),
        kind: ClaimKind::ArpReply,
    };
    story.iter().map(claim).collect()
}

fn mk_mac(owner: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, owner])
}

fn spans(story: &[(u64, u8)]) -> Vec<(u64, u64)> {
    let millis = |t: Mono| t.as_nanos() / 1_000_000;
    duplicates(&mk_claims(story), WINDOW).iter().map(|d| (millis(d.from), millis(d.to))).collect()
}

#[test]
fn a_clean_move_has_one_owner_at_a_time() {
    let story = [(0, b'a'), (10, b'a'), (20, b'b'), (30, b'b')];
    assert_eq!(spans(&story), []);
    let found = owners(&mk_claims(&story));
    let hosts: Vec<_> = found.iter().map(|h| (h.host.as_deref().unwrap(), h.claims)).collect();
    assert_eq!(hosts, [("a", 2), ("b", 2)]);
}

#[test]
fn an_old_owner_that_speaks_again_is_a_duplicate() {
    assert_eq!(spans(&[(0, b'a'), (20, b'b'), (50, b'a')]), [(20, 50)]);
}

#[test]
fn a_long_quarrel_is_one_interval() {
    assert_eq!(spans(&[(0, b'a'), (20, b'b'), (50, b'a'), (60, b'b'), (90, b'a'), (95, b'b')]), [(20, 95)]);
}

#[test]
fn a_move_back_later_than_the_window_is_a_move() {
    assert_eq!(spans(&[(0, b'a'), (20, b'b'), (1500, b'a')]), []);
    assert_eq!(spans(&[(0, b'a'), (20, b'b'), (900, b'b'), (1499, b'b'), (1500, b'a')]), []);
}

#[test]
fn one_word_of_an_old_owner_in_between_is_a_duplicate() {
    assert_eq!(spans(&[(0, b'a'), (20, b'b'), (4990, b'b'), (5000, b'a'), (5010, b'b')]), [(5000, 5010)]);
}

#[test]
fn quarrels_apart_are_told_apart() {
    let story = [(0, b'a'), (20, b'b'), (50, b'a'), (5000, b'b'), (5010, b'a')];
    assert_eq!(spans(&story), [(20, 50), (5000, 5010)]);
}

#[test]
fn three_owners_quarrel_in_pairs() {
    let found = duplicates(&mk_claims(&[(0, b'a'), (10, b'b'), (20, b'c'), (30, b'a')]), WINDOW);
    let pairs: Vec<_> = found.iter().map(|d| d.macs).collect();
    assert_eq!(pairs, [[mk_mac(b'a'), mk_mac(b'b')], [mk_mac(b'a'), mk_mac(b'c')]]);
}
