//! From what a Service should have to the least that has to be written.

use super::decision::{AllocationTally, Change, ServiceEvent, ServiceEventKind, ServiceMarks};
use super::facts::{GroupSpec, ServiceAsk, ServiceCondition};
use super::refusal::Refusal;
use super::waiting_services::AwaitedRelease;
use crate::ids::Vip;
use crate::pools::GroupName;

/// What a Service should have.
#[derive(Debug, Default)]
pub(super) struct ServiceOutcome {
    pub(super) addresses: Vec<Vip>,
    /// The group its annotations should name; None: they stay as they are.
    pub(super) group: Option<GroupSpec>,
    pub(super) refusal: Option<Refusal>,
    /// True, but not all is well: another reason and more words.
    pub(super) remark: Option<(&'static str, String)>,
    /// What would help it, if it did not get all it asks for.
    pub(super) wants: Vec<AwaitedRelease>,
    pub(super) tally: AllocationTally,
}

const ASSIGNED: &str = "AddressAssigned";
pub(super) const RANGE_REMOVED: &str = "RangeRemoved";

pub(super) fn list(addresses: &[Vip]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn compare(ask: &ServiceAsk, outcome: ServiceOutcome) -> Change {
    let ServiceOutcome { addresses, group, refusal, remark, tally, .. } = outcome;
    let mut change = Change { tally, ..Change::default() };
    let granted = refusal.is_none();
    if addresses.is_empty() && !granted && ask.marked {
        // Nothing was given, so nothing is ours to say.
        change.marks = Some(ServiceMarks::Clear);
    } else if let Some(spec) = group {
        let name = spec.name.name().to_owned();
        let as_is = ask.marked
            && ask.from.as_deref() == Some(&name)
            && ask.pool_type == Some(spec.announce)
            && ask.skip_ipv6_dad == spec.skip_ipv6_dad;
        if !as_is {
            let (pool, skip_ipv6_dad) = (spec.announce, spec.skip_ipv6_dad);
            change.marks = Some(ServiceMarks::Set { group: name, pool, skip_ipv6_dad });
        }
    }
    change.evaluated = granted && ask.re_evaluate;
    // The order of addresses is the API server's and other writers' business.
    let same = |a: &[Vip], b: &[Vip]| a.len() == b.len() && a.iter().all(|ip| b.contains(ip));
    let moved = !same(&addresses, &ask.held);
    if moved {
        change.ingress = Some(addresses.clone());
    }
    let told = tell(ask, &addresses, refusal.as_ref(), remark.as_ref(), change.tally.group.as_ref());
    let news = match &ask.told {
        // A Service that has been well all along need not be told so.
        None => !told.holds || told.reason != ASSIGNED,
        Some(old) => old.holds != told.holds || old.reason != told.reason || (!told.holds && *old != told),
    };
    if news {
        let kind = match (&refusal, &remark) {
            (Some(_), _) => Some(ServiceEventKind::AllocationFailed),
            (None, Some(_)) => Some(ServiceEventKind::ConfigurationWarning),
            (None, None) => None,
        };
        change.notes.extend(kind.map(|kind| ServiceEvent { kind, message: told.message.clone() }));
        if let Some(refusal) = &refusal {
            change.tally.group = refusal.group().cloned();
            change.tally.refused = Some(refusal.label());
        }
    }
    if moved && granted && !addresses.is_empty() {
        if change.notes.is_empty() {
            change.notes.push(ServiceEvent {
                kind: ServiceEventKind::AddressAssigned,
                message: told.message.clone(),
            });
        }
        if ask.deprecated_field {
            let message = "spec.loadBalancerIP is deprecated: use the annotation purelb.io/addresses";
            change.notes.push(ServiceEvent {
                kind: ServiceEventKind::DeprecationWarning,
                message: message.to_owned(),
            });
        }
    }
    if news || moved {
        change.told = Some(told);
    }
    change
}

fn tell(
    ask: &ServiceAsk,
    addresses: &[Vip],
    refusal: Option<&Refusal>,
    remark: Option<&(&'static str, String)>,
    group: Option<&GroupName>,
) -> ServiceCondition {
    if let Some(refusal) = refusal {
        let mut message = refusal.to_string();
        if !addresses.is_empty() {
            message = format!("{message}; keeps {}", list(addresses));
        }
        return ServiceCondition { holds: false, reason: refusal.reason(), message };
    }
    let from = group.map(|group| group.name().to_owned()).or_else(|| ask.from.clone()).unwrap_or_default();
    let assigned = format!("Assigned {} from ServiceGroup {from}", list(addresses));
    match remark {
        None => ServiceCondition { holds: true, reason: ASSIGNED.to_owned(), message: assigned },
        Some((reason, words)) => {
            let message = format!("{assigned}; {words}");
            ServiceCondition { holds: true, reason: (*reason).to_owned(), message }
        }
    }
}
