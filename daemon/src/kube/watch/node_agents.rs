//! LBNodeAgents: what each node is configured to do.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use purelb_api::{LBNodeAgent, node_agent};
use purelb_core::ObjectKey;
use purelb_core::facts::{AgentFacts, ConfigProblem, Operator, Requirement, Selector};
use purelb_core::messages::{FactsUpdate, Input, Source};

use super::object_key;
use super::watched_kind::{ObjectReading, WatchedKind};
use crate::kube::LastGoodConfig;
use crate::kube::client::request_error::clip;
use crate::kube::seen_objects::SeenObjects;
use crate::kube::write::condition_writer::ConditionSender;

pub(crate) struct NodeAgentKind {
    pub(crate) namespace: String,
    pub(crate) seen_objects: Arc<SeenObjects>,
    pub(crate) conditions: ConditionSender,
    /// Selectors of objects that could be read: one that no longer can is still meant
    /// for the same nodes.
    pub(crate) selectors: BTreeMap<ObjectKey, Selector>,
    pub(crate) last_good: LastGoodConfig,
    /// Those that are wrong now, with their UIDs.
    pub(crate) wrong: BTreeMap<ObjectKey, String>,
    /// One that follows on has told the engine of them when they were right.
    pub(crate) replayed: bool,
}

impl WatchedKind for NodeAgentKind {
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

    fn read(&mut self, key: &ObjectKey, object: &LBNodeAgent) -> ObjectReading<AgentFacts> {
        let facts = node_agent::facts(object);
        let uid = object.uid().unwrap_or_default();
        self.seen_objects.record_agent(key, &uid);
        if facts.config.is_ok() {
            self.last_good.keep_agent(&uid, &facts);
            self.wrong.remove(key);
        } else {
            self.wrong.insert(key.clone(), uid);
        }
        self.selectors.insert(key.clone(), facts.selector.clone());
        self.conditions.report(object, facts.config.as_ref().err());
        ObjectReading::Facts(facts)
    }

    /// Wrong in a way the schema should have refused: as bad as any other mistake.
    fn unreadable(&mut self, key: &ObjectKey, uid: &str, error: &str) -> ObjectReading<AgentFacts> {
        let problem = ConfigProblem { object: key.clone(), field: "spec".to_owned(), message: clip(error) };
        let earlier = || self.last_good.agent(key, uid).map(|facts| facts.selector);
        let selector = self.selectors.get(key).cloned().or_else(earlier).unwrap_or_else(selector_of_no_node);
        self.wrong.insert(key.clone(), uid.to_owned());
        ObjectReading::Facts(AgentFacts { key: key.clone(), selector, config: Err(problem) })
    }

    fn object_deleted(&mut self, key: &ObjectKey) {
        self.selectors.remove(key);
        self.wrong.remove(key);
        self.last_good.retain_agents(|kept| kept != key);
        self.seen_objects.forget_agent(key);
        self.conditions.report_gone(key);
    }

    fn listing_done(&mut self, seen: &HashSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self.selectors.keys().filter(|k| !seen.contains(*k)).cloned().collect();
        for key in gone {
            self.object_deleted(&key);
        }
        self.last_good.retain_agents(|key| seen.contains(key));
    }

    fn earlier_listing(&mut self, all: &[AgentFacts]) -> Option<Vec<AgentFacts>> {
        if std::mem::replace(&mut self.replayed, true) {
            return None;
        }
        let good = |facts: &AgentFacts| self.last_good.agent(&facts.key, self.wrong.get(&facts.key)?);
        if !all.iter().any(|facts| good(facts).is_some()) {
            return None;
        }
        Some(all.iter().map(|facts| good(facts).unwrap_or_else(|| facts.clone())).collect())
    }

    fn input(update: FactsUpdate<AgentFacts, ObjectKey>) -> Input {
        Input::Agents(update)
    }
}

/// Matches no node.
fn selector_of_no_node() -> Selector {
    let on = |operator| Requirement { key: "purelb.io/nothing".into(), operator, values: Default::default() };
    Selector {
        match_expressions: vec![on(Operator::Exists), on(Operator::DoesNotExist)],
        ..Default::default()
    }
}
