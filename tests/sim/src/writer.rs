//! The lease writer of each process, with the daemon's own rounds, and what the API
//! server does with its requests.

use purelb_core::facts::LeaseFacts;
use purelb_core::lease_write::{LeaseAttempt, LeaseReply, LeaseRequest, LeaseWriteResult};
use purelb_core::messages::{Input, LeaseContent, LeaseWrite};
use purelb_core::{Mono, NodeName};

use crate::mutate::Mutation;
use crate::queue::{Channel, SimEvent, T};
use crate::world::World;

/// A write on its way.
#[derive(Clone, Debug)]
pub struct Writing {
    write: LeaseWrite,
    attempt: LeaseAttempt,
    /// Given up then.
    by: T,
    /// Before the last try was sent.
    sent_at: Mono,
    request: Option<LeaseRequest>,
}

fn facts_of(node: &NodeName, content: &LeaseContent, renewal: String) -> LeaseFacts {
    LeaseFacts {
        node: node.clone(),
        instance: Some(content.instance.clone()),
        duration_seconds: content.duration.as_secs() as i64,
        renewal,
        subnets: content.subnets.clone(),
        draining: content.draining.clone(),
        announced: Some((*content.announced).clone()),
        declined: Some(content.declined.clone()),
        rank: Some(content.rank),
        macs: Some(content.macs.clone()),
        control_endpoint: None,
    }
}

fn refused(code: u16, error: &str) -> LeaseReply {
    LeaseReply::Failed { code, timeout: false, error: error.to_owned() }
}

fn silence() -> LeaseReply {
    LeaseReply::Failed { code: 0, timeout: true, error: "no answer in time".to_owned() }
}

impl World {
    /// An order for the writer. It takes up the newest once it is done with the last.
    pub fn send_lease(&mut self, node: usize, write: LeaseWrite) {
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if process.writing.is_some() {
            process.next_write = Some(write);
        } else {
            self.begin_write(node, write);
        }
    }

    fn begin_write(&mut self, node: usize, write: LeaseWrite) {
        let (now, sent_at) = (self.now, self.mono(node));
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let attempt = LeaseAttempt::new(write.mode, process.instance.clone(), 1, &mut process.memory);
        let by = now + write.timeout.as_nanos() as T;
        process.writing = Some(Writing { write, attempt, by, sent_at, request: None });
        self.lease_round(node);
    }

    fn lease_round(&mut self, node: usize) {
        let (now, mono, life) = (self.now, self.mono(node), self.nodes[node].life);
        let delay = self.latency();
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let Some(writing) = &mut process.writing else {
            return;
        };
        let request = if now < writing.by { writing.attempt.request(&process.memory) } else { None };
        let Some(request) = request else {
            let end = Err(writing.attempt.clone().given_up());
            self.lease_written(node, end);
            return;
        };
        writing.request = Some(request.clone());
        if request != LeaseRequest::Look {
            writing.sent_at = mono;
        }
        if now + delay >= writing.by {
            // The client closes the request before it is served.
            let at = writing.by;
            self.queue.push(at, SimEvent::LeaseReply { node, life, reply: Box::new(silence()) });
            return;
        }
        let write = Box::new(writing.write.clone());
        self.queue.push(now + delay, SimEvent::LeaseArrives { node, life, by: writing.by, request, write });
    }

    /// A request reaches the server, or does not.
    pub fn lease_arrives(&mut self, node: usize, life: u32, by: T, request: LeaseRequest, write: LeaseWrite) {
        let mut at = self.now + self.latency();
        let mut reply = silence();
        if !self.reachable(node) {
            if self.rng.percent(50) {
                reply = refused(0, "connection refused");
            } else {
                at = by;
            }
        } else if self.rng.permille(self.api.errors) {
            match self.rng.below(4) {
                0 => at = by,
                1 => {
                    // Done, and the answer is lost: the worst kind.
                    self.serve(node, life, &request, &write);
                    at = by;
                }
                2 => reply = refused(409, "the object has been modified"),
                _ => reply = refused(503, "Service Unavailable"),
            }
        } else {
            reply = self.serve(node, life, &request, &write);
        }
        if at >= by {
            at = by;
            reply = silence();
        }
        self.queue.push(at, SimEvent::LeaseReply { node, life, reply: Box::new(reply) });
    }

    fn serve(&mut self, node: usize, life: u32, request: &LeaseRequest, write: &LeaseWrite) -> LeaseReply {
        let name = self.nodes[node].name.clone();
        let standing = self.api.leases.get(&name);
        match (request, standing) {
            (LeaseRequest::Look, None) => LeaseReply::Absent,
            (LeaseRequest::Look, Some(l)) => LeaseReply::Lease {
                instance: l.facts.instance.clone(),
                version: Some(l.version.to_string()),
                renewal: l.facts.renewal.clone(),
            },
            (LeaseRequest::Create, Some(_)) => refused(409, "already exists"),
            (LeaseRequest::Patch { .. }, None) => refused(404, "not found"),
            (LeaseRequest::Patch { version }, Some(l)) if *version != l.version.to_string() => {
                refused(409, "the object has been modified")
            }
            (LeaseRequest::Create | LeaseRequest::Patch { .. }, _) => self.apply_lease(node, life, write),
        }
    }

    fn apply_lease(&mut self, node: usize, life: u32, write: &LeaseWrite) -> LeaseReply {
        let name = self.nodes[node].name.clone();
        let renewal = self.renewal_mark(node);
        let mut facts = facts_of(&name, &write.content, renewal.clone());
        if self.mutated(Mutation::DeclinesHidden) {
            facts.declined = Some(Default::default());
        }
        // What the process sent just before it died counts for the others all the same.
        let deadline = self.renew_deadline(node);
        if self.nodes[node].last_applied.is_none_or(|at| at + deadline <= self.now) {
            self.nodes[node].back_at = self.now;
        }
        self.nodes[node].last_applied = Some(self.now);
        self.nodes[node].last_duration = write.content.duration.as_nanos() as T;
        self.trace.mix([3, u64::from(life), node as u64]);
        self.store_lease(node, facts, write.content.node_uid.clone());
        let version = self.api.leases.get(&name).map(|l| l.version.to_string());
        LeaseReply::Lease { instance: Some(write.content.instance.clone()), version, renewal }
    }

    /// The mark of a renewal: the writer's wall clock in microseconds, as its own rule
    /// makes it differ from the last ones.
    pub fn renewal_mark(&mut self, node: usize) -> String {
        let wall = self.wall(node);
        let mark = match &mut self.nodes[node].process {
            Some(process) => process.memory.mark(wall),
            None => wall,
        };
        format!("{mark:016}")
    }

    pub fn lease_reply(&mut self, node: usize, life: u32, reply: LeaseReply) {
        if self.nodes[node].life != life {
            return;
        }
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if process.paused {
            process.held_reply = Some(reply);
            return;
        }
        let Some(writing) = &mut process.writing else {
            return;
        };
        let Some(request) = writing.request.take() else {
            return;
        };
        match writing.attempt.replied(&mut process.memory, &request, reply) {
            Some(end) => self.lease_written(node, end),
            None => self.lease_round(node),
        }
    }

    fn lease_written(&mut self, node: usize, result: LeaseWriteResult) {
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let Some(writing) = process.writing.take() else {
            return;
        };
        let next = process.next_write.take();
        let answer = Input::LeaseWritten { seq: writing.write.seq, sent_at: writing.sent_at, result };
        self.deliver(node, Channel::Answers, 1, answer);
        if let Some(write) = next {
            self.begin_write(node, write);
        }
    }
}
