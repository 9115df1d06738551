//! The kinds a daemon follows, but for Services and EndpointSlices, which depend on
//! each other (see `services`).

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use purelb_api::{LBNodeAgent, ServiceGroup, agent, group, lease, names, node};
use purelb_core::facts::{AgentFacts, ConfigProblem, GroupFacts, LeaseFacts, NodeFacts};
use purelb_core::facts::{Operator, Requirement, Selector};
use purelb_core::io::{Input, Source, Update};
use purelb_core::pools::Rules;
use purelb_core::{NodeName, ObjectKey};

use super::book::Book;
use super::conditions::Conditions;
use super::failure::clip;
use super::kind::{Kind, Read};
use crate::last_good::LastGood;

/// Which addresses are given is the allocator's decision; whatever it gave is announced.
const ANY_ADDRESS: Rules = Rules { skip_last_octet: false, skip_subnet_edges: false, reserved: Vec::new() };

pub(crate) fn object_key(meta: &ObjectMeta) -> Option<ObjectKey> {
    ObjectKey::of(meta.namespace.as_deref()?, meta.name.as_deref()?).ok()
}

pub(crate) struct Nodes;

impl Kind for Nodes {
    type Object = Node;
    type Key = NodeName;
    type Facts = NodeFacts;
    const SOURCE: Source = Source::Nodes;

    fn namespace(&self) -> Option<&str> {
        None
    }

    fn key(&self, meta: &ObjectMeta) -> Option<NodeName> {
        NodeName::new(meta.name.as_deref()?).ok()
    }

    fn read(&mut self, _key: &NodeName, object: &Node) -> Read<NodeFacts> {
        node::facts(object).map_or(Read::Not, Read::Facts)
    }

    fn input(update: Update<NodeFacts, NodeName>) -> Input {
        Input::Nodes(update)
    }
}

pub(crate) struct Leases {
    pub(crate) namespace: String,
}

impl Kind for Leases {
    type Object = Lease;
    type Key = NodeName;
    type Facts = LeaseFacts;
    const SOURCE: Source = Source::Leases;

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn labels(&self) -> Option<String> {
        Some(names::LEASE_SELECTOR.to_owned())
    }

    fn key(&self, meta: &ObjectMeta) -> Option<NodeName> {
        names::node_of_lease(meta.name.as_deref()?)
    }

    /// A node's Lease that somebody else holds says nothing of that node.
    fn read(&mut self, key: &NodeName, object: &Lease) -> Read<LeaseFacts> {
        lease::facts(object).map_or_else(
            |problem| {
                // Whoever writes it may do so every second.
                tracing::debug!(node = %key, %problem, "Lease ignored");
                Read::Not
            },
            Read::Facts,
        )
    }

    fn input(update: Update<LeaseFacts, NodeName>) -> Input {
        Input::Leases(update)
    }
}

/// A group that is wrong keeps its last good self (R11). Saying so on the object is the
/// allocator's: one writer, not one per node.
pub(crate) struct Groups {
    pub(crate) namespace: String,
    pub(crate) last_good: LastGood,
    pub(crate) problems: Problems,
}

/// What is wrong with which group, for those who ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems(Arc<Mutex<BTreeMap<String, ConfigProblem>>>);

impl Problems {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ConfigProblem>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<ConfigProblem> {
        self.lock().values().cloned().collect()
    }
}

impl Kind for Groups {
    type Object = ServiceGroup;
    type Key = String;
    type Facts = GroupFacts;
    const SOURCE: Source = Source::ServiceGroups;

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn key(&self, meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }

    fn read(&mut self, key: &String, object: &ServiceGroup) -> Read<GroupFacts> {
        match group::parse(object, &ANY_ADDRESS) {
            Ok(config) => {
                self.problems.lock().remove(key);
                let facts = GroupFacts { retained: group::retained(object), ..config.facts() };
                self.last_good.keep_group(&object.uid().unwrap_or_default(), &facts);
                Read::Facts(facts)
            }
            Err(problem) => {
                self.last_good.group_is_wrong(key, &object.uid().unwrap_or_default());
                self.reject(key, problem)
            }
        }
    }

    fn unreadable(&mut self, key: &String, uid: &str, error: &str) -> Read<GroupFacts> {
        self.last_good.group_is_wrong(key, uid);
        let Ok(object) = ObjectKey::of(&self.namespace, key) else { return Read::Keep };
        self.reject(key, ConfigProblem { object, field: "spec".to_owned(), message: clip(error) })
    }

    fn gone(&mut self, key: &String) {
        self.last_good.retain_groups(|name| name != key);
        self.problems.lock().remove(key);
    }

    fn listed(&mut self, seen: &HashSet<String>) {
        self.last_good.retain_groups(|name| seen.contains(name));
        self.problems.lock().retain(|key, _| seen.contains(key));
    }

    fn last(&self, key: &String) -> Option<GroupFacts> {
        self.last_good.group(key)
    }

    fn input(update: Update<GroupFacts, String>) -> Input {
        Input::Groups(update)
    }
}

impl Groups {
    fn reject(&self, key: &str, problem: ConfigProblem) -> Read<GroupFacts> {
        let ConfigProblem { object, field, message } = &problem;
        tracing::warn!(%object, field, message, "ServiceGroup rejected, the last good one stays");
        self.problems.lock().insert(key.to_owned(), problem);
        Read::Keep
    }
}

pub(crate) struct Agents {
    pub(crate) namespace: String,
    pub(crate) book: Arc<Book>,
    pub(crate) conditions: Conditions,
    /// Selectors of objects that could be read: one that no longer can is still meant
    /// for the same nodes.
    pub(crate) selectors: BTreeMap<ObjectKey, Selector>,
    pub(crate) last_good: LastGood,
    /// Those that are wrong now, with their UIDs.
    pub(crate) wrong: BTreeMap<ObjectKey, String>,
    /// One that follows on has told the engine of them when they were right.
    pub(crate) replayed: bool,
}

impl Kind for Agents {
    type Object = LBNodeAgent;
    type Key = ObjectKey;
    type Facts = AgentFacts;
    const SOURCE: Source = Source::NodeAgents;

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn key(&self, meta: &ObjectMeta) -> Option<ObjectKey> {
        object_key(meta)
    }

    fn read(&mut self, key: &ObjectKey, object: &LBNodeAgent) -> Read<AgentFacts> {
        let facts = agent::facts(object);
        let uid = object.uid().unwrap_or_default();
        self.book.saw_agent(key, &uid);
        if facts.config.is_ok() {
            self.last_good.keep_agent(&uid, &facts);
            self.wrong.remove(key);
        } else {
            self.wrong.insert(key.clone(), uid);
        }
        self.selectors.insert(key.clone(), facts.selector.clone());
        self.conditions.saw(object, facts.config.as_ref().err());
        Read::Facts(facts)
    }

    /// Wrong in a way the schema should have refused: as bad as any other mistake.
    fn unreadable(&mut self, key: &ObjectKey, uid: &str, error: &str) -> Read<AgentFacts> {
        let problem = ConfigProblem { object: key.clone(), field: "spec".to_owned(), message: clip(error) };
        let earlier = || self.last_good.agent(key, uid).map(|facts| facts.selector);
        let selector = self.selectors.get(key).cloned().or_else(earlier).unwrap_or_else(nothing);
        self.wrong.insert(key.clone(), uid.to_owned());
        Read::Facts(AgentFacts { key: key.clone(), selector, config: Err(problem) })
    }

    fn gone(&mut self, key: &ObjectKey) {
        self.selectors.remove(key);
        self.wrong.remove(key);
        self.last_good.retain_agents(|kept| kept != key);
        self.book.forget_agent(key);
        self.conditions.gone(key);
    }

    fn listed(&mut self, seen: &HashSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self.selectors.keys().filter(|k| !seen.contains(*k)).cloned().collect();
        for key in gone {
            self.gone(&key);
        }
        self.last_good.retain_agents(|key| seen.contains(key));
    }

    fn earlier(&mut self, all: &[AgentFacts]) -> Option<Vec<AgentFacts>> {
        if std::mem::replace(&mut self.replayed, true) {
            return None;
        }
        let good = |facts: &AgentFacts| self.last_good.agent(&facts.key, self.wrong.get(&facts.key)?);
        if !all.iter().any(|facts| good(facts).is_some()) {
            return None;
        }
        Some(all.iter().map(|facts| good(facts).unwrap_or_else(|| facts.clone())).collect())
    }

    fn input(update: Update<AgentFacts, ObjectKey>) -> Input {
        Input::Agents(update)
    }
}

/// Matches no node.
fn nothing() -> Selector {
    let on = |operator| Requirement { key: "purelb.io/nothing".into(), operator, values: Default::default() };
    Selector {
        match_expressions: vec![on(Operator::Exists), on(Operator::DoesNotExist)],
        ..Default::default()
    }
}
