use super::super::kernel::{Address, AddressFlags};
use super::super::watch::Change;
use super::*;

const VIP: &str = "192.0.2.100";

fn mk_event(at: u64, host: &str, change: Change, flags: AddressFlags) -> AddressEvent {
    let address = Address {
        net: format!("{VIP}/24").parse().unwrap(),
        dev: "eth0".into(),
        index: 2,
        flags,
        valid: None,
        preferred: None,
        proto: None,
    };
    AddressEvent { at: Mono::from_millis(at), host: host.into(), address, change }
}

fn set(at: u64, host: &str) -> AddressEvent {
    mk_event(at, host, Change::Set, AddressFlags::empty())
}

fn gone(at: u64, host: &str) -> AddressEvent {
    mk_event(at, host, Change::Removed, AddressFlags::empty())
}

fn story(events: &[AddressEvent]) -> (Timeline, Vec<(u64, u64, String)>) {
    let timeline = Timeline::of(VIP.parse().unwrap(), Mono::ZERO, Mono::from_millis(1000), events);
    let millis = |t: Mono| t.as_nanos() / 1_000_000;
    let spans = timeline.spans.iter().map(|s| (millis(s.from), millis(s.to), s.owners.join("+"))).collect();
    (timeline, spans)
}

fn mk_spans(spans: &[(u64, u64, &str)]) -> Vec<(u64, u64, String)> {
    spans.iter().map(|(from, to, owners)| (*from, *to, (*owners).to_owned())).collect()
}

#[test]
fn make_before_break_is_an_overlap() {
    let (timeline, spans) = story(&[set(0, "a"), set(400, "b"), gone(450, "a")]);
    assert_eq!(spans, mk_spans(&[(0, 400, "a"), (400, 450, "a+b"), (450, 1000, "b")]));
    assert_eq!(timeline.two_owner_time(), Duration::from_millis(50));
    assert_eq!(timeline.no_owner_time(), Duration::ZERO);
    assert_eq!(timeline.owners(), ["b"]);
    assert_eq!(timeline.first_held_by("b"), Some(Mono::from_millis(400)));
}

#[test]
fn break_before_make_is_a_hole() {
    let (timeline, spans) = story(&[set(100, "a"), gone(400, "a"), set(450, "b")]);
    assert_eq!(spans, mk_spans(&[(0, 100, ""), (100, 400, "a"), (400, 450, ""), (450, 1000, "b")]));
    assert_eq!(timeline.two_owners().count(), 0);
    assert_eq!(
        timeline.no_owner_time(),
        Duration::from_millis(50),
        "the time before the first owner is no hole"
    );
}

#[test]
fn an_overlap_shorter_than_the_clock_is_still_one() {
    let (timeline, _) = story(&[set(0, "a"), set(400, "b"), gone(400, "a")]);
    assert_eq!(timeline.two_owners().count(), 1);
}

#[test]
fn a_renewal_changes_nothing() {
    let (_, spans) = story(&[set(0, "a"), set(300, "a"), set(600, "a")]);
    assert_eq!(spans, mk_spans(&[(0, 1000, "a")]));
}

#[test]
fn tentative_and_failed_addresses_are_not_held() {
    let (timeline, spans) = story(&[
        set(0, "a"),
        mk_event(100, "b", Change::Set, AddressFlags::Tentative),
        mk_event(900, "b", Change::Set, AddressFlags::Dadfailed),
    ]);
    assert_eq!(spans, mk_spans(&[(0, 1000, "a")]));
    assert_eq!(timeline.two_owners().count(), 0);
}
