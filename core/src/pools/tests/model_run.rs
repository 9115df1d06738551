//! Random steps on the pools and on the model; after each, the same answer and state.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::model::*;
use super::*;

fn allocate(pools: &mut AddressPools, wish: &Wish) -> Result<AddressGrant, AllocateError> {
    let fits = |range: &Range| eligible(wish.pick, range);
    pools.allocate(&AddressRequest {
        service: &service_key(wish.service),
        group: &group_name(wish.group),
        families: wish.families,
        explicit: &wish.explicit,
        leaves: &[],
        terms: wish.terms.clone(),
        pick: match wish.pick {
            0 => RangePick::FirstFit,
            1 => RangePick::Balanced,
            _ => RangePick::EveryRange(&fits),
        },
    })
}

fn check_allocate(model: &mut Model, pools: &mut AddressPools, wish: &Wish) -> Result<(), TestCaseError> {
    let service = service_key(wish.service);
    let expected = model.answer(wish);
    let got = allocate(pools, wish);
    let ips = got.as_ref().ok().map(|grant| grant.ips().collect::<Vec<_>>());
    prop_assert_eq!(&ips, &expected, "{:?}", &got);
    let Ok(grant) = got else {
        return Ok(());
    };
    for granted in &grant.addresses {
        let own = model.claims.contains_key(&(service.clone(), granted.ip));
        let how = match (own, model.held(granted.ip)) {
            (true, _) => GrantKind::Kept,
            (false, true) => GrantKind::Shared,
            (false, false) => GrantKind::New,
        };
        prop_assert_eq!(granted.how, how);
        // The one promise: nobody is put beside somebody who did not agree.
        prop_assert!(own || model.may_join(&service, granted.ip, &wish.terms));
        let accepted = model.accepted();
        let here = accepted.iter().find(|g| g.ranges().iter().any(|r| r.span().contains(granted.ip)));
        let former = model.claims.get(&(service.clone(), granted.ip)).and_then(|c| c.group.clone());
        let asked = group_name(wish.group);
        let group = match former {
            Some(former) if here.map(|g| g.name()) != Some(&asked) => former,
            _ => asked,
        };
        let claim = AddressClaim { group: Some(group), terms: wish.terms.clone() };
        model.claims.insert((service.clone(), granted.ip), claim);
    }
    let own = model.claims.keys().filter(|(s, _)| *s == service).map(|(_, ip)| *ip);
    let surplus: Vec<Vip> = own.filter(|ip| !grant.ips().any(|got| got == *ip)).collect();
    prop_assert_eq!(grant.surplus, surplus);
    Ok(())
}

fn view(pools: &AddressPools) -> Vec<(ObjectKey, Vip, AddressClaim)> {
    let held = pools.all_held();
    held.flat_map(|held| held.holders.into_iter().map(move |(s, claim)| (s, held.ip, claim))).collect()
}

fn check_state(model: &Model, pools: &AddressPools, seed: Index) -> Result<(), TestCaseError> {
    let mut expected: Vec<_> = model.claims.iter().map(|((s, ip), c)| (s.clone(), *ip, c.clone())).collect();
    expected.sort_by_key(|(s, ip, _)| (*ip, s.clone()));
    prop_assert_eq!(view(pools), expected.clone());
    prop_assert_eq!(pools.conflicts().map(|c| c.ip).collect::<BTreeSet<_>>(), model.conflicting());

    let accepted = model.accepted();
    for group in &accepted {
        let stats = pools.stats(group.name());
        for (range, counted) in group.ranges().iter().zip(&stats.ranges) {
            let all = usable(range);
            let in_use = all.iter().filter(|ip| model.held(**ip)).count();
            prop_assert_eq!((counted.size, counted.in_use), (all.len() as u128, in_use as u64));
            prop_assert_eq!(counted.size, counted.available + u128::from(counted.in_use));
        }
        let given = |ip: &Vip| group.ranges().iter().flat_map(usable).any(|u| u == *ip);
        let from_it = model.claims.iter().filter(|(_, c)| c.group.as_ref() == Some(group.name()));
        let outside: BTreeSet<Vip> = from_it.map(|((_, ip), _)| *ip).filter(|ip| !given(ip)).collect();
        prop_assert_eq!(stats.v4.outside + stats.v6.outside, outside.len() as u64);
    }

    // Rebuilt in another order, groups first, last or in the middle: the same.
    let mut rebuilt = AddressPools::new();
    let len = expected.len();
    let turn = seed.index(len + 1);
    expected.rotate_left(turn % len.max(1));
    expected.reverse();
    for (i, (service, ip, claim)) in expected.iter().enumerate() {
        if i == turn {
            rebuilt.set_groups(model.groups.iter().rev().cloned());
        }
        rebuilt.adopt(service, *ip, claim.clone());
    }
    rebuilt.set_groups(model.groups.clone());
    prop_assert_eq!(view(&rebuilt), view(pools));
    let mut live = pools.clone();
    for group in accepted {
        prop_assert_eq!(rebuilt.stats(group.name()), live.stats(group.name()));
        for pick in [0, 1, 255] {
            let number: u8 = group.name().name()[1..].parse().unwrap();
            let families = Families::Either { first: Family::V6 };
            let wish = Wish {
                service: 99,
                group: number,
                families,
                explicit: vec![],
                terms: SharingTerms::alone(),
                pick,
            };
            prop_assert_eq!(allocate(&mut rebuilt, &wish), allocate(&mut live, &wish));
        }
    }
    Ok(())
}

fn any_terms() -> impl Strategy<Value = SharingTerms> {
    let ports = prop::collection::btree_set((1..4_u16).prop_map(|n| Port::new(Protocol::Tcp, n)), 0..3);
    let pods = |name: &str| PodSet::of(&svc(name), &Default::default());
    let pods = select(vec![None, None, Some(pods("a")), Some(pods("b"))]);
    (select(vec!["", "k", "k", "m"]), ports, pods).prop_map(|(key, ports, pods)| SharingTerms {
        sharing: SharingKey::new(key),
        ports,
        pods,
    })
}

fn any_ip() -> impl Strategy<Value = Vip> {
    select(ADDRESSES.to_vec()).prop_map(vip)
}

fn any_wish() -> impl Strategy<Value = Wish> {
    let (v4, v6) = (Family::V4, Family::V6);
    let families = select(vec![
        Families::One(v4),
        Families::One(v4),
        Families::One(v6),
        Families::Both { first: v4 },
        Families::Both { first: v6 },
        Families::Either { first: v4 },
        Families::Either { first: v6 },
    ]);
    let explicit = prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(any_ip(), 1..3)];
    let pick = prop_oneof![2 => Just(0_u8), 1 => Just(1), 1 => 2..=255_u8];
    (0..7_u8, 0..3_u8, families, explicit, any_terms(), pick).prop_map(
        |(service, group, families, explicit, terms, pick)| Wish {
            service,
            group,
            families,
            explicit,
            terms,
            pick,
        },
    )
}

fn any_groups() -> impl Strategy<Value = Vec<(u8, Vec<usize>)>> {
    let one = prop::sample::subsequence((0..RANGES.len()).collect::<Vec<_>>(), 1..5).prop_shuffle();
    prop::collection::btree_map(0..3_u8, one, 1..4).prop_map(|groups| groups.into_iter().collect())
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_wish().prop_map(Step::Allocate),
        1 => (any_wish(), any_ip(), any::<bool>()).prop_map(|(wish, ip, known)| Step::Adopt(wish, ip, known)),
        2 => (0..7_u8, any_ip()).prop_map(|(service, ip)| Step::Release(service, ip)),
        1 => (0..7_u8).prop_map(Step::ReleaseAll),
        1 => any_groups().prop_map(Step::SetGroups),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_pools_do_what_the_model_does(
        first in any_groups(),
        steps in prop::collection::vec((any_step(), any::<Index>()), 1..40),
    ) {
        let mut pools = AddressPools::new();
        let mut model = Model { groups: mk_groups(&first), ..Model::default() };
        pools.set_groups(model.groups.clone());
        for (step, seed) in steps {
            match step {
                Step::Allocate(wish) => check_allocate(&mut model, &mut pools, &wish)?,
                Step::Adopt(wish, ip, known) => {
                    let claim = AddressClaim { group: known.then(|| group_name(wish.group)), terms: wish.terms };
                    pools.adopt(&service_key(wish.service), ip, claim.clone());
                    model.claims.insert((service_key(wish.service), ip), claim);
                }
                Step::Release(service, ip) => {
                    let key = service_key(service);
                    let had = model.claims.remove(&(key.clone(), ip)).is_some();
                    let left = model.others(&key, ip).count();
                    let expected = match (had, left) {
                        (false, _) => ReleaseOutcome::NotHeld,
                        (true, 0) => ReleaseOutcome::Freed,
                        (true, left) => ReleaseOutcome::StillHeldBy(left),
                    };
                    prop_assert_eq!(pools.release(&key, ip), expected);
                }
                Step::ReleaseAll(service) => {
                    let key = service_key(service);
                    pools.release_all(&key);
                    model.claims.retain(|(s, _), _| *s != key);
                }
                Step::SetGroups(spec) => {
                    model.groups = mk_groups(&spec);
                    let admission = pools.set_groups(model.groups.clone());
                    let names: BTreeSet<_> = model.accepted().iter().map(|g| g.name().clone()).collect();
                    prop_assert_eq!(admission.accepted, names);
                }
            }
            check_state(&model, &pools, seed)?;
        }
    }
}
