//! Tests of the pools: texts and arithmetic, the rules one by one, and a model.

mod admission;
mod model;
mod model_run;
mod ranges;
mod rules;
mod sharing;
mod state;

use super::*;
use crate::ids::{Family, ObjectKey, Vip};

impl AddressPools {
    /// Ends all of a Service's holds, in the order of the addresses.
    fn release_all(&mut self, service: &ObjectKey) -> Vec<(Vip, ReleaseOutcome)> {
        let addresses: Vec<Vip> = self.addresses_of(service).collect();
        addresses.into_iter().map(|ip| (ip, self.release(service, ip))).collect()
    }
}

impl HeldAddress {
    /// The Services that hold it from a group whose ranges no longer have it, or
    /// from no known group at an address no group has.
    fn out_of_range(&self) -> impl Iterator<Item = &ObjectKey> {
        let here = self.place.group();
        let strays = self.holders.iter().filter(move |(_, claim)| {
            claim.group.as_ref().map_or(here.is_none(), |group| Some(group) != here)
        });
        strays.map(|(service, _)| service)
    }
}

fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

fn svc(name: &str) -> ObjectKey {
    ObjectKey::of("web", name).unwrap()
}

fn named(name: &str) -> GroupName {
    GroupName::of("purelb-system", name).unwrap()
}

fn mk_range(field: &str, pool: &str, subnet: &str, rules: &RangeRules) -> Range {
    let text = PoolText { pool, subnet, aggregation: "default" };
    let family = pool.parse::<Span>().unwrap().family();
    Range::parse(field, text, family, rules).unwrap()
}

/// A group whose ranges lie in wide subnets, so that no edge gets in the way.
fn mk_group(name: &str, created: i64, pools: &[&str]) -> Group {
    let ranges = pools.iter().enumerate().map(|(i, pool)| {
        let wide = match pool.parse::<Span>().unwrap().family() {
            Family::V4 => "10.0.0.0/8",
            Family::V6 => "fd00::/8",
        };
        mk_range(&format!("spec.local.pools[{i}]"), pool, wide, &RangeRules::default())
    });
    Group::new(named(name), created, ranges.collect()).unwrap()
}

fn mk_pools(pools: &[&str]) -> AddressPools {
    let mut all = AddressPools::new();
    let admission = all.set_groups([mk_group("default", 0, pools)]);
    assert!(admission.refused.is_empty(), "{admission:?}");
    all
}

fn claim(group: &str, terms: SharingTerms) -> AddressClaim {
    AddressClaim { group: Some(named(group)), terms }
}

/// A request in words: `Ask::of("a").v6().get(&mut pools)`.
struct Ask<'a> {
    service: ObjectKey,
    group: GroupName,
    families: Families,
    explicit: Vec<Vip>,
    terms: SharingTerms,
    pick: RangePick<'a>,
}

impl<'a> Ask<'a> {
    fn of(service: &str) -> Self {
        Self {
            service: svc(service),
            group: named("default"),
            families: Families::One(Family::V4),
            explicit: Vec::new(),
            terms: SharingTerms::alone(),
            pick: RangePick::FirstFit,
        }
    }

    fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    fn v6(self) -> Self {
        self.families(Families::One(Family::V6))
    }

    fn group(mut self, name: &str) -> Self {
        self.group = named(name);
        self
    }

    fn explicit(mut self, ips: &[&str]) -> Self {
        self.explicit = ips.iter().map(|ip| vip(ip)).collect();
        self
    }

    fn key(mut self, key: &str, ports: &[u16]) -> Self {
        let ports = ports.iter().map(|port| Port::new(Protocol::Tcp, *port));
        self.terms = SharingTerms::shared(SharingKey::new(key).unwrap(), ports);
        self
    }

    fn pick(mut self, pick: RangePick<'a>) -> Self {
        self.pick = pick;
        self
    }

    fn get(&self, pools: &mut AddressPools) -> Result<AddressGrant, AllocateError> {
        pools.allocate(&AddressRequest {
            service: &self.service,
            group: &self.group,
            families: self.families,
            explicit: &self.explicit,
            leaves: &[],
            terms: self.terms.clone(),
            pick: self.pick,
        })
    }

    /// The addresses as text, separated by spaces.
    fn ips(&self, pools: &mut AddressPools) -> String {
        let grant = self.get(pools).unwrap();
        let texts: Vec<String> = grant.ips().map(|ip| ip.to_string()).collect();
        texts.join(" ")
    }
}
