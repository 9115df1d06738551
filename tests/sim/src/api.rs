//! The API server: objects, watches that hear of changes in order, and all the ways
//! a request can go wrong.

use std::collections::BTreeMap;

use purelb_core::facts::{
    AgentFacts, AnnouncingSlot, EndpointFacts, GroupFacts, LeaseFacts, NodeFacts, ServiceFacts,
};
use purelb_core::messages::{FactsUpdate, Input, Source};
use purelb_core::{IfName, NodeName, ObjectKey, Vip};

use crate::queue::{Channel, MS, SEC, SimEvent, T};
use crate::world::World;

#[derive(Clone, Debug)]
pub struct LeaseObject {
    pub facts: LeaseFacts,
    pub applied: T,
    /// How long it counts from then, by the word of whoever renewed it.
    pub duration: T,
    pub node_uid: String,
    /// Changes with every write.
    pub version: u64,
}

#[derive(Debug, Default)]
pub struct Api {
    pub leases: BTreeMap<NodeName, LeaseObject>,
    pub services: BTreeMap<ObjectKey, ServiceFacts>,
    pub groups: BTreeMap<String, GroupFacts>,
    pub agents: BTreeMap<ObjectKey, AgentFacts>,
    pub endpoints: BTreeMap<ObjectKey, EndpointFacts>,
    pub nodes: BTreeMap<NodeName, NodeFacts>,
    /// Away for everybody.
    pub outage: bool,
    /// Added to every request and delivery, at most.
    pub slow: T,
    /// Per mille of requests that fail, in one of several ways.
    pub errors: u64,
}

impl World {
    pub fn latency(&mut self) -> T {
        let extra = if self.api.slow > 0 { self.rng.below(self.api.slow) } else { 0 };
        self.rng.range(MS / 2, 15 * MS) + extra
    }

    pub fn watch_delay(&mut self) -> T {
        let rare = if self.rng.permille(5) { 300 * MS } else { 1 };
        let extra = if self.api.slow > 0 { self.rng.below(self.api.slow) } else { 0 };
        self.rng.range(MS, 25 * MS) + self.rng.below(rare) + extra
    }

    pub fn reachable(&self, node: usize) -> bool {
        !self.api.outage && !self.nodes[node].cut && self.nodes[node].powered
    }

    /// The node's wall clock in microseconds: wrong, and it may jump.
    pub fn wall(&self, node: usize) -> i64 {
        (self.now / 1000) as i64 + self.nodes[node].wall
    }

    pub fn store_lease(&mut self, node: usize, facts: LeaseFacts, node_uid: String) {
        let name = facts.node.clone();
        let old = self.api.leases.get(&name);
        if old.is_none_or(|l| l.facts.subnets != facts.subnets) {
            self.nodes[node].offered_at = self.now;
        }
        let changed = old.is_none_or(|l| {
            l.facts.subnets != facts.subnets
                || l.facts.draining != facts.draining
                || l.facts.declined != facts.declined
                || l.facts.rank != facts.rank
                || l.facts.duration_seconds != facts.duration_seconds
        });
        let duration = facts.duration_seconds.max(0) as T * SEC;
        self.serial += 1;
        let version = self.serial;
        let object = LeaseObject { facts: facts.clone(), applied: self.now, duration, node_uid, version };
        let owner = object.node_uid.clone();
        let orphaned = !owner.is_empty() && self.api.nodes.get(&name).is_none_or(|n| n.uid != owner);
        self.api.leases.insert(name, object);
        if orphaned {
            self.plan_collection(node, owner);
        }
        self.log(|_| {
            format!(
                "api: Lease {} announced {:?} subnets {:?} draining {:?}",
                facts.node, facts.announced, facts.subnets, facts.draining
            )
        });
        self.publish(Source::Leases, &Input::Leases(FactsUpdate::Set(facts)));
        self.plan_run_out(node);
        if changed || !self.truth.live[node] {
            self.refresh_truth();
        }
    }

    /// Somebody who is no daemon writes into a Lease. It is no renewal.
    pub fn edit_lease(&mut self, node: usize, edit: impl FnOnce(&mut LeaseFacts)) {
        let name = self.nodes[node].name.clone();
        let Some(object) = self.api.leases.get_mut(&name) else {
            return;
        };
        self.serial += 1;
        object.version = self.serial;
        edit(&mut object.facts);
        let facts = object.facts.clone();
        self.log(|_| format!("api: somebody edits a Lease: {facts:?}"));
        self.publish(Source::Leases, &Input::Leases(FactsUpdate::Set(facts)));
        self.refresh_truth();
    }

    pub fn remove_lease(&mut self, node: usize) {
        let name = self.nodes[node].name.clone();
        if self.api.leases.remove(&name).is_some() {
            self.log(|_| format!("api: Lease {name} deleted"));
            self.publish(Source::Leases, &Input::Leases(FactsUpdate::Gone(name)));
            self.refresh_truth();
        }
    }

    pub fn send_delete(&mut self, node: usize) {
        let delay = self.latency();
        let life = self.nodes[node].life;
        self.queue.push(self.now + delay, SimEvent::DeleteArrives { node, life });
    }

    pub fn delete_arrives(&mut self, node: usize, life: u32) {
        let name = self.nodes[node].name.clone();
        let result = if !self.reachable(node) {
            Err("connection refused".to_owned())
        } else if self.rng.permille(self.api.errors) {
            Err("503 Service Unavailable".to_owned())
        } else {
            // Only the process whose id stands in it may delete it.
            let process = self.nodes[node].process.as_ref();
            let mine = self
                .api
                .leases
                .get(&name)
                .is_some_and(|l| l.facts.instance.as_ref() == process.map(|p| &p.instance));
            if mine && self.nodes[node].life == life {
                self.remove_lease(node);
            }
            Ok(())
        };
        if self.nodes[node].life == life {
            let delay = self.latency();
            self.deliver(node, Channel::Answers, delay, Input::LeaseDeleted(result));
        }
    }

    pub fn send_slot(&mut self, node: usize, service: ObjectKey, vip: Vip, interface: IfName) {
        let delay = self.latency();
        let life = self.nodes[node].life;
        let ev = SimEvent::SlotArrives { node, life, service, vip, interface };
        self.queue.push(self.now + delay, ev);
    }

    pub fn slot_arrives(&mut self, node: usize, life: u32, service: ObjectKey, vip: Vip, interface: IfName) {
        if !self.reachable(node) || self.rng.permille(self.api.errors) {
            // The writer tries again as long as its process lives.
            if self.nodes[node].life == life && self.nodes[node].runs() {
                let ev = SimEvent::SlotArrives { node, life, service, vip, interface };
                let after = self.rng.range(500 * MS, 1500 * MS);
                self.queue.push(self.now + after, ev);
            }
            return;
        }
        let slot = AnnouncingSlot { node: self.nodes[node].name.clone(), interface };
        let Some(object) = self.api.services.get_mut(&service) else {
            return;
        };
        if object.vips.contains(&vip) && object.slots.get(&vip) != Some(&slot) {
            object.slots.insert(vip, slot);
            let input = Input::Services(FactsUpdate::Set(object.clone()));
            self.publish(Source::Services, &input);
        }
    }

    /// Asks for a fresh listing; what the old watch still had to say is lost.
    pub fn relist(&mut self, node: usize, source: Source, after: T) {
        if source == Source::Kernel {
            self.plan_dump(node, after);
            return;
        }
        let life = self.nodes[node].life;
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let watch = process.watch(source);
        watch.generation += 1;
        watch.connected = false;
        watch.stalled = false;
        watch.backlog.clear();
        let ev = SimEvent::ListArrives { node, life, source, generation: watch.generation };
        let at = self.now + after + self.latency();
        self.queue.push(at, ev);
    }

    pub fn list_arrives(&mut self, node: usize, life: u32, source: Source, generation: u32) {
        if self.nodes[node].life != life {
            return;
        }
        let reachable = self.reachable(node) && !self.nodes[node].deaf && !self.rng.permille(self.api.errors);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let watch = process.watch(source);
        if watch.generation != generation {
            return;
        }
        if !reachable {
            let after = self.rng.range(200 * MS, 1000 * MS);
            let ev = SimEvent::ListArrives { node, life, source, generation };
            self.queue.push(self.now + after, ev);
            return;
        }
        watch.connected = true;
        let input = self.listing(source);
        let delay = self.latency();
        self.deliver(node, Channel::Watch(source), delay, input);
    }

    fn listing(&self, source: Source) -> Input {
        fn all<K, V: Clone, N>(of: &BTreeMap<K, V>) -> FactsUpdate<V, N> {
            FactsUpdate::All(of.values().cloned().collect())
        }
        match source {
            Source::Services => Input::Services(all(&self.api.services)),
            Source::ServiceGroups => Input::Groups(all(&self.api.groups)),
            Source::NodeAgents => Input::Agents(all(&self.api.agents)),
            Source::EndpointSlices => Input::Endpoints(all(&self.api.endpoints)),
            Source::Nodes => Input::Nodes(all(&self.api.nodes)),
            Source::Leases => {
                Input::Leases(FactsUpdate::All(self.api.leases.values().map(|l| l.facts.clone()).collect()))
            }
            Source::Kernel => Input::Tick,
        }
    }

    /// The connection is back: the watches go on where they were, or break.
    pub fn reconnect(&mut self, node: usize) {
        for source in crate::node::WATCHED {
            self.resume_watch(node, source);
        }
    }

    pub fn resume_watch(&mut self, node: usize, source: Source) {
        if !self.reachable(node) || self.nodes[node].deaf {
            return;
        }
        let broken = self.rng.percent(50);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let watch = process.watch(source);
        watch.stalled = false;
        if !watch.connected {
            return;
        }
        if broken {
            let after = self.rng.below(1500 * MS);
            self.relist(node, source, after);
            return;
        }
        for input in std::mem::take(&mut watch.backlog) {
            let delay = self.watch_delay();
            self.deliver(node, Channel::Watch(source), delay, input);
        }
    }
}
