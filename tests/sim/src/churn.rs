//! Users and administrators change objects: Services, endpoints, LBNodeAgents.

use std::collections::{BTreeMap, BTreeSet};

use purelb_core::facts::{
    AgentConfig, AgentFacts, AutoInterface, ConfigProblem, EndpointFacts, Selector, ServiceFacts,
};
use purelb_core::messages::{FactsUpdate, Input, Source};
use purelb_core::{IfName, ObjectKey, Vip};

use crate::actions::ActionKind;
use crate::queue::{MS, SEC};
use crate::setup::Layout;
use crate::world::World;

fn key(name: &str) -> ObjectKey {
    ObjectKey::of("default", name).expect("a valid key")
}

impl World {
    /// A Service with one or two addresses nobody has, or one that another shares.
    pub fn create_service(&mut self) {
        let used: BTreeSet<Vip> = self.api.services.values().flat_map(|s| s.vips.iter().copied()).collect();
        let free: Vec<usize> =
            (0..self.truth.vips.len()).filter(|v| !used.contains(&self.truth.vips[*v].vip)).collect();
        let share = self.rng.percent(10);
        let all: Vec<usize> = (0..self.truth.vips.len()).collect();
        let Some(first) = self.rng.pick(if share { &all } else { &free }).copied() else {
            return;
        };
        let local = self.truth.vips[first].local;
        let mut vips = BTreeSet::from([self.truth.vips[first].vip]);
        if let Some(second) = self.rng.pick(&free).copied()
            && self.rng.percent(20)
            && self.truth.vips[second].local == local
        {
            vips.insert(self.truth.vips[second].vip);
        }
        // Members of the older format do not look at endpoints.
        let plain = self.setup.legacy > 0;
        self.serial += 1;
        let service = ServiceFacts {
            key: key(&format!("svc-{}", self.serial)),
            vips,
            group: Some(if local { "local" } else { "remote" }.into()),
            only_local_endpoints: self.rng.percent(20) && !plain,
            prefer_endpoints: self.rng.percent(10) && !plain,
            slots: BTreeMap::new(),
        };
        self.log(|_| format!("api: Service {service:?}"));
        self.api.services.insert(service.key.clone(), service.clone());
        let (key, vips) = (service.key.clone(), service.vips.clone());
        self.publish(Source::Services, &Input::Services(FactsUpdate::Set(service)));
        self.objects_changed(Some(&vips));
        // Slices follow their Service.
        if self.now == 0 {
            self.set_endpoints(&key, 0);
        } else {
            let after = self.rng.below(500 * MS);
            self.plan(after, ActionKind::EndpointsOf(key));
        }
    }

    pub fn set_endpoints(&mut self, service: &ObjectKey, part: u64) {
        let Some(vips) = self.api.services.get(service).map(|s| s.vips.clone()) else {
            return;
        };
        let mut nodes = BTreeSet::new();
        for n in 0..self.nodes.len() {
            if self.rng.percent(45) {
                nodes.insert(self.nodes[n].name.clone());
            }
        }
        let slice = key(&format!("{}-{part}", service.name()));
        let facts = EndpointFacts { slice: slice.clone(), service: service.clone(), nodes };
        self.log(|_| format!("api: {facts:?}"));
        self.api.endpoints.insert(slice, facts.clone());
        self.publish(Source::EndpointSlices, &Input::Endpoints(FactsUpdate::Set(facts)));
        self.objects_changed(Some(&vips));
    }

    pub fn change_service(&mut self) {
        if self.api.outage {
            return;
        }
        let keys: Vec<ObjectKey> = self.api.services.keys().cloned().collect();
        let chosen = self.rng.pick(&keys).cloned();
        match (self.rng.below(10), chosen) {
            (0..4, _) | (_, None) => self.create_service(),
            (4..7, Some(service)) => {
                self.log(|_| format!("api: Service {service} deleted"));
                let vips = self.api.services.remove(&service).map(|s| s.vips);
                self.publish(Source::Services, &Input::Services(FactsUpdate::Gone(service.clone())));
                let after = self.rng.range(100 * MS, SEC);
                self.plan(after, ActionKind::CollectSlices(service));
                self.objects_changed(vips.as_ref());
            }
            _ if self.setup.legacy > 0 => {}
            (roll, Some(service)) => {
                let Some(object) = self.api.services.get_mut(&service) else {
                    return;
                };
                if roll < 9 {
                    object.only_local_endpoints = !object.only_local_endpoints;
                } else {
                    object.prefer_endpoints = !object.prefer_endpoints;
                }
                let vips = object.vips.clone();
                let input = Input::Services(FactsUpdate::Set(object.clone()));
                self.log(|_| format!("api: {input:?}"));
                self.publish(Source::Services, &input);
                self.objects_changed(Some(&vips));
            }
        }
    }

    /// The garbage collector takes away what a deleted Service left.
    pub fn collect_slices(&mut self, service: &ObjectKey) {
        let slices: Vec<ObjectKey> =
            self.api.endpoints.values().filter(|e| e.service == *service).map(|e| e.slice.clone()).collect();
        for slice in slices {
            self.api.endpoints.remove(&slice);
            self.publish(Source::EndpointSlices, &Input::Endpoints(FactsUpdate::Gone(slice)));
        }
    }

    pub fn change_endpoints(&mut self) {
        if self.api.outage {
            return;
        }
        let keys: Vec<ObjectKey> = self.api.services.keys().cloned().collect();
        if let Some(service) = self.rng.pick(&keys).cloned() {
            let part = self.rng.below(2);
            self.set_endpoints(&service, part);
        }
    }

    fn default_agent(&self) -> AgentFacts {
        let mut config = AgentConfig::default();
        // Long enough to be waited for, short enough to happen.
        config.candidacy.last_after = Some(std::time::Duration::from_secs(5));
        if self.setup.segments == 2 && self.setup.layout == Layout::Both {
            config.auto = AutoInterface::Pattern("eth".into());
        }
        AgentFacts { key: key("default"), selector: Selector::default(), config: Ok(config) }
    }

    fn store_agent(&mut self, agent: AgentFacts) {
        self.log(|_| format!("api: {agent:?}"));
        self.config_changed = self.now;
        self.api.agents.insert(agent.key.clone(), agent.clone());
        self.publish(Source::NodeAgents, &Input::Agents(FactsUpdate::Set(agent)));
    }

    fn remove_agent(&mut self, name: &str) {
        let key = key(name);
        if self.api.agents.remove(&key).is_some() {
            self.log(|_| format!("api: LBNodeAgent {key} deleted"));
            self.config_changed = self.now;
            self.publish(Source::NodeAgents, &Input::Agents(FactsUpdate::Gone(key)));
        }
    }

    pub fn repair_agents(&mut self) {
        self.remove_agent("odd-rack");
        let agent = self.default_agent();
        if self.api.agents.get(&agent.key) != Some(&agent) {
            self.store_agent(agent);
        }
    }

    /// A typing error, an agent for some nodes only, other interfaces, fewer
    /// announcements; repaired after a while.
    pub fn change_agent(&mut self) {
        if self.api.outage {
            return;
        }
        let mut agent = self.default_agent();
        match self.rng.below(5) {
            0 => {
                agent.config = Err(ConfigProblem {
                    object: agent.key.clone(),
                    field: "spec.local.localInterface".into(),
                    message: "not a regular expression".into(),
                });
                self.store_agent(agent);
            }
            1 => {
                agent.key = key("odd-rack");
                agent.selector.match_labels = BTreeMap::from([("rack".to_owned(), "odd".to_owned())]);
                if let Ok(config) = &mut agent.config {
                    config.auto = AutoInterface::None;
                }
                self.store_agent(agent);
            }
            2 => {
                // Nobody selects the even racks any more.
                agent.selector.match_labels = BTreeMap::from([("rack".to_owned(), "odd".to_owned())]);
                self.store_agent(agent);
            }
            3 => {
                if let Ok(config) = &mut agent.config {
                    config.interfaces = IfName::new("eth1").into_iter().collect();
                    config.garp.count = 1;
                }
                self.store_agent(agent);
            }
            _ => {
                if let Ok(config) = &mut agent.config {
                    config.auto = AutoInterface::Pattern("eth0".into());
                }
                self.store_agent(agent);
            }
        }
        let after = self.rng.range(SEC, 40 * SEC);
        self.plan(after, ActionKind::AgentRepaired);
    }
}
