//! ServiceGroups: read, kept while a later edit is wrong (R11), and told what became
//! of them. Status writes are merged: however many Services came and went, a group
//! is written once per pause.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use purelb_api::conditions::{self, ACCEPTED, Finding, SWEPT};
use purelb_api::group::{self, GroupConfig, Source};
use purelb_api::{ServiceGroup, ServiceGroupStatus};
use purelb_core::ObjectKey;
use purelb_core::allocation::{Allocations, GroupSpec};
use purelb_core::facts::PoolType;
use purelb_core::pools::{Admission, GroupName, Rules};
use serde_json::json;

use crate::leader::Guard;
use crate::providers::ProviderStats;
use crate::reign::Sweep;
use crate::{patch, read};

#[derive(Debug)]
struct Known {
    object: ServiceGroup,
    /// The last configuration that was right.
    good: Option<GroupConfig>,
    /// What is wrong with the present one.
    problem: Option<String>,
    /// A status write is under way.
    busy: bool,
    /// What a provider said about its pool.
    stats: Option<ProviderStats>,
    /// What became of the last look for addresses nobody holds.
    sweep: Option<Sweep>,
    /// The API server drops the last good spec from the status: its CustomResourceDefinition
    /// is older than we are.
    forgetful: bool,
}

/// All ServiceGroups there are.
#[derive(Debug, Default)]
pub struct Groups {
    namespace: String,
    known: BTreeMap<GroupName, Known>,
    /// Deleted ones whose book somebody else keeps: what Services still hold of them has to
    /// go back there.
    former: BTreeMap<GroupName, GroupConfig>,
    strangers: BTreeSet<ObjectKey>,
}

/// A status to be written, and what to say about it.
#[derive(Debug)]
pub struct StatusWrite {
    pub name: GroupName,
    object: ServiceGroup,
    status: ServiceGroupStatus,
    event: Option<Event>,
}

/// What seeing a group came to.
#[derive(Debug)]
pub enum News {
    /// Its configuration is not what it was. An echo of our own status write is none.
    Config,
    /// An event to send, for a group that is not where groups are read from.
    Stranger(Box<Event>),
}

impl Groups {
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    pub fn seen(&mut self, object: ServiceGroup) -> Option<News> {
        let key = key(&object)?;
        if key.namespace() != self.namespace {
            let message = format!(
                "ServiceGroups are read from namespace {} only: this one is not in use",
                self.namespace
            );
            self.strangers.insert(key);
            let event = group_event(&object, "ServiceGroupOutOfScope", true, &message);
            return Some(News::Stranger(Box::new(event)));
        }
        let name = GroupName::from(key);
        let former = self.known.remove(&name);
        // Another object of the same name has no claim on the former one's ranges.
        let same = former.as_ref().filter(|known| known.object.uid() == object.uid());
        let busy = former.as_ref().is_some_and(|known| known.busy);
        let stats = former.as_ref().and_then(|known| known.stats.clone());
        let sweep = former.as_ref().and_then(|known| known.sweep.clone());
        let forgetful = former.as_ref().is_some_and(|known| known.forgetful);
        let (good, problem) = match group::parse(&object, &Rules::default()) {
            Ok(config) => (Some(config), None),
            Err(problem) => {
                let words = format!("{}: {}", problem.field, problem.message);
                // From memory, or, after a start, from what an earlier process wrote down.
                let earlier = || group::parse(&object.last_good()?, &Rules::default()).ok();
                (same.and_then(|known| known.good.clone()).or_else(earlier), Some(words))
            }
        };
        let as_before = same.is_some_and(|known| known.good == good && known.problem == problem);
        self.known.insert(name, Known { object, good, problem, busy, stats, sweep, forgetful });
        (!as_before).then_some(News::Config)
    }

    pub fn gone(&mut self, object: &ServiceGroup) {
        if let Some(key) = key(object) {
            self.strangers.remove(&key);
            let name = GroupName::from(key);
            if let Some(known) = self.known.remove(&name) {
                self.part_from(name, known);
            }
        }
    }

    fn part_from(&mut self, name: GroupName, known: Known) {
        if let Some(config) = known.good.filter(is_provided) {
            self.former.insert(name, config);
        }
    }

    /// Everything listed anew: what is not in the list is gone.
    pub fn retain(&mut self, present: &BTreeSet<ObjectKey>) {
        self.strangers.retain(|key| present.contains(key));
        let gone: Vec<(GroupName, Known)> =
            self.known.extract_if(.., |name, _| !present.contains(name.key())).collect();
        for (name, known) in gone {
            self.part_from(name, known);
        }
    }

    /// The configuration of a provider's group that was deleted, and perhaps made anew.
    pub fn former(&self, name: &GroupName) -> Option<&GroupConfig> {
        self.former.get(name)
    }

    /// Only those are remembered of which somebody still holds something.
    pub fn forget_former(&mut self, held: impl Fn(&GroupName) -> bool) {
        self.former.retain(|name, _| held(name));
    }

    pub fn out_of_scope(&self) -> usize {
        self.strangers.len()
    }

    /// The groups in use, and those that never were right.
    pub fn specs(&self) -> (Vec<GroupSpec>, BTreeMap<GroupName, String>) {
        let mut specs = Vec::new();
        let mut problems = BTreeMap::new();
        for (name, known) in &self.known {
            match (&known.good, &known.problem) {
                (Some(config), _) => {
                    specs.push(read::group(config, known.object.creation_timestamp().map(|t| t.0)));
                }
                (None, Some(problem)) => {
                    problems.insert(name.clone(), problem.clone());
                }
                (None, None) => {}
            }
        }
        (specs, problems)
    }

    pub fn config(&self, name: &GroupName) -> Option<&GroupConfig> {
        self.known.get(name)?.good.as_ref()
    }

    pub fn names(&self) -> impl Iterator<Item = &GroupName> {
        self.known.keys()
    }

    /// What a provider said about its pool; true if that is news.
    pub fn set_stats(&mut self, name: &GroupName, stats: ProviderStats) -> bool {
        let Some(known) = self.known.get_mut(name) else { return false };
        let news = known.stats.as_ref() != Some(&stats);
        known.stats = Some(stats);
        news
    }

    /// What became of the look for addresses nobody holds; true if that is news.
    pub fn set_sweep(&mut self, name: &GroupName, sweep: Sweep) -> bool {
        let Some(known) = self.known.get_mut(name) else { return false };
        let news = known.sweep.as_ref() != Some(&sweep);
        known.sweep = Some(sweep);
        news
    }

    /// Groups whose addresses a provider keeps.
    pub fn provided(&self) -> impl Iterator<Item = (&GroupName, &GroupConfig)> {
        let configs = self.known.iter().filter_map(|(name, known)| Some((name, known.good.as_ref()?)));
        configs.filter(|(_, config)| is_provided(config))
    }

    /// Statuses that are not what they should be. Each is busy until `written`.
    pub fn stale(
        &mut self,
        book: &Allocations,
        admission: &Admission,
        namespaces: &BTreeSet<String>,
        now: Timestamp,
    ) -> Vec<StatusWrite> {
        let mut writes = Vec::new();
        for (name, known) in self.known.iter_mut().filter(|(_, known)| !known.busy) {
            let old = known.object.status.clone().unwrap_or_default();
            let (status, event) = status(name, known, &old, book, admission, namespaces, now);
            // What would be dropped again is no reason to write.
            let kept = if known.forgetful { old.last_good.clone() } else { status.last_good.clone() };
            if (ServiceGroupStatus { last_good: kept, ..status.clone() }) == old {
                continue;
            }
            known.busy = true;
            let object = known.object.clone();
            writes.push(StatusWrite { name: name.clone(), object, status, event });
        }
        writes
    }

    /// A status write ended; with the group as it is now, if it was answered.
    pub fn written(&mut self, name: &GroupName, now: Option<ServiceGroup>) {
        let Some(known) = self.known.get_mut(name) else { return };
        known.busy = false;
        if let Some(now) = now.filter(|now| now.uid() == known.object.uid()) {
            let asked = known.problem.is_none() && known.object.spec_text().is_some();
            let lost = asked && now.status.as_ref().is_none_or(|s| s.last_good.is_none());
            if lost && !known.forgetful {
                tracing::warn!(
                    group = %name,
                    "the API server does not keep status.lastGood: apply the CustomResourceDefinitions of this version, \
                     or a bad edit together with a restart takes the group out of use"
                );
            }
            known.forgetful = lost;
            known.object = now;
        }
    }
}

/// Its addresses are kept by a provider.
fn is_provided(config: &GroupConfig) -> bool {
    !matches!(config.source, Source::Ranges(_))
}

fn key(object: &ServiceGroup) -> Option<ObjectKey> {
    ObjectKey::of(&object.namespace()?, &object.name_any()).ok()
}

/// The name makes it one event per fact, however often the allocator restarts.
fn group_event(object: &ServiceGroup, reason: &str, warning: bool, message: &str) -> Event {
    let uid = object.uid().unwrap_or_default();
    let id: String = uid.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    let generation = object.metadata.generation.unwrap_or_default();
    let words = message.bytes().fold(5381_u32, |h, b| h.wrapping_mul(33) ^ u32::from(b));
    let room: String = object.name_any().chars().take(180).collect();
    let name = format!("{room}.{}-{id}-{generation}-{words:x}", reason.to_ascii_lowercase());
    patch::event(object, name, reason, warning, message, Timestamp::now())
}

fn status(
    name: &GroupName,
    known: &Known,
    old: &ServiceGroupStatus,
    book: &Allocations,
    admission: &Admission,
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

fn verdict(name: &GroupName, known: &Known, admission: &Admission) -> (bool, &'static str, String) {
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
        let patch = json!({"metadata": {"resourceVersion": patch::version(&self.object)}, "status": body});
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

#[cfg(test)]
mod tests;
