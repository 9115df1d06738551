//! Answering a request: plan for every family, then commit, or change nothing.

use super::address_pools::AddressPools;
use super::error::AllocateError;
use super::group::GroupName;
use super::ledger::{AddressClaim, SharingObstacle};
use super::request::{
    AddressGrant, AddressRequest, Families, GrantKind, GrantedAddress, RangePick, Shortfall,
};
use crate::ids::{Family, Vip};

/// What one family would get. Two plans of a request never pick the same free
/// address: they are of different families or from different ranges.
#[derive(Default)]
struct FamilyPlan {
    addresses: Vec<GrantedAddress>,
    missing: Vec<Shortfall>,
}

impl From<GrantedAddress> for FamilyPlan {
    fn from(granted: GrantedAddress) -> Self {
        Self { addresses: vec![granted], missing: Vec::new() }
    }
}

impl AddressPools {
    /// Brings a Service to the addresses it should have. On an error nothing changed.
    pub fn allocate(&mut self, request: &AddressRequest<'_>) -> Result<AddressGrant, AllocateError> {
        self.accepted(request.group)?;
        let mut explicit = self.plan_explicit(request)?;
        let mut grant = AddressGrant::default();
        let mut failures = Vec::new();
        for family in request.families.order() {
            let plan = match explicit.iter().position(|g| g.ip.family() == family) {
                Some(i) => Ok(explicit.swap_remove(i).into()),
                None => self.plan_family(request, family),
            };
            match (plan, request.families) {
                (Ok(plan), _) => {
                    grant.addresses.extend(plan.addresses);
                    grant.missing.extend(plan.missing);
                }
                (Err(why), Families::Either { .. }) => failures.push(Shortfall { family, field: None, why }),
                (Err(why), _) => return Err(why),
            }
        }
        if grant.addresses.is_empty() {
            // A family the group has but cannot give now says more than one it lacks.
            let telling = failures.iter().position(|m| !matches!(m.why, AllocateError::NoRange { .. }));
            let chosen = failures.swap_remove(telling.unwrap_or(0));
            return Err(chosen.why);
        }
        grant.missing.extend(failures);
        self.commit(request, &mut grant);
        Ok(grant)
    }

    fn commit(&mut self, request: &AddressRequest<'_>, grant: &mut AddressGrant) {
        for granted in &grant.addresses {
            let claim = AddressClaim {
                group: Some(self.group_to_record(request, granted.ip)),
                terms: request.terms.clone(),
            };
            self.claim(request.service, granted.ip, claim);
            if granted.how == GrantKind::Kept {
                let conflict = self.ledger.conflict(granted.ip);
                let own = conflict.filter(|c| c.services.contains(request.service));
                grant.conflicts.extend(own);
            }
        }
        let held = self.ledger.of_service(request.service);
        grant.surplus = held.filter(|ip| !grant.addresses.iter().any(|granted| granted.ip == *ip)).collect();
    }

    /// An address kept from another group stays that group's, or the group's count of
    /// addresses it no longer gives would lose it.
    fn group_to_record(&self, request: &AddressRequest<'_>, ip: Vip) -> GroupName {
        let here = self.group_of(ip) == Some(request.group);
        let former = self.claim_group(request, ip).flatten().filter(|_| !here);
        former.unwrap_or(request.group).clone()
    }

    /// Explicit addresses are checked before anything is chosen: one that cannot be
    /// had refuses the request, also where the family is optional.
    fn plan_explicit(&self, request: &AddressRequest<'_>) -> Result<Vec<GrantedAddress>, AllocateError> {
        let mut plan: Vec<GrantedAddress> = Vec::new();
        for ip in request.explicit {
            if let Some(other) = plan.iter().find(|g| g.ip.family() == ip.family()) {
                return Err(AllocateError::TwoOfOneFamily { first: other.ip, second: *ip });
            }
            plan.push(self.plan_one_explicit(request, *ip)?);
        }
        Ok(plan)
    }

    fn plan_one_explicit(
        &self,
        request: &AddressRequest<'_>,
        ip: Vip,
    ) -> Result<GrantedAddress, AllocateError> {
        if !request.families.wants(ip.family()) {
            let wanted = request.families.order().next().unwrap_or(Family::V4);
            return Err(AllocateError::WrongFamily { ip, wanted });
        }
        if self.claim_group(request, ip).is_some() && !request.leaves.contains(&ip) {
            return Ok(GrantedAddress { ip, how: GrantKind::Kept });
        }
        let found_in = self.group_of(ip);
        if found_in != Some(request.group) {
            return Err(AllocateError::OutOfPool {
                ip,
                group: request.group.clone(),
                found_in: found_in.cloned(),
            });
        }
        if let Some(why) = self.range_of(ip).and_then(|range| range.why_excluded(ip)) {
            return Err(AllocateError::Excluded { ip, why });
        }
        self.join(request, ip)
    }

    /// The Service takes the address, alone or with those on it.
    fn join(&self, request: &AddressRequest<'_>, ip: Vip) -> Result<GrantedAddress, AllocateError> {
        match self.ledger.obstacle(ip, request.service, &request.terms) {
            Some(SharingObstacle::Held { by }) => Err(AllocateError::InUse { ip, by }),
            Some(SharingObstacle::Port { port, by }) => Err(AllocateError::PortTaken { ip, port, by }),
            Some(SharingObstacle::Pods { by }) => Err(AllocateError::OtherPods { ip, by }),
            None => {
                let how = match self.references(ip) {
                    0 => GrantKind::New,
                    _ => GrantKind::Shared,
                };
                Ok(GrantedAddress { ip, how })
            }
        }
    }

    /// The Service's claim on the address: the group it is held from, if known.
    fn claim_group(&self, request: &AddressRequest<'_>, ip: Vip) -> Option<Option<&GroupName>> {
        let claim = self.ledger.get(ip)?.holders().get(request.service)?;
        Some(claim.group.as_ref())
    }

    /// Addresses of a family the Service already has from the group: in one of its
    /// ranges, or given by it before the range was taken out.
    fn kept(&self, request: &AddressRequest<'_>, family: Family) -> Vec<(Vip, Option<usize>)> {
        let held = self.ledger.of_service(request.service);
        held.filter(|ip| ip.family() == family && !request.leaves.contains(ip))
            .filter_map(|ip| match self.locate(ip) {
                Some((group, stock)) if group == request.group => Some((ip, Some(stock))),
                _ => (self.claim_group(request, ip)? == Some(request.group)).then_some((ip, None)),
            })
            .collect()
    }

    fn plan_family(
        &mut self,
        request: &AddressRequest<'_>,
        family: Family,
    ) -> Result<FamilyPlan, AllocateError> {
        let kept = self.kept(request, family);
        if let RangePick::EveryRange(eligible) = request.pick {
            let stocks = &self.accepted(request.group)?.stocks;
            let chosen: Vec<usize> = (0..stocks.len())
                .filter(|i| stocks[*i].range.family() == family && eligible(&stocks[*i].range))
                .collect();
            return self.plan_every(request, family, &kept, &chosen);
        }
        if !kept.is_empty() {
            let keep = |(ip, _): &(Vip, _)| GrantedAddress { ip: *ip, how: GrantKind::Kept };
            return Ok(FamilyPlan { addresses: kept.iter().map(keep).collect(), missing: Vec::new() });
        }
        if let Some(shared) = self.plan_shared(request, family, None)? {
            return Ok(shared.into());
        }
        let mut order: Vec<(u64, usize)> = self
            .accepted(request.group)?
            .stocks
            .iter()
            .enumerate()
            .filter(|(_, stock)| stock.range.family() == family)
            .map(|(i, stock)| (stock.in_use, i))
            .collect();
        if matches!(request.pick, RangePick::Balanced) {
            order.sort_unstable();
        }
        for (_, i) in order {
            if let Some(ip) = self.lowest(request, i) {
                return Ok(GrantedAddress { ip, how: GrantKind::New }.into());
            }
        }
        Err(self.nothing_free(request, family, None))
    }

    /// Multi-pool: what the Service has in eligible ranges stays, every other
    /// eligible range adds one. One address is enough; ranges without are reported.
    fn plan_every(
        &mut self,
        request: &AddressRequest<'_>,
        family: Family,
        kept: &[(Vip, Option<usize>)],
        eligible: &[usize],
    ) -> Result<FamilyPlan, AllocateError> {
        let mut plan = FamilyPlan::default();
        for i in eligible {
            let before = plan.addresses.len();
            let here = kept.iter().filter(|(_, stock)| *stock == Some(*i));
            plan.addresses.extend(here.map(|(ip, _)| GrantedAddress { ip: *ip, how: GrantKind::Kept }));
            if plan.addresses.len() > before {
                continue;
            }
            match self.plan_in(request, family, *i) {
                Ok(granted) => plan.addresses.push(granted),
                Err(why) => plan.missing.push(Shortfall { family, field: self.field(request, *i), why }),
            }
        }
        // Held from a range that is no longer configured: an edit takes nothing away.
        let strays = kept.iter().filter(|(_, stock)| stock.is_none());
        plan.addresses.extend(strays.map(|(ip, _)| GrantedAddress { ip: *ip, how: GrantKind::Kept }));
        if !plan.addresses.is_empty() {
            return Ok(plan);
        }
        if let Some(first) = plan.missing.into_iter().next() {
            return Err(first.why);
        }
        let group = request.group.clone();
        Err(if self.accepted(request.group)?.group.has_family(family) {
            AllocateError::NoEligibleRange { group, family }
        } else {
            AllocateError::NoRange { group, family }
        })
    }

    fn plan_in(
        &mut self,
        request: &AddressRequest<'_>,
        family: Family,
        stock: usize,
    ) -> Result<GrantedAddress, AllocateError> {
        if let Some(shared) = self.plan_shared(request, family, Some(stock))? {
            return Ok(shared);
        }
        match self.lowest(request, stock) {
            Some(ip) => Ok(GrantedAddress { ip, how: GrantKind::New }),
            None => Err(self.nothing_free(request, family, Some(stock))),
        }
    }

    /// A sharing key has one address per family (multi-pool: per range). If it exists
    /// and the ports are taken there, the Service is refused: a second address would
    /// quietly break "same key, same address".
    fn plan_shared(
        &self,
        request: &AddressRequest<'_>,
        family: Family,
        stock: Option<usize>,
    ) -> Result<Option<GrantedAddress>, AllocateError> {
        let Some(key) = &request.terms.sharing else {
            return Ok(None);
        };
        let mut refusal = None;
        for ip in self.ledger.of_key(key).filter(|ip| ip.family() == family) {
            let Some((group, at)) = self.locate(ip) else {
                continue;
            };
            let given = self.range_of(ip).is_some_and(|r| r.why_excluded(ip).is_none());
            if group != request.group || stock.is_some_and(|stock| stock != at) || !given {
                continue;
            }
            match self.join(request, ip) {
                Ok(granted) => return Ok(Some(granted)),
                Err(why) => refusal = refusal.or(Some(why)),
            }
        }
        refusal.map_or(Ok(None), Err)
    }

    fn lowest(&mut self, request: &AddressRequest<'_>, stock: usize) -> Option<Vip> {
        self.groups.get_mut(request.group)?.stocks.get_mut(stock)?.lowest()
    }

    fn field(&self, request: &AddressRequest<'_>, stock: usize) -> Option<String> {
        let stock = self.groups.get(request.group)?.stocks.get(stock)?;
        Some(stock.range.field().to_owned())
    }

    fn nothing_free(
        &self,
        request: &AddressRequest<'_>,
        family: Family,
        stock: Option<usize>,
    ) -> AllocateError {
        let group = request.group.clone();
        let stocks = self.groups.get(request.group).map(|g| g.stocks.as_slice());
        let size = stocks
            .unwrap_or_default()
            .iter()
            .enumerate()
            .filter(|(i, s)| s.range.family() == family && stock.is_none_or(|stock| stock == *i))
            .fold(0_u128, |sum, (_, s)| sum.saturating_add(s.range.size()));
        match size {
            0 => AllocateError::NoRange { group, family },
            size => AllocateError::Exhausted { group, family, size },
        }
    }
}
