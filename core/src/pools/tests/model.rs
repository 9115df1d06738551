//! The pools against a naive model: a list of claims, and every question answered
//! by walking through all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) service: u8,
    pub(super) group: u8,
    pub(super) families: Families,
    pub(super) explicit: Vec<Vip>,
    pub(super) terms: SharingTerms,
    /// 0 first fit, 1 balanced, else the eligible ranges as bits.
    pub(super) pick: u8,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Allocate(Wish),
    Adopt(Wish, Vip, bool),
    Release(u8, Vip),
    ReleaseAll(u8),
    SetGroups(Vec<(u8, Vec<usize>)>),
}

/// Ranges the groups are made of; some overlap. The last one has .255 and .0 inside.
pub(super) const RANGES: [(&str, &str); 8] = [
    ("10.0.0.0/29", "10.0.0.0/29"),
    ("10.0.0.16-10.0.0.18", "10.0.0.0/24"),
    ("10.0.0.6-10.0.0.9", "10.0.0.0/24"),
    ("fd00::/126", "fd00::/126"),
    ("fd00::10-fd00::12", "fd00::/64"),
    ("10.0.0.17", "10.0.0.0/24"),
    ("fd00::11-fd00::13", "fd00::/64"),
    ("10.0.0.253-10.0.1.2", "10.0.0.0/16"),
];

pub(super) const ADDRESSES: [&str; 16] = [
    "10.0.0.0",
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.6",
    "10.0.0.7",
    "10.0.0.16",
    "10.0.0.17",
    "10.0.0.254",
    "10.0.0.255",
    "10.0.1.1",
    "10.9.9.9",
    "fd00::",
    "fd00::1",
    "fd00::2",
    "fd00::11",
    "fd00::99",
];

pub(super) fn group_name(n: u8) -> GroupName {
    named(&format!("g{n}"))
}

pub(super) fn service_key(n: u8) -> ObjectKey {
    svc(&format!("s{n}"))
}

pub(super) fn eligible(pick: u8, range: &Range) -> bool {
    let bit: u8 = range.field().parse().unwrap();
    pick & (1 << (bit % 8)) != 0
}

/// Ages: the higher number is the older group.
pub(super) fn mk_groups(spec: &[(u8, Vec<usize>)]) -> Vec<Group> {
    let rules = RangeRules { skip_last_octet: true, ..RangeRules::default() };
    let mk = |(name, ranges): &(u8, Vec<usize>)| {
        let of = |i: &usize| mk_range(&i.to_string(), RANGES[*i].0, RANGES[*i].1, &rules);
        Group::new(group_name(*name), -i64::from(*name / 2), ranges.iter().map(of).collect()).ok()
    };
    spec.iter().filter_map(mk).collect()
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) claims: BTreeMap<(ObjectKey, Vip), AddressClaim>,
    pub(super) groups: Vec<Group>,
}

pub(super) fn usable(range: &Range) -> Vec<Vip> {
    let (first, last) = (range.span().low(), range.span().high());
    let all = (first..=last).map(|n| Vip::new(super::super::span::address(range.family(), n)));
    all.filter(|ip| range.why_excluded(*ip).is_none()).collect()
}

impl Model {
    pub(super) fn accepted(&self) -> Vec<&Group> {
        let mut sorted: Vec<&Group> = self.groups.iter().collect();
        sorted.sort_by_key(|g| (g.created(), g.name().clone()));
        let mut accepted: Vec<&Group> = Vec::new();
        for group in sorted {
            let clash = |a: &Range| group.ranges().iter().any(|b| a.span().overlaps(&b.span()));
            if !accepted.iter().any(|other| other.ranges().iter().any(clash)) {
                accepted.push(group);
            }
        }
        accepted
    }

    pub(super) fn others<'a>(
        &'a self,
        service: &'a ObjectKey,
        ip: Vip,
    ) -> impl Iterator<Item = &'a AddressClaim> {
        let on_it = self.claims.iter().filter(move |((_, at), _)| *at == ip);
        on_it.filter(move |((s, _), _)| s != service).map(|(_, claim)| claim)
    }

    pub(super) fn held(&self, ip: Vip) -> bool {
        self.claims.keys().any(|(_, at)| *at == ip)
    }

    pub(super) fn may_join(&self, service: &ObjectKey, ip: Vip, terms: &SharingTerms) -> bool {
        self.others(service, ip).all(|other| {
            terms.sharing.is_some()
                && other.terms.sharing == terms.sharing
                && other.terms.ports.is_disjoint(&terms.ports)
                && (other.terms.pods == terms.pods || other.terms.pods.is_none() || terms.pods.is_none())
        })
    }

    /// What one of these ranges gives: the key's address, else the lowest free one.
    pub(super) fn give(&self, wish: &Wish, ranges: &[&Range]) -> Option<Vip> {
        let service = service_key(wish.service);
        let key_lives = |ip: &Vip| {
            let key = &wish.terms.sharing;
            key.is_some() && self.claims.iter().any(|((_, at), c)| at == ip && c.terms.sharing == *key)
        };
        let mut homes: Vec<Vip> = ranges.iter().flat_map(|r| usable(r)).filter(key_lives).collect();
        homes.sort();
        if !homes.is_empty() {
            return homes.into_iter().find(|ip| self.may_join(&service, *ip, &wish.terms));
        }
        let mut ranges = ranges.to_vec();
        if wish.pick == 1 {
            ranges.sort_by_key(|range| usable(range).into_iter().filter(|ip| self.held(*ip)).count());
        }
        ranges.iter().flat_map(|r| usable(r)).find(|ip| !self.held(*ip))
    }

    pub(super) fn family(&self, wish: &Wish, group: &Group, family: Family) -> Option<Vec<Vip>> {
        let service = service_key(wish.service);
        let ranges: Vec<&Range> = group.ranges().iter().filter(|r| r.family() == family).collect();
        if let Some(ip) = wish.explicit.iter().find(|ip| ip.family() == family) {
            return Some(vec![*ip]);
        }
        let inside = |ip: Vip| ranges.iter().any(|r| r.span().contains(ip));
        let own = self.claims.iter().filter(|((s, ip), _)| *s == service && ip.family() == family);
        let own: Vec<Vip> = own
            .filter(|((_, ip), claim)| inside(*ip) || claim.group.as_ref() == Some(group.name()))
            .map(|((_, ip), _)| *ip)
            .collect();
        let mut got: Vec<Vip> = Vec::new();
        if wish.pick > 1 {
            for range in ranges.iter().filter(|range| eligible(wish.pick, range)) {
                let here: Vec<Vip> = own.iter().copied().filter(|ip| range.span().contains(*ip)).collect();
                if here.is_empty() {
                    got.extend(self.give(wish, &[range]));
                }
                got.extend(here);
            }
            got.extend(own.into_iter().filter(|ip| !inside(*ip)));
        } else if own.is_empty() {
            got.extend(self.give(wish, &ranges));
        } else {
            got = own;
        }
        (!got.is_empty()).then_some(got)
    }

    /// The addresses a wish should get; None: refused.
    pub(super) fn answer(&self, wish: &Wish) -> Option<Vec<Vip>> {
        let service = service_key(wish.service);
        let accepted = self.accepted();
        let group = accepted.iter().find(|g| *g.name() == group_name(wish.group))?;
        for (i, ip) in wish.explicit.iter().enumerate() {
            let twice = wish.explicit[..i].iter().any(|other| other.family() == ip.family());
            let own = self.claims.contains_key(&(service.clone(), *ip));
            let free = group.ranges().iter().flat_map(usable).any(|u| u == *ip)
                && self.may_join(&service, *ip, &wish.terms);
            if twice || !wish.families.wants(ip.family()) || !(own || free) {
                return None;
            }
        }
        let parts: Vec<Option<Vec<Vip>>> =
            wish.families.order().map(|family| self.family(wish, group, family)).collect();
        let optional = matches!(wish.families, Families::Either { .. });
        if parts.iter().any(Option::is_none) && (!optional || parts.iter().all(Option::is_none)) {
            return None;
        }
        Some(parts.into_iter().flatten().flatten().collect())
    }

    pub(super) fn conflicting(&self) -> BTreeSet<Vip> {
        let clash = |((service, ip), claim): (&(ObjectKey, Vip), &AddressClaim)| {
            (!self.may_join(service, *ip, &claim.terms)).then_some(*ip)
        };
        self.claims.iter().filter_map(clash).collect()
    }
}
