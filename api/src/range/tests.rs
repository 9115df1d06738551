use proptest::prelude::*;

use super::*;

fn range(text: &str) -> Range {
    Range::parse(text).unwrap()
}

#[test]
fn reads_every_spelling() {
    assert_eq!(range("192.0.2.0/30").to_string(), "192.0.2.0-192.0.2.3");
    assert_eq!(
        range("192.0.2.5/30"),
        range("192.0.2.4/30"),
        "host bits do not matter"
    );
    assert_eq!(range(" 192.0.2.9 - 192.0.2.10 ").size(), 2);
    assert_eq!(range("2001:db8::1").size(), 1);
    assert_eq!(range("2001:db8::/64").size(), 1 << 64);
    assert_eq!(range("::/0").size(), u128::MAX, "saturates");
    assert_eq!(range("0.0.0.0/0").size(), 1 << 32);
}

#[test]
fn refuses_nonsense_by_name() {
    use RangeError as E;
    let refused = |text: &str| Range::parse(text).unwrap_err();
    assert!(matches!(refused("192.0.2.10-192.0.2.9"), E::Backwards { .. }));
    assert!(matches!(
        refused("192.0.2.10-2001:db8::1"),
        E::MixedFamilies { .. }
    ));
    assert!(matches!(refused("::ffff:192.0.2.1"), E::Mapped(_)));
    assert!(matches!(refused("::ffff:192.0.2.0/120"), E::Mapped(_)));
    for text in [
        "",
        "-",
        "a-b",
        "192.0.2.1-",
        "192.0.2.0/33",
        "192.0.2.1-192.0.2.2-192.0.2.3",
        "192.0.2",
        "fe80::1%eth0",
    ] {
        assert!(matches!(refused(text), E::Unreadable(_)), "{text:?}");
    }
    assert!(matches!(parse_subnet("192.0.2.1"), Err(E::NotAPrefix(_))));
}

#[test]
fn a_neighbour_is_not_inside() {
    let r = range("10.0.0.10-10.0.0.20");
    for (text, inside) in [
        ("10.0.0.9", false),
        ("10.0.0.10", true),
        ("10.0.0.20", true),
        ("10.0.0.21", false),
        ("::a00:a", false),
    ] {
        assert_eq!(r.contains(text.parse().unwrap()), inside, "{text}");
    }
    assert!(r.overlaps(range("10.0.0.20-10.0.0.30")));
    assert!(!r.overlaps(range("10.0.0.21-10.0.0.30")));
    assert!(r.lies_in("10.0.0.0/27".parse().unwrap()));
    assert!(!r.lies_in("10.0.0.0/28".parse().unwrap()));
}

proptest! {
    #[test]
    fn text_round_trips(a: u128, b: u128, v4: bool) {
        let (a, b) = if v4 { (a & 0xffff_ffff, b & 0xffff_ffff) } else { (a, b) };
        let family = if v4 { Family::V4 } else { Family::V6 };
        let (first, last) = (vip(a.min(b), family), vip(a.max(b), family));
        // A v6 number may be a mapped v4 address, which has another identity.
        prop_assume!(first.family() == family && last.family() == family);
        let r = Range::new(first, last).unwrap();
        prop_assert_eq!(Range::parse(&r.to_string()).unwrap(), r);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,120}") {
        drop(Range::parse(&text));
        drop(parse_subnet(&text));
    }

    #[test]
    fn nth_counts_through_the_range(from: u32, len in 1u32..5000, index: u32) {
        let last = from.saturating_add(len - 1);
        let r = Range::new(vip(from.into(), Family::V4), vip(last.into(), Family::V4)).unwrap();
        let got = r.nth(index.into());
        prop_assert_eq!(got.is_some(), u128::from(index) < r.size());
        if let Some(v) = got {
            prop_assert!(r.contains(v));
            prop_assert_eq!(number(v) - number(r.first()), u128::from(index));
        }
    }
}
