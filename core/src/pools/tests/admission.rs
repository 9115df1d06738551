//! Overlaps inside a group and between groups.

use proptest::prelude::*;

use super::*;

#[test]
fn an_overlap_inside_a_group_is_refused() {
    let rules = RangeRules::default();
    let ranges = vec![
        mk_range("spec.local.v4pools[0]", "10.0.0.128-10.0.0.200", "10.0.0.0/24", &rules),
        mk_range("spec.local.v4pools[1]", "10.0.0.0/24", "10.0.0.0/24", &rules),
    ];
    let error = Group::new(named("g"), 0, ranges).unwrap_err();
    assert!(error.to_string().contains("overlaps"), "{error}");
}

#[test]
fn of_two_overlapping_groups_the_older_then_the_lower_name_stays() {
    let old = mk_group("z", 1, &["10.0.0.0-10.0.0.9"]);
    let young = mk_group("a", 2, &["10.1.0.0/24", "10.0.0.9-10.0.0.20"]);
    let twin = mk_group("b", 2, &["10.0.0.15-10.0.0.16"]);
    for order in [[&old, &young, &twin], [&twin, &young, &old], [&young, &old, &twin]] {
        let refused = admit(order);
        // `a` is refused, so `b` overlaps nobody who is accepted.
        assert_eq!(refused.keys().collect::<Vec<_>>(), [&named("a")]);
        let text = refused[&named("a")].to_string();
        assert!(text.contains("purelb-system/z in 10.0.0.9"), "{text}");
    }
    let refused = admit([&young, &twin]);
    assert_eq!(refused.keys().collect::<Vec<_>>(), [&named("b")]);
}

/// Admission the plain way: every pair compared.
fn admit_naive(groups: &[Group]) -> Vec<GroupName> {
    let mut sorted: Vec<&Group> = groups.iter().collect();
    sorted.sort_by_key(|g| (g.created(), g.name().clone()));
    let mut accepted: Vec<&Group> = Vec::new();
    let mut refused = Vec::new();
    for group in sorted {
        let clash = |other: &&Group| {
            let pairs = other.ranges().iter().flat_map(|a| group.ranges().iter().map(move |b| (a, b)));
            pairs.into_iter().any(|(a, b)| a.span().overlaps(&b.span()))
        };
        if accepted.iter().any(clash) {
            refused.push(group.name().clone());
        } else {
            accepted.push(group);
        }
    }
    refused.sort();
    refused
}

fn any_group() -> impl Strategy<Value = (i64, Vec<(u8, u8, bool)>)> {
    (0..4_i64, prop::collection::vec((0..60_u8, 0..6_u8, any::<bool>()), 1..4))
}

proptest! {
    #[test]
    fn admission_is_that_of_all_pairs_in_any_order(
        specs in prop::collection::vec(any_group(), 1..12), turn in 0..12_usize,
    ) {
        let mut groups: Vec<Group> = Vec::new();
        for (i, (created, ranges)) in specs.iter().enumerate() {
            let ranges: Vec<Range> = ranges.iter().map(|(start, len, v6)| {
                let end = start + len;
                let (pool, subnet) = if *v6 {
                    (format!("fd00::1:{start:x}-fd00::1:{end:x}"), "fd00::/64")
                } else {
                    (format!("10.0.1.{start}-10.0.1.{end}"), "10.0.0.0/16")
                };
                mk_range("f", &pool, subnet, &RangeRules::default())
            }).collect();
            groups.extend(Group::new(named(&format!("g{i}")), *created, ranges));
        }
        let refused: Vec<GroupName> = admit(&groups).into_keys().collect();
        prop_assert_eq!(&refused, &admit_naive(&groups));
        if !groups.is_empty() {
            let len = groups.len();
            groups.rotate_left(turn % len);
            groups.reverse();
        }
        prop_assert_eq!(refused, admit(&groups).into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn overlap_is_symmetric(a in 0..40_u8, b in 0..20_u8, c in 0..40_u8, d in 0..20_u8) {
        let x: Span = format!("10.0.0.{a}-10.0.0.{}", a + b).parse().unwrap();
        let y: Span = format!("10.0.0.{c}-10.0.0.{}", c + d).parse().unwrap();
        let common = (a..=a + b).any(|n| (c..=c + d).contains(&n));
        prop_assert_eq!(x.overlaps(&y), common);
        prop_assert_eq!(x.intersection(&y), y.intersection(&x));
    }
}
