//! What a group's status should say, and the write that brings it there.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use purelb_api::conditions::{self, ACCEPTED, Finding, SWEPT};
use purelb_api::service_group::Source;
use purelb_api::{ServiceGroup, ServiceGroupStatus};
use purelb_core::allocation::Allocations;
use purelb_core::facts::PoolType;
use purelb_core::pools::{GroupAdmission, GroupName};
use serde_json::json;

use super::{Known, group_event, is_provided};
use crate::controller::Sweep;
use crate::kube::patches;
use crate::leader::Guard;

/// A status to be written, and what to say about it.
#[derive(Debug)]
pub struct StatusWrite {
    pub name: GroupName,
    pub(super) object: ServiceGroup,
    pub(super) status: ServiceGroupStatus,
    pub(super) event: Option<Event>,
}

pub(super) fn status(
    name: &GroupName,
    known: &Known,
    old: &ServiceGroupStatus,
    book: &Allocations,
    admission: &GroupAdmission,
    namespaces: &BTreeSet<String>,
    now: Timestamp,
) -> (ServiceGroupStatus, Option<Event>) {
    let (holds, reason, message) = verdict(name, known, admission);
    let finding = Finding {
        kind: ACCEPTED,
        holds,
        reason,
        message: &message,
        generation: known.object.metadata.generation,
    };
    let mut conditions: Vec<Condition> = old.conditions.clone();
    let said = old.conditions.iter().find(|c| c.type_ == ACCEPTED);
    let news =
        said.is_none_or(|c| (c.status == "True") != holds || c.reason != reason || c.message != message);
    conditions::set(&mut conditions, &finding, now);
    let event = news.then(|| {
        let event_reason = if holds { "Parsed" } else { "ParseFailed" };
        group_event(&known.object, event_reason, !holds, &message)
    });
    sweep_condition(known, &mut conditions, now);
    let stats = book.stats(name);
    let mut status = ServiceGroupStatus { conditions, ..old.clone() };
    let count = |n: u64| Some(i64::try_from(n).unwrap_or(i64::MAX));
    let left = |n: u128| Some(i64::try_from(n).unwrap_or(i64::MAX));
    if known.problem.is_none() {
        status.last_good = known.object.spec_text();
    }
    status.allocated_ipv4 = count(stats.v4.in_use + stats.v4.outside);
    status.allocated_ipv6 = count(stats.v6.in_use + stats.v6.outside);
    if let Some(config) = &known.good {
        status.announce = Some(match config.announce() {
            PoolType::Local => "Local".to_owned(),
            PoolType::Remote => "Remote".to_owned(),
        });
        status.bound_namespaces = config.namespaces.intersection(namespaces).cloned().collect();
        match &config.source {
            Source::Ranges(ranges) => {
                status.ipam = Some("Cluster".to_owned());
                status.addresses = ranges.group.ranges().iter().map(|r| r.span().to_string()).collect();
                status.retained = book.pools().retained(name).map(|ip| ip.to_string()).collect();
                (status.available_ipv4, status.available_ipv6) =
                    (left(stats.v4.available), left(stats.v6.available));
            }
            Source::Netbox(_) => status.ipam = Some("NetBox".to_owned()),
            Source::External(external) => status.ipam = Some(external.provider.clone()),
        }
        if is_provided(config) {
            let said = known.stats.clone().unwrap_or_default();
            status.addresses = said.addresses;
            status.available_ipv4 = said.available.and_then(|(v4, _)| count(v4));
            status.available_ipv6 = said.available.and_then(|(_, v6)| count(v6));
        }
    }
    (status, event)
}

/// Whether what a provider has given and nobody holds is given back.
fn sweep_condition(known: &Known, conditions: &mut Vec<Condition>, now: Timestamp) {
    let provided = known.good.as_ref().is_some_and(is_provided);
    if !provided {
        return conditions.retain(|condition| condition.type_ != SWEPT);
    }
    let (holds, reason, message) = match &known.sweep {
        None => return,
        Some(Sweep::Done) => {
            (true, "Swept", "what no Service holds is given back to the provider".to_owned())
        }
        Some(Sweep::NotListed) => (
            false,
            "NotListed",
            "the provider does not implement List: what is lost stays given in its book".to_owned(),
        ),
        Some(Sweep::Nameless) => (
            false,
            "Nameless",
            "namespace kube-system has no uid, so this cluster cannot be told from others: what is lost stays given"
                .to_owned(),
        ),
        Some(Sweep::Failed(why)) => (false, "SweepFailed", why.clone()),
    };
    let generation = known.object.metadata.generation;
    let finding = Finding { kind: SWEPT, holds, reason, message: &message, generation };
    conditions::set(conditions, &finding, now);
}

fn verdict(name: &GroupName, known: &Known, admission: &GroupAdmission) -> (bool, &'static str, String) {
    match (&known.problem, &known.good, admission.refused.get(name)) {
        (Some(problem), Some(_), _) => {
            (false, "ParseFailed", format!("{problem}; the last good configuration stays in use"))
        }
        (Some(problem), None, _) => (false, "ParseFailed", problem.clone()),
        (None, _, Some(overlap)) => (false, "Overlap", overlap.to_string()),
        (None, _, None) => (true, "Parsed", "in use".to_owned()),
    }
}

impl StatusWrite {
    /// Writes it. The group as it is now, or why not.
    pub async fn send(&self, client: &Client, guard: &Guard) -> Result<ServiceGroup, String> {
        guard.check().map_err(|e| e.to_string())?;
        let api: Api<ServiceGroup> =
            Api::namespaced(client.clone(), &self.object.namespace().unwrap_or_default());
        let old = self.object.status.clone().unwrap_or_default();
        let mut body = json!(self.status);
        // What the status no longer says has to be taken out by name.
        if let (Some(new), Some(old)) = (body.as_object_mut(), json!(old).as_object()) {
            for gone in old.keys().filter(|key| self.status_lacks(key)) {
                new.insert(gone.clone(), serde_json::Value::Null);
            }
        }
        let patch = json!({"metadata": {"resourceVersion": patches::version(&self.object)}, "status": body});
        let name = self.object.name_any();
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(|e| e.to_string())
    }

    fn status_lacks(&self, key: &str) -> bool {
        json!(self.status).get(key).is_none()
    }

    pub fn event(&self) -> Option<&Event> {
        self.event.as_ref()
    }
}
