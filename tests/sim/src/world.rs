//! The whole simulated cluster, and the loop that lets one thing happen at a time.
//!
//! ```text
//!   actions ──▶ faults, churn ──▶ api ──watch──▶ daemon (engine) ──effects──▶ kernel
//!                                  ▲                 │   ▲                      │
//!                                  └── lease writes ─┘   └────── monitor ───────┘
//!                                                    └─ announcements ─▶ segment caches
//!   after every change: truth (what should be), check (what may never be)
//! ```

use std::collections::BTreeMap;

use purelb_core::messages::{Input, Source};
use purelb_core::{Mono, Vip};

use crate::api::Api;
use crate::ledger::Ledger;
use crate::node::Node;
use crate::queue::{Channel, MS, Queue, SEC, SimEvent, T};
use crate::rng::Rng;
use crate::setup::{MOST_NODES, Setup};
use crate::trace::Trace;
use crate::truth::Truth;
use crate::wire::{Segment, some_segments};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule's name, e.g. `R2`.
    pub rule: &'static str,
    pub words: String,
    pub at: T,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub events: u64,
    pub steps: u64,
    pub actions: u64,
    pub additions: u64,
    pub handoffs: u64,
    pub settled: u64,
    pub questions: u64,
    pub early: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Active { cycle: u64, until: T },
    Settling { cycle: u64 },
    Quiet { cycle: u64 },
    Over,
}

#[derive(Debug)]
pub struct World {
    pub setup: Setup,
    pub now: T,
    pub queue: Queue,
    pub rng: Rng,
    /// Of the wires alone: what happens there changes nothing elsewhere by itself.
    pub wire_rng: Rng,
    pub trace: Trace,
    pub api: Api,
    pub nodes: Vec<Node>,
    pub segments: Vec<Segment>,
    /// What each client on each segment believes: which node has the address.
    pub caches: Vec<Vec<BTreeMap<Vip, usize>>>,
    pub truth: Truth,
    pub phase: Phase,
    pub stats: Stats,
    pub ledger: Ledger,
    pub violation: Option<Violation>,
    pub disturbed_until: T,
    trouble_since: T,
    pub config_changed: T,
    /// Actions planned in an earlier cycle are void.
    pub epoch: u64,
    pub serial: u64,
}

impl World {
    pub fn new(setup: Setup, text: bool) -> Self {
        let mut wire_rng = Rng::new(setup.seed ^ 0x5e9_3e47);
        let segments = some_segments(&mut wire_rng, setup.segments);
        let mut world = Self {
            rng: Rng::new(setup.seed),
            wire_rng,
            segments,
            now: 0,
            queue: Queue::default(),
            trace: Trace::new(text),
            api: Api::default(),
            nodes: Vec::new(),
            caches: vec![vec![BTreeMap::new(); 2]; setup.segments],
            truth: Truth::new(&setup),
            phase: Phase::Over,
            stats: Stats::default(),
            ledger: Ledger::default(),
            violation: None,
            disturbed_until: 0,
            trouble_since: 0,
            config_changed: 0,
            epoch: 0,
            serial: 0,
            setup,
        };
        world.populate();
        world
    }

    /// Runs to the end or to the first violation.
    pub fn run(&mut self) {
        self.begin_cycle(0);
        self.queue.push(SEC, SimEvent::Sample);
        while self.violation.is_none() && self.phase != Phase::Over {
            let Some((at, ev)) = self.queue.pop() else {
                self.violate("sim", "nothing is planned any more".into());
                break;
            };
            assert!(at >= self.now, "time runs forward");
            self.now = at;
            self.stats.events += 1;
            self.dispatch(ev);
        }
    }

    fn dispatch(&mut self, ev: SimEvent) {
        match ev {
            SimEvent::Input { node, life, generation, channel, input } => {
                self.input_arrives(node, life, generation, channel, *input)
            }
            SimEvent::DeadlineQueue { node, life } => self.wake(node, life),
            SimEvent::Turn { node, life } => self.turn(node, life),
            SimEvent::FenceCheck { node } => self.fence_check(node),
            SimEvent::Sample => self.sample(),
            SimEvent::LeaseArrives { node, life, by, request, write } => {
                self.lease_arrives(node, life, by, request, *write)
            }
            SimEvent::LeaseReply { node, life, reply } => self.lease_reply(node, life, *reply),
            SimEvent::DeleteArrives { node, life } => self.delete_arrives(node, life),
            SimEvent::SlotArrives { node, life, service, vip, interface } => {
                self.slot_arrives(node, life, service, vip, interface)
            }
            SimEvent::ListArrives { node, life, source, generation } => {
                self.list_arrives(node, life, source, generation)
            }
            SimEvent::KernelOp { node, life, issued, id, op } => self.kernel_op(node, life, issued, id, *op),
            SimEvent::Dump { node, life } => self.dump(node, life),
            SimEvent::Expire { node, token } => self.expire(node, token),
            SimEvent::DadDone { node, token } => self.dad_done(node, token),
            SimEvent::LeaseRunsOut { node } => self.lease_runs_out(node),
            SimEvent::PairCheck { vip, a, b, since } => self.pair_check(vip, a, b, since),
            SimEvent::TakeoverCheck { vip, owner, since } => self.takeover_check(vip, owner, since),
            SimEvent::PutBackCheck { node, vip, removed } => self.put_back_check(node, vip, removed),
            SimEvent::LegacyTick { node } => self.legacy_tick(node),
            SimEvent::Question { node, life, question } => self.question_leaves(node, life, &question),
            SimEvent::Frame { node, index, address, mac, kind } => {
                self.frame_arrives(node, index, address, mac, kind)
            }
            SimEvent::Read { node, life } => self.read(node, life),
            SimEvent::Act(action) => self.act(*action),
            SimEvent::NextPhase => self.next_phase(),
        }
    }

    /// The node's own monotonic clock.
    pub fn mono(&self, node: usize) -> Mono {
        Mono::from_nanos(self.nodes[node].boot + self.now)
    }

    pub fn log(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.wanted() {
            let text = line(self);
            let (s, ms, us) = (self.now / SEC, self.now / MS % 1000, self.now / 1000 % 1000);
            self.trace.line(format!("{s:6}.{ms:03}{us:03} {text}"));
        }
    }

    pub fn violate(&mut self, rule: &'static str, words: String) {
        if self.violation.is_none() {
            self.log(|_| format!("VIOLATION of {rule}: {words}"));
            self.violation = Some(Violation { rule, words, at: self.now });
        }
    }

    /// How long after trouble a rule about undisturbed nodes does not apply.
    pub fn margin(&self) -> T {
        self.setup.duration() + 10 * SEC
    }

    /// Trouble on one node until then.
    pub fn disturb(&mut self, node: usize, until: T) {
        let until = until + self.margin();
        let now = self.now;
        let node = &mut self.nodes[node];
        node.last_trouble = now;
        if now >= node.disturbed_until {
            node.trouble_since = now;
        }
        node.disturbed_until = node.disturbed_until.max(until);
    }

    pub fn disturb_all(&mut self, until: T) {
        if self.now >= self.disturbed_until {
            self.trouble_since = self.now;
        }
        self.disturbed_until = self.disturbed_until.max(until + self.margin());
    }

    pub fn disturbed(&self, node: usize) -> bool {
        self.now < self.disturbed_until || self.now < self.nodes[node].disturbed_until
    }

    /// Since when this node may have missed things.
    pub fn trouble_since(&self, node: usize) -> T {
        let own = &self.nodes[node];
        let own_since = if self.now < own.disturbed_until { own.trouble_since } else { self.now };
        let all_since = if self.now < self.disturbed_until { self.trouble_since } else { self.now };
        own_since.min(all_since)
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len().min(MOST_NODES)
    }

    /// Plans an input on its channel, behind everything already on it.
    pub fn deliver(&mut self, node: usize, channel: Channel, delay: T, input: Input) {
        let now = self.now;
        let life = self.nodes[node].life;
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let (fifo, generation) = process.fifo(channel);
        let at = (now + delay).max(*fifo);
        *fifo = at;
        let ev = SimEvent::Input { node, life, generation, channel, input: Box::new(input) };
        self.queue.push(at, ev);
    }

    /// A change in the API: every watch of that kind hears of it in time.
    pub fn publish(&mut self, source: Source, input: &Input) {
        let held = self.api.outage;
        for node in 0..self.nodes.len() {
            let cut = self.nodes[node].cut || self.nodes[node].deaf;
            let Some(process) = &mut self.nodes[node].process else {
                continue;
            };
            let watch = process.watch(source);
            if !watch.connected {
                continue;
            }
            if watch.stalled || cut || held || !watch.backlog.is_empty() {
                watch.backlog.push(input.clone());
                continue;
            }
            let delay = self.watch_delay();
            self.deliver(node, Channel::Watch(source), delay, input.clone());
        }
    }
}
