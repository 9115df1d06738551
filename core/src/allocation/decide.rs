//! One Service: what it should have, compared with what it has.

use super::allocations::Allocations;
use super::decision::{
    AllocationTally, Change, Decision, ProviderQuestion, ServiceEvent, ServiceEventKind, ServiceMarks,
};
use super::facts::{GroupSource, GroupSpec, ServiceAsk, ServiceOwner};
use super::refusal::Refusal;
use super::service_change::{RANGE_REMOVED, ServiceOutcome, compare, list};
use super::waiting_services::AwaitedRelease;
use crate::facts::PoolType;
use crate::ids::{Family, ObjectKey, Vip};
use crate::pools::{
    AddressClaim, AddressGrant, AddressRequest, AllocateError, Families, GroupName, PoolPlace, Range,
    RangePick, SharingClash, Shortfall, WaitsFor,
};

impl Allocations {
    /// What to do about a Service now. Addresses of a `Write` are taken at once, in
    /// memory; call `busy` when it is carried out, and `settled` after.
    pub fn decide(&mut self, key: &ObjectKey) -> Decision {
        let Some(entry) = self.entry(key) else { return Decision::Nothing };
        let ask = entry.ask.clone();
        let leaves = match ask.whose {
            ServiceOwner::Ours => return self.decide_ours(&ask),
            ServiceOwner::NoLoadBalancer => ask.marked,
            // Only one that was ours under our eyes: a mark alone may be that of
            // another installation beside us.
            ServiceOwner::Foreign => ask.marked && entry.was_ours,
        };
        self.set_waiting(key, Vec::new());
        if !leaves {
            return Decision::Nothing;
        }
        let released: Vec<Vip> = self.pools().addresses_of(key).collect();
        if released.is_empty() {
            self.give_all_back(key);
        }
        let mut change = Change { marks: Some(ServiceMarks::Clear), ..Change::default() };
        if !ask.held.is_empty() {
            change.ingress = Some(Vec::new());
        }
        if !released.is_empty() {
            let message = format!("Released {}", list(&released));
            change.notes.push(ServiceEvent { kind: ServiceEventKind::AddressReleased, message });
        }
        Decision::Write(Box::new(change))
    }

    fn decide_ours(&mut self, ask: &ServiceAsk) -> Decision {
        let outcome = match self.outcome(ask) {
            Ok(outcome) => outcome,
            // Looked at again when what it had is back.
            Err(Undecided::Ask(_)) if self.is_returning(&ask.key) => return Decision::Nothing,
            Err(Undecided::Ask(question)) => return Decision::Ask(question),
            Err(Undecided::Refuse(refusal)) => self.refused(ask, refusal),
        };
        let had = self.kept(ask);
        let gained = outcome.addresses.iter().any(|ip| !had.contains(ip));
        self.set_goal(&ask.key, outcome.addresses.clone());
        self.set_waiting(&ask.key, outcome.wants.clone());
        if gained {
            self.wake_sharers(&ask.key);
        }
        let change = compare(ask, outcome);
        if change.marks.is_none() && !change.evaluated && change.ingress.is_none() && change.told.is_none() {
            return Decision::Nothing;
        }
        Decision::Write(Box::new(change))
    }

    /// It keeps what it has of the families it wants, and is told why not more. Its
    /// annotations go on saying where that came from: whoever may edit the Service could
    /// otherwise ask for something impossible and then write into them what they like.
    fn refused(&mut self, ask: &ServiceAsk, refusal: Refusal) -> ServiceOutcome {
        let kept = self.kept(ask);
        let from = kept.iter().find_map(|ip| self.claim_group(&ask.key, *ip));
        let group = from.and_then(|name| self.groups().get(name)).cloned();
        let wants = match &refusal {
            Refusal::Pools(why) => self.wants(ask, why),
            Refusal::ProviderGaveHeld { ip, .. } => vec![AwaitedRelease::Address(*ip)],
            _ => vec![AwaitedRelease::Outside],
        };
        ServiceOutcome { addresses: kept, group, refusal: Some(refusal), wants, ..ServiceOutcome::default() }
    }

    /// What another Service could free that would help.
    fn wants(&mut self, ask: &ServiceAsk, why: &AllocateError) -> Vec<AwaitedRelease> {
        match why {
            AllocateError::Exhausted { group, family, .. } => {
                if self.is_multi_pool(ask, group) {
                    return vec![AwaitedRelease::More(group.clone())];
                }
                self.no_room(group, *family);
                // One family that is said to be full may not be the only one missing.
                ask.families.order().map(|family| AwaitedRelease::Room(group.clone(), family)).collect()
            }
            AllocateError::InUse { ip, .. }
            | AllocateError::PortTaken { ip, .. }
            | AllocateError::OtherPods { ip, .. } => vec![AwaitedRelease::Address(*ip)],
            _ => vec![AwaitedRelease::Outside],
        }
    }

    fn is_multi_pool(&self, ask: &ServiceAsk, group: &GroupName) -> bool {
        let by_group = match self.groups().get(group).map(|spec| &spec.source) {
            Some(GroupSource::Ranges { multi_pool, .. }) => *multi_pool,
            Some(GroupSource::Provider) | None => false,
        };
        ask.multi_pool.unwrap_or(by_group)
    }

    fn kept(&self, ask: &ServiceAsk) -> Vec<Vip> {
        let mut goal = self.entry(&ask.key).map(|entry| entry.goal.clone()).unwrap_or_default();
        if !ask.held.is_empty() {
            goal.clone_from(&ask.held);
        }
        let leaves = self.leaves(&ask.key);
        goal.retain(|ip| ask.families.wants(ip.family()) && !leaves.contains(ip));
        goal
    }

    /// The group what it holds came from.
    fn current(&self, ask: &ServiceAsk) -> Option<GroupName> {
        if self.kept(ask).is_empty() && ask.held.is_empty() {
            return None;
        }
        let recorded = self.kept(ask).iter().find_map(|ip| self.claim_group(&ask.key, *ip)).cloned();
        recorded.or_else(|| self.group_name(ask.from.as_deref()?))
    }

    fn outcome(&mut self, ask: &ServiceAsk) -> Result<ServiceOutcome, Undecided> {
        let explicit = ask.explicit.clone().map_err(Refusal::BadAddresses)?;
        let current = self.current(ask);
        let target = self.target(ask, &explicit, current.as_ref())?;
        match self.groups().get(&target).cloned() {
            Some(GroupSpec { source: GroupSource::Provider, .. }) => {
                self.take_from_provider(ask, &explicit, target)
            }
            spec => self.take_from_ranges(ask, &explicit, &target, spec),
        }
    }

    fn take_from_ranges(
        &mut self,
        ask: &ServiceAsk,
        explicit: &[Vip],
        target: &GroupName,
        spec: Option<GroupSpec>,
    ) -> Result<ServiceOutcome, Undecided> {
        let live = self.live().clone();
        let announce = spec.as_ref().map_or(PoolType::Local, |spec| spec.announce);
        let eligible = |range: &Range| announce == PoolType::Remote || range.served_by(&live);
        let balance = matches!(
            spec.as_ref().map(|spec| &spec.source),
            Some(GroupSource::Ranges { balance_pools: true, .. })
        );
        let multi_pool = self.is_multi_pool(ask, target);
        let leaves = self.leaves(&ask.key);
        let pick = match (multi_pool, balance) {
            (true, _) => RangePick::EveryRange(&eligible),
            (false, true) => RangePick::Balanced,
            (false, false) => RangePick::FirstFit,
        };
        let request = AddressRequest {
            service: &ask.key,
            group: target,
            families: ask.families,
            explicit,
            leaves: &leaves,
            terms: ask.terms.clone(),
            pick,
        };
        match self.pools_mut().allocate(&request) {
            Ok(grant) => {
                let tally = AllocationTally {
                    group: Some(target.clone()),
                    multi_pool,
                    partial: multi_pool && !grant.missing.is_empty(),
                    balanced: balance && !multi_pool,
                    refused: None,
                };
                Ok(self.granted(ask, target, spec, &grant, tally))
            }
            Err(why) => {
                let kept = self.kept(ask);
                if !satisfied(ask, explicit, &kept) {
                    return Err(Refusal::from(why).into());
                }
                // Nothing more is needed; what it has is what the group once gave.
                let remark = self.remark(ask, &kept, target);
                Ok(ServiceOutcome { addresses: kept, group: spec, remark, ..ServiceOutcome::default() })
            }
        }
    }

    fn granted(
        &mut self,
        ask: &ServiceAsk,
        target: &GroupName,
        spec: Option<GroupSpec>,
        grant: &AddressGrant,
        tally: AllocationTally,
    ) -> ServiceOutcome {
        let addresses: Vec<Vip> = grant.ips().collect();
        let freed = |missing: &&Shortfall| missing.why.waits_for() == WaitsFor::Release;
        let wants: Vec<AwaitedRelease> =
            grant.missing.iter().filter(freed).flat_map(|missing| self.wants(ask, &missing.why)).collect();
        let mut remark = self.remark(ask, &addresses, target);
        if let Some(conflict) = grant.conflicts.first() {
            let others: Vec<String> =
                conflict.services.iter().filter(|key| **key != ask.key).map(ToString::to_string).collect();
            let what = match conflict.clash {
                SharingClash::Port(port) => format!("port {port} of {} is also used by Service", conflict.ip),
                SharingClash::Keys => {
                    format!("{} is also held, without the same sharing key, by Service", conflict.ip)
                }
                SharingClash::Pods => format!(
                    "{} is shared, with externalTrafficPolicy: Local and other pods, with Service",
                    conflict.ip
                ),
            };
            remark = Some(("AddressConflict", format!("{what} {}", others.join(", "))));
        } else if remark.is_none() && !wants.is_empty() {
            let missing: Vec<String> = grant.missing.iter().map(|missing| missing.why.to_string()).collect();
            remark = Some(("PartlyAssigned", missing.join("; ")));
        }
        ServiceOutcome { addresses, group: spec, refusal: None, remark, wants, tally }
    }

    /// Addresses no group would give today.
    fn remark(
        &self,
        ask: &ServiceAsk,
        addresses: &[Vip],
        target: &GroupName,
    ) -> Option<(&'static str, String)> {
        let stray = |ip: &&Vip| {
            let from = self.claim_group(&ask.key, **ip).unwrap_or(target);
            !matches!(self.pools().place(**ip), PoolPlace::In { group, .. } if group == *from)
        };
        let strays: Vec<Vip> = addresses.iter().filter(stray).copied().collect();
        (!strays.is_empty()).then(|| {
            let text = format!(
                "keeps {}, which ServiceGroup {target} no longer has: put the range back, or move the Service",
                list(&strays)
            );
            (RANGE_REMOVED, text)
        })
    }

    fn take_from_provider(
        &mut self,
        ask: &ServiceAsk,
        explicit: &[Vip],
        target: GroupName,
    ) -> Result<ServiceOutcome, Undecided> {
        let spec = self.groups().get(&target).cloned();
        let from_here = |ip: &Vip| self.claim_group(&ask.key, *ip) == Some(&target);
        let mut kept: Vec<Vip> = self.kept(ask).into_iter().filter(from_here).collect();
        let replaced = |ip: &Vip| explicit.iter().any(|e| e.family() == ip.family() && e != ip);
        kept.retain(|ip| !replaced(ip));
        let wanted: Vec<Vip> = explicit.iter().filter(|ip| !kept.contains(ip)).copied().collect();
        let has = |family| kept.iter().chain(&wanted).any(|ip: &Vip| ip.family() == family);
        let families: Vec<Family> = ask.families.order().filter(|family| !has(*family)).collect();
        let done =
            ServiceOutcome { addresses: kept.clone(), group: spec.clone(), ..ServiceOutcome::default() };
        if wanted.is_empty() && families.is_empty() {
            return Ok(done);
        }
        if let Some(ip) = wanted.iter().find(|ip| !ask.families.wants(ip.family())) {
            let wanted = ask.families.order().next().unwrap_or(Family::V4);
            return Err(Refusal::from(AllocateError::WrongFamily { ip: *ip, wanted }).into());
        }
        let question = ProviderQuestion {
            group: target.clone(),
            service: ask.key.clone(),
            sharing_key: ask.terms.sharing.as_ref().map(|key| key.as_str().to_owned()),
            explicit: wanted,
            families,
            either: matches!(ask.families, Families::Either { .. }),
        };
        let answered = self.entry(&ask.key).and_then(|entry| entry.answer.clone());
        let Some((_, answer)) = answered.filter(|(asked, _)| *asked == question) else {
            return Err(Undecided::Ask(question));
        };
        let given = match answer {
            Ok(given) => given,
            // One family is enough, and it has one: the other is not worth a refusal.
            Err(_) if question.either && question.explicit.is_empty() && !kept.is_empty() => return Ok(done),
            Err(problem) => return Err(Refusal::Provider { group: target, problem }.into()),
        };
        for ip in &given {
            if let Some(by) = self.held_by_stranger(ask, *ip) {
                return Err(Refusal::ProviderGaveHeld { group: target, ip: *ip, by }.into());
            }
            if let Some(by) = self.pools().other_pods(&ask.key, *ip, &ask.terms) {
                return Err(Refusal::from(AllocateError::OtherPods { ip: *ip, by }).into());
            }
        }
        let addresses: Vec<Vip> = kept.into_iter().chain(given).collect();
        for ip in &addresses {
            let claim = AddressClaim { group: Some(target.clone()), terms: ask.terms.clone() };
            self.pools_mut().adopt(&ask.key, *ip, claim);
        }
        let tally = AllocationTally { group: Some(target), ..AllocationTally::default() };
        Ok(ServiceOutcome { addresses, group: spec, tally, ..ServiceOutcome::default() })
    }

    fn held_by_stranger(&self, ask: &ServiceAsk, ip: Vip) -> Option<ObjectKey> {
        let held = self.pools().held(ip)?;
        let shares =
            |other: &AddressClaim| ask.terms.sharing.is_some() && other.terms.sharing == ask.terms.sharing;
        let mut others = held.holders.iter().filter(|(key, _)| **key != ask.key);
        others.find(|(_, claim)| !shares(claim)).map(|(key, _)| key.clone())
    }
}

enum Undecided {
    Ask(ProviderQuestion),
    Refuse(Refusal),
}

impl From<Refusal> for Undecided {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

/// It has what it asks for, whatever its group says today.
fn satisfied(ask: &ServiceAsk, explicit: &[Vip], kept: &[Vip]) -> bool {
    let has = |family| kept.iter().any(|ip| ip.family() == family);
    !ask.re_evaluate
        && explicit.iter().all(|ip| kept.contains(ip))
        && match ask.families {
            Families::Either { .. } => !kept.is_empty(),
            families => families.order().all(has),
        }
}
