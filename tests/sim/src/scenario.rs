//! How a run goes: a cluster is built, then cycles of trouble, healing, settling and
//! quiet follow each other.

use std::collections::BTreeMap;

use purelb_core::facts::{GroupFacts, PoolType, RangeFacts};
use purelb_core::messages::Command;

use crate::actions::ActionKind;
use crate::kernel::{ETH0, ETH1, Kernel};
use crate::node::Node;
use crate::queue::{MS, SEC, SimEvent, T};
use crate::setup::{Layout, v4_subnet, v6_subnet};
use crate::truth::node_name;
use crate::wire::Station;
use crate::world::{Phase, World};

impl World {
    pub fn populate(&mut self) {
        for node in 0..self.setup.nodes {
            let boot = self.rng.range(10_000 * SEC, 1_000_000 * SEC);
            // Members of the older format compare wall clocks: theirs must be right.
            let wrong = if self.setup.legacy > 0 { 500_000 } else { 300_000_000 };
            let wall = self.rng.below(2 * wrong) as i64 - wrong as i64;
            let ports = match (self.setup.segments, self.setup.layout) {
                (1, _) => vec![(ETH0, 0)],
                (_, Layout::Split) => vec![(ETH0, node % 2)],
                (_, Layout::Both) => vec![(ETH0, 0), (ETH1, 1)],
            };
            let rack = if node % 2 == 0 { "even" } else { "odd" };
            self.nodes.push(Node {
                name: node_name(node),
                uid: String::new(),
                labels: BTreeMap::from([("rack".to_owned(), rack.to_owned())]),
                boot,
                wall,
                ports,
                kernel: Kernel::default(),
                joined: false,
                powered: true,
                life: 0,
                process: None,
                drain: None,
                cut: false,
                deaf: false,
                deaf_until: 0,
                timers: self.setup.timers,
                next_timers: None,
                frozen: None,
                thawed: None,
                fence_from: None,
                slow_start: false,
                busy_until: 0,
                refuses: None,
                overrun: false,
                mute: false,
                last_applied: None,
                back_at: 0,
                last_duration: 0,
                run_out_planned: None,
                last_trouble: 0,
                disturbed_until: 0,
                trouble_since: 0,
                blind_until: 0,
                keeps_until: 0,
                legacy: node < self.setup.legacy,
                flap: None,
                put_issued: 0,
                offered_at: 0,
                port_changed: 0,
                echo_filtered: self.wire_rng.percent(20),
                no_sockets: self.wire_rng.percent(4),
                drops: false,
            });
            self.nodes[node].kernel = self.fresh_kernel(node);
        }
        self.populate_groups();
        self.repair_agents();
        for _ in 0..self.setup.addresses.len() {
            self.create_service();
        }
        for node in 0..self.setup.nodes - self.setup.spares {
            self.join(node);
        }
    }

    fn populate_groups(&mut self) {
        let mut ranges = Vec::new();
        for segment in 0..self.setup.segments {
            for subnet in [v4_subnet(segment, false), v4_subnet(segment, true), v6_subnet(segment)] {
                ranges.push(RangeFacts::whole(subnet, None));
            }
        }
        let nobodys = "10.99.0.0/24".parse().expect("a prefix");
        ranges.push(RangeFacts::whole(nobodys, None));
        let remote = RangeFacts::whole("172.16.0.0/24".parse().expect("a prefix"), Some(32));
        for (name, pool, ranges) in
            [("local", PoolType::Local, ranges), ("remote", PoolType::Remote, vec![remote])]
        {
            let group = GroupFacts::of_ranges(name, pool, ranges);
            self.api.groups.insert(name.into(), group);
        }
    }

    pub fn join(&mut self, node: usize) {
        if self.nodes[node].joined {
            return;
        }
        self.nodes[node].joined = true;
        self.create_node(node);
        if self.nodes[node].legacy {
            self.queue.push(self.now, SimEvent::LegacyTick { node });
        } else {
            let after = self.rng.below(SEC);
            self.plan(after, ActionKind::Start(node));
        }
    }

    /// A client on a segment asks who has an address; any holder may answer first.
    pub fn client_asks(&mut self) {
        let v = self.rng.below(self.truth.vips.len() as u64) as usize;
        let truth = &self.truth.vips[v];
        let (Some(segment), vip) = (truth.segment, truth.vip) else {
            return;
        };
        let answers: Vec<usize> = (0..self.nodes.len())
            .filter(|n| truth.holds[*n].is_some_and(|h| h.usable && h.reachable))
            .collect();
        let client = self.rng.below(self.caches[segment].len() as u64) as usize;
        let here = Station::Client(client);
        let wire = &self.segments[segment];
        let answers: Vec<usize> =
            answers.into_iter().filter(|n| wire.carries(Station::Node(*n), here)).collect();
        if let Some(node) = self.rng.pick(&answers).copied() {
            self.caches[segment][client].insert(vip, node);
        }
    }

    pub fn begin_cycle(&mut self, cycle: u64) {
        self.epoch += 1;
        let until = self.now + self.setup.active;
        self.phase = Phase::Active { cycle, until };
        if cycle == 0 {
            // The first actions see a cluster that has come up.
            for node in 0..self.nodes.len() {
                if self.nodes[node].joined && !self.nodes[node].legacy {
                    let after = self.rng.below(SEC);
                    self.plan(after, ActionKind::Start(node));
                }
            }
        }
        if cycle == 1 && self.setup.later.is_some() {
            // New timers, node by node, in the middle of whatever else happens.
            let mut at = self.rng.below(20 * SEC);
            for node in 0..self.nodes.len() {
                self.plan(at, ActionKind::Retime(node));
                at += self.rng.range(2 * SEC, 15 * SEC);
            }
        }
        let after = if cycle == 0 { self.setup.duration() + 5 * SEC } else { SEC };
        self.plan(after, ActionKind::Choose);
        self.queue.push(until, SimEvent::NextPhase);
    }

    /// Within this long after the last fault every eligible address has its owner,
    /// and nobody else has it.
    pub fn settling_time(&self) -> T {
        self.setup.duration() * 2 + 45 * SEC
    }

    pub fn next_phase(&mut self) {
        match self.phase {
            Phase::Active { cycle, .. } => {
                self.heal();
                self.phase = Phase::Settling { cycle };
                self.queue.push(self.now + self.settling_time(), SimEvent::NextPhase);
            }
            Phase::Settling { cycle } => {
                self.check_settled();
                self.phase = Phase::Quiet { cycle };
                self.queue.push(self.now + self.setup.quiet, SimEvent::NextPhase);
            }
            Phase::Quiet { cycle } => {
                self.check_settled();
                self.stats.settled += 1;
                if cycle + 1 < self.setup.cycles {
                    self.begin_cycle(cycle + 1);
                } else {
                    self.phase = Phase::Over;
                }
            }
            Phase::Over => {}
        }
    }

    /// All trouble ends. A machine that lost its power may stay dark, and a drain
    /// may stay on: those are states, not faults.
    fn heal(&mut self) {
        self.epoch += 1;
        self.log(|_| "HEAL".into());
        self.api.outage = false;
        self.api.slow = 0;
        self.api.errors = 0;
        for node in 0..self.nodes.len() {
            self.nodes[node].cut = false;
            self.nodes[node].deaf = false;
            self.reconnect(node);
        }
        self.heal_segments();
        self.repair_agents();
        let now = self.now;
        for node in 0..self.nodes.len() {
            if !self.nodes[node].joined {
                continue;
            }
            self.heal_node(node);
            self.nodes[node].disturbed_until = 0;
            self.disturb(node, now + 3 * SEC);
        }
        self.disturbed_until = 0;
    }

    fn heal_node(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        n.refuses = None;
        n.busy_until = 0;
        n.deaf_until = n.deaf_until.min(self.now);
        n.slow_start = false;
        n.mute = false;
        n.drops = false;
        n.flap = None;
        self.thaw(node);
        let n = &mut self.nodes[node];
        let overrun = std::mem::take(&mut n.overrun);
        n.blind_until = self.now + 500 * MS;
        if !n.powered {
            let dark = self.rng.percent(25);
            if !dark {
                self.power_on(node);
            }
            // Who vouched for it has to take that back before it returns.
            self.set_vouched(node, dark);
        } else {
            self.set_vouched(node, false);
        }
        self.create_node(node);
        self.change_node(node, |facts| (facts.excluded, facts.impaired) = (false, None));
        let powered = self.nodes[node].powered;
        if powered {
            for (index, _) in self.nodes[node].ports.clone() {
                self.set_link(node, index, true, true);
            }
            self.strangers_leave(node);
        }
        if overrun {
            self.plan_dump(node, MS);
        }
        if let Some(process) = &mut self.nodes[node].process {
            process.stall_next = None;
        }
        self.resume(node);
        // An instance whose Lease another one took is restarted by its operator.
        let name = self.nodes[node].name.clone();
        let instance = self.nodes[node].process.as_ref().map(|p| p.instance.clone());
        let stolen =
            instance.is_some() && self.api.leases.get(&name).is_some_and(|l| l.facts.instance != instance);
        if stolen {
            self.kill(node);
        }
        for after in [3 * SEC, 20 * SEC] {
            self.plan(after, ActionKind::Mended(node));
        }
        // One that is about to stop is started again once it has.
        self.plan(self.setup.duration(), ActionKind::Start(node));
        self.plan(SEC, ActionKind::Start(node));
        if self.nodes[node].drain.is_some() && self.rng.percent(50) {
            self.nodes[node].drain = None;
            self.command(node, Command::Undrain);
        }
    }

    fn strangers_leave(&mut self, node: usize) {
        let own = self.fresh_kernel(node);
        let strange: Vec<_> = self.nodes[node]
            .kernel
            .addrs
            .iter()
            .filter(|a| !a.facts.ours && own.find(a.facts.index, a.facts.net).is_none())
            .map(|a| (a.facts.index, a.facts.net))
            .filter(|(_, net)| self.truth.index.contains_key(&purelb_core::Vip::new(net.addr())))
            .collect();
        for (index, net) in strange {
            self.remove_by_hand(node, index, net);
        }
    }
}
