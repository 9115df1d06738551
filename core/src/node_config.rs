//! Which LBNodeAgent speaks for this node, and what happens when it is bad (R11).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::{AgentConfig, AgentFacts, ConfigProblem, NodeFacts};
use crate::ids::ObjectKey;
use crate::messages::FactsUpdate;

#[derive(Clone, Debug, Default)]
pub struct NodeConfig {
    objects: BTreeMap<ObjectKey, AgentFacts>,
    /// Before that, that there is none says nothing.
    listed: bool,
    /// The configuration in force, and the object it came from.
    current: Option<AgentConfig>,
    standing: ConfigStatus,
}

/// Where the node stands with its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigStatus {
    #[default]
    NotSelected,
    /// There is no object at all: a node takes part with the defaults.
    Defaults,
    Configured,
    /// The object for this node is bad; an earlier good configuration may be in force.
    Rejected(ConfigProblem),
}

impl NodeConfig {
    pub fn update(&mut self, update: FactsUpdate<AgentFacts, ObjectKey>) {
        match update {
            FactsUpdate::All(all) => {
                self.listed = true;
                self.objects = all.into_iter().map(|a| (a.key.clone(), a)).collect();
            }
            FactsUpdate::Set(agent) => {
                self.objects.insert(agent.key.clone(), agent);
            }
            FactsUpdate::Gone(key) => {
                self.objects.remove(&key);
            }
        }
    }

    /// Decides anew. A specific selector beats a catch-all; then the object's name. Where
    /// nobody wrote an object, nobody means to keep a node out.
    pub fn decide(&mut self, node: Option<&NodeFacts>) {
        let chosen = node.and_then(|node| {
            let matching = self.objects.values().filter(|a| a.selector.matches(&node.labels));
            matching.min_by_key(|a| (a.selector.is_catch_all(), a.key.clone()))
        });
        match chosen.map(|a| &a.config) {
            None if self.listed && self.objects.is_empty() && node.is_some() => {
                self.current = Some(AgentConfig::default());
                self.standing = ConfigStatus::Defaults;
            }
            None => {
                self.current = None;
                self.standing = ConfigStatus::NotSelected;
            }
            Some(Ok(config)) => {
                self.current = Some(config.clone());
                self.standing = ConfigStatus::Configured;
            }
            // The last good configuration stays.
            Some(Err(problem)) => self.standing = ConfigStatus::Rejected(problem.clone()),
        }
    }

    pub fn current(&self) -> Option<&AgentConfig> {
        self.current.as_ref()
    }

    pub fn standing(&self) -> &ConfigStatus {
        &self.standing
    }

    /// Every object that is bad, whether or not it is meant for this node.
    pub fn problems(&self) -> impl Iterator<Item = &ConfigProblem> {
        self.objects.values().filter_map(|a| a.config.as_ref().err())
    }
}

#[cfg(test)]
mod tests;
