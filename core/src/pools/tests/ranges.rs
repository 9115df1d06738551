//! Texts, arithmetic, exclusions, free intervals.

use proptest::prelude::*;

use super::super::free_set::FreeSet;
use super::*;

fn parse(pool: &str, subnet: &str, family: Family) -> Result<Range, RangeError> {
    parse_with(pool, subnet, "", family, &RangeRules::default())
}

fn parse_with(
    pool: &str,
    subnet: &str,
    aggregation: &str,
    family: Family,
    rules: &RangeRules,
) -> Result<Range, RangeError> {
    let text = PoolText { pool, subnet, aggregation };
    Range::parse("spec.local.v4pool", text, family, rules)
}

#[test]
fn the_three_spellings_of_a_pool() {
    for (text, shown, size) in [
        ("192.0.2.0/24", "192.0.2.0-192.0.2.255", 256),
        ("192.0.2.77/24", "192.0.2.0-192.0.2.255", 256),
        (" 192.0.2.10 - 192.0.2.19 ", "192.0.2.10-192.0.2.19", 10),
        ("192.0.2.7", "192.0.2.7", 1),
        ("192.0.2.7/32", "192.0.2.7", 1),
        ("::ffff:192.0.2.0/120", "192.0.2.0-192.0.2.255", 256),
        ("::ffff:192.0.2.1-192.0.2.2", "192.0.2.1-192.0.2.2", 2),
        ("2001:db8::/64", "2001:db8::-2001:db8::ffff:ffff:ffff:ffff", 1 << 64),
        ("2001:db8::/48", "2001:db8::-2001:db8:0:ffff:ffff:ffff:ffff:ffff", 1 << 80),
        ("::/0", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", u128::MAX),
        ("0.0.0.0/0", "0.0.0.0-255.255.255.255", 1 << 32),
    ] {
        let span: Span = text.parse().unwrap();
        assert_eq!((span.to_string().as_str(), span.size()), (shown, size), "{text}");
    }
}

#[test]
fn bad_ranges_name_the_field_and_the_cause() {
    let (v4, v6) = (Family::V4, Family::V6);
    for (pool, subnet, family, message) in [
        ("", "10.0.0.0/8", v4, "spec.local.v4pool.pool: is empty"),
        ("10.0.0.1-", "10.0.0.0/8", v4, "spec.local.v4pool.pool: \"\" is not an IP address"),
        (
            "10.0.0.9-10.0.0.1",
            "10.0.0.0/8",
            v4,
            "spec.local.v4pool.pool: goes from 10.0.0.9 down to 10.0.0.1",
        ),
        ("10.0.0.1-fd00::1", "10.0.0.0/8", v4, "spec.local.v4pool.pool: goes from 10.0.0.1 to fd00::1"),
        ("10.0.0.0/33", "10.0.0.0/8", v4, "spec.local.v4pool.pool: \"10.0.0.0/33\" is not a CIDR"),
        ("fd00::/64", "fd00::/64", v4, "spec.local.v4pool.pool: is IPv6, but this field takes IPv4"),
        ("10.0.0.0/24", "10.0.0.0/24", v6, "spec.local.v4pool.pool: is IPv4, but this field takes IPv6"),
        ("10.0.0.0/24", "", v4, "spec.local.v4pool.subnet: is empty"),
        ("10.0.0.0/24", "10.0.0.0", v4, "spec.local.v4pool.subnet: \"10.0.0.0\" is not a CIDR"),
        ("10.0.0.0/24", "fd00::/8", v4, "spec.local.v4pool.subnet: is IPv6"),
        ("10.0.0.0/24", "10.0.1.0/24", v4, "spec.local.v4pool.pool: 10.0.0.0-10.0.0.255 is not inside"),
        (
            "10.0.0.0/32",
            "10.0.0.0/24",
            v4,
            "spec.local.v4pool.pool: 10.0.0.0 has no address a Service can use",
        ),
        ("127.0.0.0/24", "127.0.0.0/8", v4, "spec.local.v4pool.pool: 127.0.0.0-127.0.0.255 has no address"),
        ("::ffff:0:0/95", "::/0", v6, "ok"),
    ] {
        let text = match parse(pool, subnet, family) {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(text.starts_with(message), "{pool} in {subnet}: {text}");
    }
}

#[test]
fn aggregation_is_checked_against_the_family() {
    let len = |text: &str, family, pool: &str| {
        parse_with(pool, pool, text, family, &RangeRules::default()).map(|range| range.prefix_len())
    };
    assert_eq!(len("default", Family::V4, "10.0.0.0/24"), Ok(24));
    assert_eq!(len("/32", Family::V4, "10.0.0.0/24"), Ok(32));
    assert_eq!(len("/128", Family::V6, "fd00::/64"), Ok(128));
    for bad in ["/33", "/7", "32", "/", "/+9", "/999"] {
        let error = len(bad, Family::V4, "10.0.0.0/24").unwrap_err();
        assert_eq!(error.field, "spec.local.v4pool.aggregation", "{bad}");
    }
}

#[test]
fn excluded_addresses_say_why_and_are_not_counted() {
    let reserved = vec!["10.0.0.1".parse().unwrap(), "10.0.0.250-10.0.1.10".parse().unwrap()];
    let rules = RangeRules { skip_last_octet: true, reserved, ..RangeRules::default() };
    let range = mk_range("f", "10.0.0.0/23", "10.0.0.0/23", &rules);
    let why = |ip: &str| range.why_excluded(vip(ip));
    assert_eq!(why("10.0.0.0"), Some(ExclusionReason::NetworkAddress));
    assert_eq!(why("10.0.0.1"), Some(ExclusionReason::Reserved));
    assert_eq!(why("10.0.0.2"), None);
    assert_eq!(why("10.0.0.255"), Some(ExclusionReason::Reserved));
    assert_eq!(why("10.0.1.11"), None);
    assert_eq!(why("10.0.1.255"), Some(ExclusionReason::BroadcastAddress));
    // 2..=249 of the first /24, 11..=254 of the second.
    assert_eq!(range.size(), 248 + 244);

    let inner = mk_range(
        "f",
        "10.0.0.0/23",
        "10.0.0.0/16",
        &RangeRules { skip_last_octet: true, ..RangeRules::default() },
    );
    assert_eq!(inner.why_excluded(vip("10.0.0.255")), Some(ExclusionReason::LastOctet));
    assert_eq!(inner.size(), 512 - 4);
}

#[test]
fn edges_are_kept_where_the_subnet_has_none() {
    assert_eq!(parse("10.0.0.0/31", "10.0.0.0/31", Family::V4).unwrap().size(), 2);
    assert_eq!(parse("10.0.0.0/32", "10.0.0.0/32", Family::V4).unwrap().size(), 1);
    assert_eq!(parse("10.0.0.0/30", "10.0.0.0/30", Family::V4).unwrap().size(), 2);
    assert_eq!(parse("fd00::/127", "fd00::/127", Family::V6).unwrap().size(), 2);
    assert_eq!(parse("fd00::/126", "fd00::/126", Family::V6).unwrap().size(), 3);
    assert_eq!(parse("fd00::/64", "fd00::/64", Family::V6).unwrap().size(), (1 << 64) - 1);
}

#[test]
fn the_whole_internet_is_a_pool_that_can_be_counted() {
    let all = parse("::/0", "::/0", Family::V6).unwrap();
    let special = 2 + (1 << 32) + (1_u128 << 118) + (1_u128 << 120);
    assert_eq!(all.size(), u128::MAX - special + 1);
    assert_eq!(all.why_excluded(vip("ff02::1")), Some(ExclusionReason::Special));
    let v4 = parse_with(
        "0.0.0.0/0",
        "0.0.0.0/0",
        "",
        Family::V4,
        &RangeRules { skip_last_octet: true, ..RangeRules::default() },
    );
    let hosts = (256 - 1 - 1 - 16) * 65_536 * 254;
    assert_eq!(v4.unwrap().size(), hosts);
}

proptest! {
    #[test]
    fn no_text_panics(pool in ".{0,40}", subnet in ".{0,24}", aggregation in ".{0,6}") {
        for family in [Family::V4, Family::V6] {
            let _ = parse_with(&pool, &subnet, &aggregation, family, &RangeRules::default());
        }
    }

    /// Texts that look like ranges, edges of the number space included.
    #[test]
    fn no_plausible_text_panics(
        a in any::<u128>(), b in any::<u128>(), len in 0..=130_u8, v4 in any::<bool>(), form in 0..3,
        skip in any::<bool>(),
    ) {
        let ip = |n: u128| if v4 {
            std::net::Ipv4Addr::from((n >> 96) as u32).to_string()
        } else {
            std::net::Ipv6Addr::from(n).to_string()
        };
        let pool = match form {
            0 => format!("{}-{}", ip(a), ip(b)),
            1 => format!("{}/{len}", ip(a)),
            _ => ip(a),
        };
        let (subnet, family) = if v4 { ("0.0.0.0/0", Family::V4) } else { ("::/0", Family::V6) };
        let rules = RangeRules { skip_last_octet: skip, ..RangeRules::default() };
        if let Ok(range) = parse_with(&pool, subnet, "default", family, &rules) {
            prop_assert!(range.size() >= 1 && range.size() <= range.span().size());
            let mut pools = AddressPools::new();
            pools.set_groups([Group::new(named("default"), 0, vec![range.clone()]).unwrap()]);
            let grant = Ask::of("a").families(Families::One(family)).get(&mut pools).unwrap();
            let ip = grant.addresses[0].ip;
            prop_assert!(range.span().contains(ip) && range.why_excluded(ip).is_none());
        }
    }

    #[test]
    fn sizes_are_those_of_counting(
        start in 0..3000_u32, len in 0..1500_u32, skip in any::<bool>(),
        reserved in prop::collection::vec((0..4500_u32, 0..300_u32), 0..5),
    ) {
        let ip = |n: u32| std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
        let spans = reserved.iter().map(|(a, b)| format!("{}-{}", ip(*a), ip(a + b)).parse().unwrap());
        let rules = RangeRules { skip_last_octet: skip, reserved: spans.collect(), ..RangeRules::default() };
        let pool = format!("{}-{}", ip(start), ip(start + len));
        let expected = (start..=start + len).filter(|n| {
            *n != 0 && !(skip && matches!(n & 255, 0 | 255))
                && !reserved.iter().any(|(a, b)| (*a..=a + b).contains(n))
        }).count() as u128;
        match parse_with(&pool, "10.0.0.0/8", "", Family::V4, &rules) {
            Ok(range) => prop_assert_eq!(range.size(), expected),
            Err(error) => prop_assert_eq!(expected, 0, "{}", error),
        }
    }

    /// Against a plain set, at both ends of the number space.
    #[test]
    fn free_intervals_are_a_set(
        high in any::<bool>(),
        ops in prop::collection::vec((0..3_u8, 0..41_u8, 0..6_u8), 0..120),
    ) {
        let base = if high { u128::MAX - 47 } else { 0 };
        let mut free = FreeSet::full(base, base + 47);
        let mut model: std::collections::BTreeSet<u128> = (base..=base + 47).collect();
        for (op, n, more) in ops {
            let n = base + u128::from(n) + 7;
            match op {
                0 => prop_assert_eq!(free.remove(n), model.remove(&n)),
                1 => prop_assert_eq!(free.insert(n), model.insert(n)),
                _ => {
                    let last = n.saturating_add(u128::from(more));
                    free.remove_span(n, last);
                    model.retain(|m| !(n..=last).contains(m));
                }
            }
            prop_assert_eq!(free.lowest(), model.first().copied());
            prop_assert_eq!(free.contains(n), model.contains(&n));
        }
        let intervals = free.intervals();
        let listed: Vec<u128> = intervals.iter().flat_map(|(a, b)| *a..=*b).collect();
        prop_assert_eq!(listed, model.into_iter().collect::<Vec<_>>());
        for pair in intervals.windows(2) {
            prop_assert!(pair[0].1 + 1 < pair[1].0, "touching intervals: {:?}", intervals);
        }
    }
}
