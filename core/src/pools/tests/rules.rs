//! Choosing and refusing: first fit, balanced, multi-pool, families, explicit.

use super::*;

const BOTH: Families = Families::Both { first: Family::V4 };
const EITHER: Families = Families::Either { first: Family::V4 };

#[test]
fn first_fit_takes_the_lowest_of_the_first_range_with_room() {
    let mut pools = mk_pools(&["10.0.9.1-10.0.9.2", "10.0.1.1-10.0.1.9"]);
    assert_eq!(Ask::of("a").ips(&mut pools), "10.0.9.1");
    assert_eq!(Ask::of("b").ips(&mut pools), "10.0.9.2");
    assert_eq!(Ask::of("c").ips(&mut pools), "10.0.1.1");
    assert_eq!(pools.release(&svc("b"), vip("10.0.9.2")), ReleaseOutcome::Freed);
    assert_eq!(Ask::of("d").ips(&mut pools), "10.0.9.2");
}

#[test]
fn asking_again_changes_nothing() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
    assert_eq!(Ask::of("a").get(&mut pools).unwrap().addresses[0].how, GrantKind::New);
    let again = Ask::of("a").get(&mut pools).unwrap();
    assert_eq!(again.addresses, [GrantedAddress { ip: vip("10.0.0.1"), how: GrantKind::Kept }]);
    assert!(again.surplus.is_empty() && again.missing.is_empty());
    assert_eq!(pools.stats(&named("default")).v4.in_use, 1);
}

#[test]
fn balanced_takes_the_range_with_the_fewest_in_use() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.3", "10.0.1.1-10.0.1.1", "10.0.2.1-10.0.2.9"]);
    let got: Vec<String> =
        (0..7).map(|i| Ask::of(&format!("s{i}")).pick(RangePick::Balanced).ips(&mut pools)).collect();
    let expected = ["10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.0.2", "10.0.2.2", "10.0.0.3", "10.0.2.3"];
    assert_eq!(got, expected);
}

#[test]
fn multi_pool_gives_one_of_every_eligible_range_and_follows_the_nodes() {
    let mut pools =
        mk_pools(&["10.0.0.1-10.0.0.9", "10.0.1.1-10.0.1.9", "10.0.2.1-10.0.2.9", "fd00::1-fd00::9"]);
    let net = |text: &str| text.parse::<ipnet::IpNet>().unwrap();
    let two = [net("10.0.0.0/24"), net("10.0.2.0/24"), net("fd00::/64")];
    let live_two = |range: &Range| range.served_by(&two);
    let ask = Ask::of("a").families(BOTH).pick(RangePick::EveryRange(&live_two));
    assert_eq!(ask.ips(&mut pools), "10.0.0.1 10.0.2.1 fd00::1");

    // A node of the second subnet joins: one more. Then the first one's leave.
    let all = Ask::of("a").families(BOTH).pick(RangePick::EveryRange(&|_| true));
    assert_eq!(all.ips(&mut pools), "10.0.0.1 10.0.1.1 10.0.2.1 fd00::1");
    let later = [net("10.0.1.0/24"), net("fd00::/64")];
    let live_later = |range: &Range| range.served_by(&later);
    let grant = Ask::of("a").families(BOTH).pick(RangePick::EveryRange(&live_later)).get(&mut pools).unwrap();
    assert_eq!(grant.ips().collect::<Vec<_>>(), [vip("10.0.1.1"), vip("fd00::1")]);
    assert_eq!(grant.surplus, [vip("10.0.0.1"), vip("10.0.2.1")]);

    // No node at all: refused, nothing named as surplus, nothing lost.
    let none = Ask::of("a").families(BOTH).pick(RangePick::EveryRange(&|_| false));
    let error = none.get(&mut pools).unwrap_err();
    assert_eq!((error.reason(), error.waits_for()), ("no_eligible_range", WaitsFor::Node));
    assert_eq!(pools.addresses_of(&svc("a")).count(), 4);
}

#[test]
fn multi_pool_goes_on_without_a_full_range() {
    let mut pools = mk_pools(&["10.0.0.1", "10.0.1.1-10.0.1.9"]);
    assert_eq!(Ask::of("first").ips(&mut pools), "10.0.0.1");
    let grant = Ask::of("a").pick(RangePick::EveryRange(&|_| true)).get(&mut pools).unwrap();
    assert_eq!(grant.ips().collect::<Vec<_>>(), [vip("10.0.1.1")]);
    assert_eq!(grant.missing[0].field.as_deref(), Some("spec.local.pools[0]"));
    assert!(matches!(grant.missing[0].why, AllocateError::Exhausted { size: 1, .. }));
}

#[test]
fn both_families_or_nothing() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.2", "fd00::1-fd00::1"]);
    assert_eq!(Ask::of("a").families(BOTH).ips(&mut pools), "10.0.0.1 fd00::1");
    let error = Ask::of("b").families(BOTH).get(&mut pools).unwrap_err();
    assert!(matches!(error, AllocateError::Exhausted { family: Family::V6, .. }), "{error}");
    assert_eq!(pools.addresses_of(&svc("b")).count(), 0);
    assert_eq!(pools.stats(&named("default")).v4.in_use, 1);

    let grant = Ask::of("b").families(EITHER).get(&mut pools).unwrap();
    assert_eq!(grant.ips().collect::<Vec<_>>(), [vip("10.0.0.2")]);
    assert_eq!(grant.missing[0].family, Family::V6);
    // What was missing comes once it is free, and the rest stays.
    pools.release_all(&svc("a"));
    assert_eq!(Ask::of("b").families(EITHER).ips(&mut pools), "10.0.0.2 fd00::1");
}

#[test]
fn prefer_dual_stack_on_a_pool_of_one_family() {
    let mut pools = mk_pools(&["fd00::1-fd00::1"]);
    assert_eq!(Ask::of("a").families(EITHER).ips(&mut pools), "fd00::1");
    // The error that can pass is told, not the family the group never had.
    let error = Ask::of("b").families(EITHER).get(&mut pools).unwrap_err();
    assert_eq!((error.reason(), error.waits_for()), ("exhausted", WaitsFor::Release));
    let error = Ask::of("c").get(&mut pools).unwrap_err();
    assert_eq!(error.reason(), "no_range");
}

#[test]
fn families_come_primary_first_and_go_as_surplus() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9", "fd00::1-fd00::9"]);
    let ask = Ask::of("a").families(Families::Both { first: Family::V6 });
    assert_eq!(ask.ips(&mut pools), "fd00::1 10.0.0.1");
    let grant = Ask::of("a").v6().get(&mut pools).unwrap();
    assert_eq!(grant.surplus, [vip("10.0.0.1")]);
    assert_eq!(pools.references(vip("10.0.0.1")), 1, "naming a surplus releases nothing");
}

#[test]
fn explicit_addresses_are_given_or_refused_with_the_cause() {
    let mut pools = AddressPools::new();
    let rules = RangeRules { reserved: vec!["10.0.0.254".parse().unwrap()], ..RangeRules::default() };
    let local = mk_range("spec.local.v4pool", "10.0.0.0/24", "10.0.0.0/24", &rules);
    let six = mk_range("spec.local.v6pool", "fd00::/64", "fd00::/64", &rules);
    let group = Group::new(named("default"), 0, vec![local, six]).unwrap();
    pools.set_groups([group, mk_group("other", 1, &["10.1.0.0/24"])]);
    assert_eq!(Ask::of("a").explicit(&["10.0.0.7"]).ips(&mut pools), "10.0.0.7");

    let v4 = Families::One(Family::V4);
    for (families, ips, reason, text) in [
        (v4, &["10.0.0.7"][..], "in_use", "in use by Service web/a"),
        (v4, &["10.9.9.9"], "out_of_pool", "is not in a pool of ServiceGroup purelb-system/default"),
        (v4, &["10.1.0.5"], "out_of_pool", "belongs to ServiceGroup purelb-system/other"),
        (v4, &["fd00::5"], "wrong_family", "fd00::5 is IPv6, but the Service wants IPv4 only"),
        (v4, &["10.0.0.0"], "excluded", "the network address"),
        (v4, &["10.0.0.255"], "excluded", "the broadcast address"),
        (v4, &["10.0.0.254"], "excluded", "it is reserved"),
        (BOTH, &["10.0.0.9", "fd00::"], "excluded", "subnet-router anycast"),
        (EITHER, &["10.0.0.9", "fd01::1"], "out_of_pool", "fd01::1"),
        (BOTH, &["10.0.0.8", "10.0.0.9"], "two_of_one_family", "10.0.0.8 and 10.0.0.9"),
    ] {
        let error = Ask::of("b").families(families).explicit(ips).get(&mut pools).unwrap_err();
        assert_eq!(error.reason(), reason, "{ips:?}: {error}");
        assert!(error.to_string().contains(text), "{ips:?}: {error}");
    }
    assert_eq!(pools.addresses_of(&svc("b")).count(), 0, "a refusal leaves nothing behind");
    // The family without an explicit address is chosen as ever.
    assert_eq!(Ask::of("b").families(BOTH).explicit(&["fd00::5"]).ips(&mut pools), "10.0.0.1 fd00::5");
}

#[test]
fn a_changed_explicit_address_is_new_first_then_release() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
    assert_eq!(Ask::of("a").ips(&mut pools), "10.0.0.1");
    let grant = Ask::of("a").explicit(&["10.0.0.5"]).get(&mut pools).unwrap();
    assert_eq!(grant.addresses, [GrantedAddress { ip: vip("10.0.0.5"), how: GrantKind::New }]);
    assert_eq!(grant.surplus, [vip("10.0.0.1")]);
    assert_eq!(pools.release(&svc("a"), vip("10.0.0.1")), ReleaseOutcome::Freed);
    let grant = Ask::of("a").explicit(&["10.0.0.5"]).get(&mut pools).unwrap();
    assert_eq!(grant.addresses[0].how, GrantKind::Kept);
    assert!(grant.surplus.is_empty());
}

#[test]
fn unknown_and_refused_groups_are_told_apart() {
    let mut pools = AddressPools::new();
    let young = mk_group("young", 5, &["10.0.0.5-10.0.0.20"]);
    pools.set_groups([young.clone(), mk_group("default", 1, &["10.0.0.1-10.0.0.9"])]);
    let error = Ask::of("a").group("nobody").get(&mut pools).unwrap_err();
    assert_eq!(error.reason(), "no_such_group");
    let error = Ask::of("a").group("young").get(&mut pools).unwrap_err();
    assert_eq!(error.reason(), "group_refused");
    assert!(error.to_string().contains("10.0.0.5-10.0.0.9"), "{error}");
    // The older one goes: the refused one comes in.
    assert!(pools.set_groups([young]).refused.is_empty());
    assert_eq!(Ask::of("a").group("young").ips(&mut pools), "10.0.0.5");
}

#[test]
fn a_64_is_instant_and_counts_do_not_wrap() {
    let mut pools = AddressPools::new();
    let rules = RangeRules::default();
    let wide = mk_range("a", "2001:db8::/64", "2001:db8::/64", &rules);
    let all = mk_range("b", "8000::/1", "8000::/1", &rules);
    pools.set_groups([Group::new(named("default"), 0, vec![wide, all]).unwrap()]);
    assert_eq!(Ask::of("a").v6().ips(&mut pools), "2001:db8::1");
    let last = Ask::of("b").v6().explicit(&["2001:db8::ffff:ffff:ffff:ffff"]).get(&mut pools);
    assert_eq!(last.unwrap().addresses[0].how, GrantKind::New);
    let stats = pools.stats(&named("default"));
    assert_eq!(stats.ranges[0].available, (1 << 64) - 3);
    assert_eq!(stats.v6.size, stats.v6.available + 2);
}

#[test]
fn a_full_16_with_the_octet_rule_has_254_addresses_per_24() {
    let mut pools = AddressPools::new();
    let rules = RangeRules { skip_last_octet: true, ..RangeRules::default() };
    let range = mk_range("f", "10.7.0.0/16", "10.0.0.0/8", &rules);
    pools.set_groups([Group::new(named("default"), 0, vec![range]).unwrap()]);
    let mut last = None;
    for i in 0..254 * 256 {
        let ip = Ask::of(&format!("s{i}")).get(&mut pools).unwrap().addresses[0].ip;
        assert!(last < Some(ip) && !ip.to_string().ends_with(".0") && !ip.to_string().ends_with(".255"));
        last = Some(ip);
    }
    assert!(matches!(Ask::of("x").get(&mut pools), Err(AllocateError::Exhausted { size: 65_024, .. })));
    pools.release(&svc("s300"), vip("10.7.1.47"));
    assert_eq!(Ask::of("x").ips(&mut pools), "10.7.1.47");
}
