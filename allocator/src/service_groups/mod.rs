//! ServiceGroups: read, kept while a later edit is wrong (R11), and told what became
//! of them. Status writes are merged: however many Services came and went, a group
//! is written once per pause.

mod status;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use purelb_api::service_group::{self, GroupConfig, Source};
use purelb_api::{ServiceGroup, ServiceGroupStatus};
use purelb_core::ObjectKey;
use purelb_core::allocation::{Allocations, GroupSpec};
use purelb_core::pools::{GroupAdmission, GroupName, RangeRules};

use crate::controller::Sweep;
use crate::kube::{patches, service_request};
use crate::providers::ProviderStats;
pub use status::StatusWrite;
use status::status;

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
        let (good, problem) = match service_group::parse(&object, &RangeRules::default()) {
            Ok(config) => (Some(config), None),
            Err(problem) => {
                let words = format!("{}: {}", problem.field, problem.message);
                // From memory, or, after a start, from what an earlier process wrote down.
                let earlier = || service_group::parse(&object.last_good()?, &RangeRules::default()).ok();
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
                    specs
                        .push(service_request::group(config, known.object.creation_timestamp().map(|t| t.0)));
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
        admission: &GroupAdmission,
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
    patches::event(object, name, reason, warning, message, Timestamp::now())
}

#[cfg(test)]
mod tests;
