//! The API server: objects, watches that hear of changes in order, and all the ways
//! a request can go wrong.

use std::collections::BTreeMap;

use purelb_core::facts::{AgentFacts, EndpointFacts, GroupFacts, LeaseFacts, NodeFacts, ServiceFacts, Slot};
use purelb_core::io::{Input, LeaseContent, LeaseError, LeaseMode, LeaseWrite, Renewed, Source, Update};
use purelb_core::{IfName, InstanceId, Mono, NodeName, ObjectKey, Vip};

use crate::queue::{Channel, Ev, MS, T};
use crate::world::World;

#[derive(Clone, Debug)]
pub struct LeaseObject {
    pub facts: LeaseFacts,
    pub applied: T,
    pub node_uid: String,
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

fn facts_of(node: &NodeName, content: &LeaseContent, renewal: String) -> LeaseFacts {
    LeaseFacts {
        node: node.clone(),
        instance: Some(content.instance.clone()),
        duration_seconds: content.duration.as_secs() as i64,
        renewal,
        subnets: content.subnets.clone(),
        draining: content.draining.clone(),
        announced: Some(content.announced.clone()),
        control_endpoint: None,
    }
}

impl World {
    fn latency(&mut self) -> T {
        let extra = if self.api.slow > 0 { self.rng.below(self.api.slow) } else { 0 };
        self.rng.range(MS / 2, 15 * MS) + extra
    }

    pub fn watch_delay(&mut self) -> T {
        let rare = if self.rng.permille(5) { 300 * MS } else { 1 };
        let extra = if self.api.slow > 0 { self.rng.below(self.api.slow) } else { 0 };
        self.rng.range(MS, 25 * MS) + self.rng.below(rare) + extra
    }

    fn reachable(&self, node: usize) -> bool {
        !self.api.outage && !self.nodes[node].cut && self.nodes[node].powered
    }

    pub fn send_lease(&mut self, node: usize, write: LeaseWrite) {
        let delay = self.latency();
        let timeout = write.timeout.as_nanos() as T;
        if delay >= timeout {
            // The client closes the request before it is served.
            let answer = Input::LeaseWritten {
                seq: write.seq,
                sent_at: self.mono(node),
                result: Err(LeaseError::Timeout),
            };
            self.deliver(node, Channel::Answers, timeout, answer);
            return;
        }
        let ev = Ev::LeaseArrives {
            node,
            life: self.nodes[node].life,
            sent: self.now,
            sent_at: self.mono(node),
            write: Box::new(write),
        };
        self.queue.push(self.now + delay, ev);
    }

    pub fn lease_arrives(&mut self, node: usize, life: u32, sent: T, sent_at: Mono, write: LeaseWrite) {
        let give_up = sent + write.timeout.as_nanos() as T;
        let mut answer_at = self.now + self.latency();
        let mut result = Err(LeaseError::Timeout);
        if !self.reachable(node) {
            if self.rng.percent(50) {
                result = Err(LeaseError::Unreachable("connection refused".into()));
            } else {
                answer_at = give_up;
            }
        } else if self.rng.permille(self.api.errors) {
            match self.rng.below(4) {
                0 => answer_at = give_up,
                1 => {
                    // Done, and the answer is lost: the worst kind.
                    let _ = self.apply_lease(node, &write);
                    answer_at = give_up;
                }
                2 => result = Err(LeaseError::Conflict("the object has been modified".into())),
                _ => result = Err(LeaseError::Refused("503 Service Unavailable".into())),
            }
        } else {
            result = self.apply_lease(node, &write);
        }
        if answer_at >= give_up {
            answer_at = give_up;
            result = Err(LeaseError::Timeout);
        }
        if self.nodes[node].life == life {
            let answer = Input::LeaseWritten { seq: write.seq, sent_at, result };
            self.deliver(node, Channel::Answers, answer_at - self.now, answer);
        }
    }

    fn apply_lease(&mut self, node: usize, write: &LeaseWrite) -> Result<Renewed, LeaseError> {
        let name = self.nodes[node].name.clone();
        let standing = self.api.leases.get(&name);
        match (write.mode, standing) {
            (LeaseMode::Create, Some(_)) => return Err(LeaseError::Exists),
            (LeaseMode::TakeOver | LeaseMode::Renew, None) => return Err(LeaseError::Missing),
            (LeaseMode::Renew, Some(l)) if l.facts.instance.as_ref() != Some(&write.content.instance) => {
                let by = l.facts.instance.clone();
                let by = by.unwrap_or_else(|| InstanceId::new("unknown").expect("a valid id"));
                return Err(LeaseError::Taken(by));
            }
            _ => {}
        }
        let renewal = self.renewal_mark(node);
        let facts = facts_of(&name, &write.content, renewal.clone());
        let deadline = self.setup.renew_deadline();
        if self.nodes[node].last_applied.is_none_or(|at| at + deadline <= self.now) {
            self.nodes[node].back_at = self.now;
        }
        self.nodes[node].last_applied = Some(self.now);
        self.store_lease(node, facts, write.content.node_uid.clone());
        Ok(Renewed { renewal })
    }

    /// The holder's wall clock in microseconds, which may be wrong and may jump; a
    /// writer only sees to it that two marks in a row differ.
    pub fn renewal_mark(&mut self, node: usize) -> String {
        let wall = (self.now / 1000) as i64 + self.nodes[node].wall;
        let mut mark = format!("{wall:016}");
        if mark == self.nodes[node].last_renewal {
            mark = format!("{:016}", wall + 1);
        }
        self.nodes[node].last_renewal.clone_from(&mark);
        mark
    }

    pub fn store_lease(&mut self, node: usize, facts: LeaseFacts, node_uid: String) {
        let name = facts.node.clone();
        let old = self.api.leases.get(&name);
        let changed = old.is_none_or(|l| {
            l.facts.subnets != facts.subnets
                || l.facts.draining != facts.draining
                || l.facts.duration_seconds != facts.duration_seconds
        });
        let object = LeaseObject { facts: facts.clone(), applied: self.now, node_uid };
        self.api.leases.insert(name, object);
        self.log(|_| {
            format!(
                "api: Lease {} announced {:?} subnets {:?} draining {:?}",
                facts.node, facts.announced, facts.subnets, facts.draining
            )
        });
        self.publish(Source::Leases, &Input::Leases(Update::Set(facts)));
        self.plan_run_out(node);
        if changed || !self.truth.live[node] {
            self.refresh_truth();
        }
    }

    pub fn remove_lease(&mut self, node: usize) {
        let name = self.nodes[node].name.clone();
        if self.api.leases.remove(&name).is_some() {
            self.log(|_| format!("api: Lease {name} deleted"));
            self.publish(Source::Leases, &Input::Leases(Update::Gone(name)));
            self.refresh_truth();
        }
    }

    pub fn send_delete(&mut self, node: usize) {
        let delay = self.latency();
        let life = self.nodes[node].life;
        self.queue.push(self.now + delay, Ev::DeleteArrives { node, life });
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
        let ev = Ev::SlotArrives { node, life, service, vip, interface };
        self.queue.push(self.now + delay, ev);
    }

    pub fn slot_arrives(&mut self, node: usize, life: u32, service: ObjectKey, vip: Vip, interface: IfName) {
        if !self.reachable(node) || self.rng.permille(self.api.errors) {
            // The writer tries again as long as its process lives.
            if self.nodes[node].life == life && self.nodes[node].runs() {
                let ev = Ev::SlotArrives { node, life, service, vip, interface };
                let after = self.rng.range(500 * MS, 1500 * MS);
                self.queue.push(self.now + after, ev);
            }
            return;
        }
        let slot = Slot { node: self.nodes[node].name.clone(), interface };
        let Some(object) = self.api.services.get_mut(&service) else {
            return;
        };
        if object.vips.contains(&vip) && object.slots.get(&vip) != Some(&slot) {
            object.slots.insert(vip, slot);
            let input = Input::Services(Update::Set(object.clone()));
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
        let ev = Ev::ListArrives { node, life, source, generation: watch.generation };
        let at = self.now + after + self.latency();
        self.queue.push(at, ev);
    }

    pub fn list_arrives(&mut self, node: usize, life: u32, source: Source, generation: u32) {
        if self.nodes[node].life != life {
            return;
        }
        let reachable = self.reachable(node) && !self.rng.permille(self.api.errors);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let watch = process.watch(source);
        if watch.generation != generation {
            return;
        }
        if !reachable {
            let after = self.rng.range(200 * MS, 1000 * MS);
            let ev = Ev::ListArrives { node, life, source, generation };
            self.queue.push(self.now + after, ev);
            return;
        }
        watch.connected = true;
        let input = self.listing(source);
        let delay = self.latency();
        self.deliver(node, Channel::Watch(source), delay, input);
    }

    fn listing(&self, source: Source) -> Input {
        fn all<K, V: Clone, N>(of: &BTreeMap<K, V>) -> Update<V, N> {
            Update::All(of.values().cloned().collect())
        }
        match source {
            Source::Services => Input::Services(all(&self.api.services)),
            Source::ServiceGroups => Input::Groups(all(&self.api.groups)),
            Source::NodeAgents => Input::Agents(all(&self.api.agents)),
            Source::EndpointSlices => Input::Endpoints(all(&self.api.endpoints)),
            Source::Nodes => Input::Nodes(all(&self.api.nodes)),
            Source::Leases => {
                Input::Leases(Update::All(self.api.leases.values().map(|l| l.facts.clone()).collect()))
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
        if !self.reachable(node) {
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
