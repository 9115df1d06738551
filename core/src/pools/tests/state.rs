//! Rebuilding, editing groups, and what survives.

use super::*;

#[test]
fn an_edit_takes_no_address_away_and_flags_those_outside() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.9", "10.0.1.1-10.0.1.9"]);
    assert_eq!(Ask::of("a").ips(&mut pools), "10.0.0.1");
    assert_eq!(Ask::of("b").explicit(&["10.0.1.5"]).ips(&mut pools), "10.0.1.5");

    pools.set_groups([mk_group("default", 0, &["10.0.1.1-10.0.1.9"])]);
    let held = pools.held(vip("10.0.0.1")).unwrap();
    assert_eq!((&held.place, held.out_of_range().count()), (&PoolPlace::Outside, 1));
    assert_eq!(pools.held(vip("10.0.1.5")).unwrap().out_of_range().count(), 0);
    let stats = pools.stats(&named("default")).v4;
    assert_eq!((stats.size, stats.in_use, stats.available, stats.outside), (9, 1, 8, 1));
    // The Service asks again, in any way, and keeps what it has.
    let every = RangePick::EveryRange(&|_| true);
    assert_eq!(Ask::of("a").ips(&mut pools), "10.0.0.1");
    assert_eq!(Ask::of("a").explicit(&["10.0.0.1"]).ips(&mut pools), "10.0.0.1");
    assert_eq!(Ask::of("a").pick(every).ips(&mut pools), "10.0.1.1 10.0.0.1");
    // Nobody else gets it, though the range comes back as another group's.
    pools.set_groups([mk_group("new", 9, &["10.0.0.0-10.0.0.9"])]);
    assert_eq!(
        Ask::of("c").group("new").explicit(&["10.0.0.1"]).get(&mut pools).unwrap_err().reason(),
        "in_use"
    );
    assert_eq!(Ask::of("c").group("new").ips(&mut pools), "10.0.0.2");
    assert_eq!(pools.stats(&named("default")).v4.outside, 3);
    // Released once nobody wants it: it is the new group's then.
    assert_eq!(pools.release(&svc("a"), vip("10.0.0.1")), ReleaseOutcome::Freed);
    assert_eq!(Ask::of("d").group("new").ips(&mut pools), "10.0.0.1");
}

#[test]
fn an_address_released_outside_every_range_stays_outside() {
    let mut pools = mk_pools(&["10.0.0.1-10.0.0.2"]);
    pools.adopt(&svc("a"), vip("10.9.9.9"), claim("default", SharingTerms::alone()));
    assert_eq!(pools.release_all(&svc("a")), [(vip("10.9.9.9"), ReleaseOutcome::Freed)]);
    assert_eq!(pools.stats(&named("default")).v4.available, 2);
    assert_eq!(pools.release_all(&svc("a")), []);
}

#[test]
fn an_excluded_address_from_before_is_kept_and_never_given_again() {
    let mut pools = AddressPools::new();
    let range = mk_range("f", "10.0.0.0/30", "10.0.0.0/30", &RangeRules::default());
    pools.set_groups([Group::new(named("default"), 0, vec![range]).unwrap()]);
    let place = pools.adopt(&svc("old"), vip("10.0.0.0"), claim("default", SharingTerms::alone()));
    assert!(matches!(place, PoolPlace::Excluded { why: ExclusionReason::NetworkAddress, .. }));
    let stats = pools.stats(&named("default")).v4;
    assert_eq!((stats.size, stats.in_use, stats.available, stats.outside), (2, 0, 2, 1));
    assert_eq!(Ask::of("old").ips(&mut pools), "10.0.0.0");
    assert_eq!(pools.release(&svc("old"), vip("10.0.0.0")), ReleaseOutcome::Freed);
    assert_eq!(Ask::of("a").ips(&mut pools), "10.0.0.1");
    assert_eq!(pools.stats(&named("default")).v4.outside, 0);
}

#[test]
fn two_services_adopted_on_one_address_are_both_recorded() {
    let ip = vip("10.0.0.1");
    for order in [["a", "b"], ["b", "a"]] {
        let mut pools = mk_pools(&["10.0.0.1-10.0.0.9"]);
        for name in order {
            pools.adopt(&svc(name), ip, claim("default", SharingTerms::alone()));
        }
        let conflict = SharingConflict { ip, services: vec![svc("a"), svc("b")], clash: SharingClash::Keys };
        assert_eq!(pools.conflicts().collect::<Vec<_>>(), [conflict]);
        assert_eq!(pools.stats(&named("default")).v4.in_use, 1);
        // Not a place for a third one, and not free before both have left.
        assert_eq!(Ask::of("c").explicit(&["10.0.0.1"]).get(&mut pools).unwrap_err().reason(), "in_use");
        assert_eq!(pools.release(&svc("a"), ip), ReleaseOutcome::StillHeldBy(1));
        assert_eq!(Ask::of("c").ips(&mut pools), "10.0.0.2");
    }
}

#[test]
fn a_refused_groups_addresses_are_held_against_the_one_that_won() {
    let mut pools = AddressPools::new();
    pools.set_groups([mk_group("young", 5, &["10.0.0.1-10.0.0.9"])]);
    assert_eq!(Ask::of("a").group("young").ips(&mut pools), "10.0.0.1");
    let admission = pools.set_groups([
        mk_group("young", 5, &["10.0.0.1-10.0.0.9"]),
        mk_group("default", 1, &["10.0.0.1-10.0.0.3"]),
    ]);
    assert!(admission.refused.contains_key(&named("young")));
    assert_eq!(Ask::of("b").ips(&mut pools), "10.0.0.2");
    assert_eq!(pools.held(vip("10.0.0.1")).unwrap().out_of_range().collect::<Vec<_>>(), [&svc("a")]);
    assert_eq!(pools.stats(&named("young")).v4, FamilyStats { outside: 1, ..FamilyStats::default() });
}

#[test]
fn claims_may_come_before_the_groups() {
    let mut pools = AddressPools::new();
    let unknown = AddressClaim { group: None, terms: SharingTerms::alone() };
    assert_eq!(pools.adopt(&svc("a"), vip("10.0.0.1"), unknown), PoolPlace::Outside);
    assert_eq!(pools.held(vip("10.0.0.1")).unwrap().out_of_range().count(), 1);
    pools.set_groups([mk_group("default", 0, &["10.0.0.1-10.0.0.9"])]);
    assert_eq!(pools.held(vip("10.0.0.1")).unwrap().out_of_range().count(), 0);
    assert_eq!(pools.group_of(vip("10.0.0.1")), Some(&named("default")));
    assert_eq!(Ask::of("b").ips(&mut pools), "10.0.0.2");
    assert_eq!(Ask::of("a").ips(&mut pools), "10.0.0.1");
}

#[test]
fn moving_to_another_group_names_the_old_address_as_surplus() {
    let mut pools = AddressPools::new();
    pools.set_groups([
        mk_group("default", 0, &["10.0.0.1-10.0.0.9"]),
        mk_group("two", 0, &["10.1.0.1-10.1.0.9"]),
    ]);
    assert_eq!(Ask::of("a").ips(&mut pools), "10.0.0.1");
    let grant = Ask::of("a").group("two").get(&mut pools).unwrap();
    assert_eq!(grant.ips().collect::<Vec<_>>(), [vip("10.1.0.1")]);
    assert_eq!(grant.surplus, [vip("10.0.0.1")]);
}

#[test]
fn a_wide_ipv6_range_ending_among_the_mapped_addresses_is_rebuilt() {
    let mut pools = AddressPools::new();
    pools.adopt(&svc("v4"), vip("1.2.3.4"), claim("default", SharingTerms::alone()));
    pools.adopt(&svc("v6"), vip("::fffe:0:0"), claim("default", SharingTerms::alone()));
    let range = mk_range("f", "::fffe:0:0/95", "::/0", &RangeRules::default());
    pools.set_groups([Group::new(named("default"), 0, vec![range]).unwrap()]);
    let stats = pools.stats(&named("default"));
    assert_eq!((stats.v6.size, stats.v6.in_use, stats.v4.outside), (1 << 32, 1, 1));
    assert_eq!(Ask::of("a").v6().ips(&mut pools), "::fffe:0:1");
}
