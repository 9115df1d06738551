use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use purelb_core::durations;
use purelb_core::pools::{PoolText, Range, RangeRules, Span};
use purelb_core::{Family, IfName, InstanceId, NodeName, ObjectKey, Vip};
use regex::Regex;

use super::text;

/// Prints and reads again as the same, is bounded, and is what the schemas' pattern says.
pub fn duration(data: &[u8]) {
    static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new(durations::PATTERN).expect("a pattern"));
    let text = text(data);
    let parsed = durations::parse(text);
    let of_that_form = !matches!(parsed, Err(durations::NotADuration::Words(_)));
    assert_eq!(PATTERN.is_match(text.trim()), of_that_form, "{text:?}");
    if let Ok(duration) = parsed {
        assert!(duration <= Duration::from_secs(500 * 8766 * 3600));
        assert_eq!(durations::parse(&durations::text(duration)), Ok(duration));
    }
}

/// One address has one text.
pub fn vip(data: &[u8]) {
    let Ok(vip) = text(data).parse::<Vip>() else { return };
    assert_eq!(vip.to_string().parse(), Ok(vip));
    assert_eq!(vip.ip().to_canonical(), vip.ip());
}

/// Never empty, and prints and reads again as the same.
pub fn address_span(data: &[u8]) {
    let Ok(span) = text(data).parse::<Span>() else { return };
    assert!(span.first() <= span.last() && span.size() >= 1 && span.covers(&span));
    assert_eq!(Span::of_addresses(span.first(), span.last()), Some(span));
    // The edge of a wide IPv6 prefix may be an IPv4-mapped address, which reads as IPv4.
    if [span.first(), span.last()].iter().all(|ip| ip.to_canonical() == *ip) {
        assert_eq!(span.to_string().parse(), Ok(span));
    }
}

/// Bounded, and safe to put into a list or a path.
pub fn object_names(data: &[u8]) {
    let text = text(data);
    let check = |name: &str, longest: usize| {
        assert_eq!(name, text);
        assert!(!name.is_empty() && name.len() <= longest);
        assert!(!name.contains(|c: char| c.is_whitespace() || c.is_control()));
    };
    if let Ok(name) = NodeName::new(text) {
        check(name.as_str(), 253);
        assert!(!text.contains(','));
    }
    if let Ok(id) = InstanceId::new(text) {
        check(id.as_str(), 253);
    }
    if let Ok(name) = IfName::new(text) {
        check(name.as_str(), 15);
        assert!(!text.contains('/'));
    }
    if let Ok(key) = ObjectKey::new(text) {
        check(key.as_str(), 510);
        assert!(key.namespace().len() + key.name().len() <= text.len());
    }
}

/// The lines are pool, subnet, aggregation, and an address that is reserved. A range lies in
/// its subnet, and its size is the number of addresses that may be given.
pub fn pool_range(data: &[u8]) {
    let mut lines = text(data).lines();
    let mut line = || lines.next().unwrap_or_default();
    let text = PoolText { pool: line(), subnet: line(), aggregation: line() };
    let reserved: Vec<Span> = line().parse().into_iter().collect();
    for (family, skip_last_octet) in [(Family::V4, false), (Family::V4, true), (Family::V6, false)] {
        let rules = RangeRules { skip_last_octet, reserved: reserved.clone(), ..RangeRules::default() };
        let Ok(range) = Range::parse("pool", text, family, &rules) else { continue };
        let span = range.span();
        assert!(Span::of_net(range.subnet()).covers(&span));
        assert!((1..=span.size()).contains(&range.size()));
        assert!(range.prefix_len() <= family.bits());
        if span.size() <= 512 {
            assert_eq!(range.size(), count_usable(&range));
        }
    }
}

fn count_usable(range: &Range) -> u128 {
    let span = range.span();
    let mut ip = span.first();
    let mut usable = 0;
    loop {
        // As a `Vip` an IPv4-mapped address is another one; it is never given.
        let same = ip.to_canonical() == ip;
        usable += u128::from(same && range.why_excluded(Vip::new(ip)).is_none());
        if ip == span.last() {
            return usable;
        }
        ip = match ip {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) + 1).into()),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) + 1).into()),
        };
    }
}
