//! Carrying actions out, and healing everything again.

use std::net::IpAddr;

use ipnet::IpNet;
use purelb_core::facts::{NodeFacts, NodeImpairment};
use purelb_core::messages::{Command, FactsUpdate, Input, ShutdownMode, Source};
use purelb_core::{IfIndex, InstanceId};

use crate::actions::ActionKind;
use crate::kernel::DUMMY;
use crate::node::{Flap, WATCHED};
use crate::queue::{MS, SEC, T};
use crate::setup::{own_address, v4_subnet, v6_subnet};
use crate::world::World;

impl World {
    pub fn perform(&mut self, what: ActionKind) {
        self.log(|_| format!("ACTION {what:?}"));
        let now = self.now;
        match what {
            ActionKind::Choose => {}
            ActionKind::Crash(node) => {
                let after = self.rng.range(SEC, 40 * SEC);
                self.disturb(node, now + after + SEC);
                self.kill(node);
                if self.rng.percent(80) {
                    self.plan(after, ActionKind::Start(node));
                }
            }
            ActionKind::Start(node) => self.start(node),
            ActionKind::Stop(node, how) => self.stop(node, how),
            ActionKind::Drain(node) => {
                let since = format!("drained-at-{now}");
                self.nodes[node].drain = Some(since.clone());
                self.command(node, Command::Drain { since, force: false });
            }
            ActionKind::Undrain(node) => {
                self.nodes[node].drain = None;
                self.command(node, Command::Undrain);
            }
            ActionKind::PowerOff(node) => {
                let after = self.rng.range(3 * SEC, 60 * SEC);
                if self.nodes[node].runs() {
                    self.disturb(node, now + after + SEC);
                }
                self.power_off(node);
                if self.rng.percent(85) {
                    self.plan(after, ActionKind::PowerOn(node));
                }
            }
            ActionKind::PowerOn(node) => self.power_on(node),
            ActionKind::Pause(node, wait) => {
                self.disturb(node, now + wait);
                self.blind(node, now + wait + 500 * MS);
                self.pause(node);
                self.plan(wait, ActionKind::Resume(node));
            }
            ActionKind::Resume(node) => self.resume(node),
            ActionKind::StallStep(node, wait) => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.stall_next = Some(wait);
                }
            }
            ActionKind::Freeze(node, wait, clock_runs) => {
                self.disturb(node, now + wait);
                self.blind(node, now + wait + 500 * MS);
                self.freeze(node, clock_runs);
                self.plan(wait, ActionKind::Thaw(node));
            }
            ActionKind::Thaw(node) => self.thaw(node),
            ActionKind::Busy(node, wait) => {
                self.disturb(node, now + wait);
                self.nodes[node].busy_until = now + wait;
            }
            ActionKind::Retime(node) => self.retime(node),
            ActionKind::LeaseDeleted(_)
            | ActionKind::LeaseEdited(_)
            | ActionKind::LeaseTaken(_)
            | ActionKind::NodeDeleted(_)
            | ActionKind::NodeCreated(_)
            | ActionKind::CollectLease(..)
            | ActionKind::Label(_)
            | ActionKind::Unwell(..)
            | ActionKind::Well(_)
            | ActionKind::Vouch(_) => self.perform_object(what),
            ActionKind::Cut(..)
            | ActionKind::Uncut(_)
            | ActionKind::Deaf(..)
            | ActionKind::Hears(_)
            | ActionKind::Stall(..)
            | ActionKind::Unstall(..)
            | ActionKind::Break(..)
            | ActionKind::Outage(_)
            | ActionKind::OutageEnd
            | ActionKind::Slow(..)
            | ActionKind::SlowEnd
            | ActionKind::Errors(..)
            | ActionKind::ErrorsEnd => self.perform_api(what),
            ActionKind::ClockJump(node) => {
                let hour = 3_600_000_000;
                self.nodes[node].wall = self.rng.below(2 * hour) as i64 - hour as i64;
            }
            ActionKind::Resync(node) => {
                self.command(node, Command::Resync);
            }
            ActionKind::Mended(node) => {
                let lease = self.api.leases.get(&self.nodes[node].name);
                if lease.is_some_and(|l| l.facts.declined.as_ref().is_some_and(|d| !d.is_empty())) {
                    self.command(node, Command::Resync);
                }
            }
            ActionKind::Ask => self.client_asks(),
            ActionKind::Join(node) => self.join(node),
            ActionKind::Service => self.change_service(),
            ActionKind::Endpoints => self.change_endpoints(),
            ActionKind::EndpointsOf(service) => self.set_endpoints(&service, 0),
            ActionKind::CollectSlices(service) => self.collect_slices(&service),
            ActionKind::Agent => self.change_agent(),
            ActionKind::AgentRepaired => self.repair_agents(),
            ActionKind::Wire(fault) => self.wire_fault(fault),
            _ => self.perform_network(what),
        }
    }

    fn stop(&mut self, node: usize, how: ShutdownMode) {
        let after = match how {
            // A package upgrade or a restart by systemd: the next process is there
            // before the addresses run out.
            ShutdownMode::Leave => self.rng.range(100 * MS, 900 * MS),
            _ => self.rng.range(10 * SEC, 40 * SEC),
        };
        if how == ShutdownMode::Leave {
            self.expect_kept(node);
        }
        self.shut_down(node, how);
        self.plan(after, ActionKind::Start(node));
    }

    /// Killed and started again by systemd at once.
    pub fn crash_quick(&mut self, node: usize) {
        self.expect_kept(node);
        self.kill(node);
        let after = self.rng.range(100 * MS, 900 * MS);
        self.plan(after, ActionKind::Start(node));
    }

    /// A restart in time moves nothing, unless something else is wrong or the
    /// timers leave a restart no time.
    fn expect_kept(&mut self, node: usize) {
        let timers = self.nodes[node].timers;
        let room = timers.renew_deadline.saturating_sub(timers.renew_every()).as_nanos() as T;
        if room < 3 * SEC {
            self.disturb(node, self.now + 2 * SEC);
        } else if !self.disturbed(node) {
            self.nodes[node].keeps_until = self.now + 5 * SEC;
        }
    }

    fn perform_api(&mut self, what: ActionKind) {
        let now = self.now;
        match what {
            ActionKind::Cut(node, wait) => {
                self.disturb(node, now + wait);
                self.nodes[node].cut = true;
                self.plan(wait, ActionKind::Uncut(node));
            }
            ActionKind::Uncut(node) => {
                self.nodes[node].cut = false;
                self.reconnect(node);
            }
            ActionKind::Deaf(node, wait) => {
                self.disturb(node, now + wait);
                self.nodes[node].deaf = true;
                // Some of its watches are told so, the others just fall silent.
                for source in WATCHED {
                    if self.rng.percent(30) {
                        self.relist(node, source, 0);
                    }
                }
                self.plan(wait, ActionKind::Hears(node));
            }
            ActionKind::Hears(node) => {
                self.nodes[node].deaf = false;
                self.reconnect(node);
            }
            ActionKind::Stall(node, source, wait) => {
                self.disturb(node, now + wait);
                if source != Source::Leases {
                    self.nodes[node].deaf_until = self.nodes[node].deaf_until.max(now + wait);
                }
                if let Some(process) = &mut self.nodes[node].process {
                    process.watch(source).stalled = true;
                }
                self.plan(wait, ActionKind::Unstall(node, source));
            }
            ActionKind::Unstall(node, source) => self.resume_watch(node, source),
            ActionKind::Break(node, source) => {
                let after = self.rng.below(2 * SEC);
                if after > 500 * MS {
                    self.disturb(node, now + after);
                }
                self.relist(node, source, after);
            }
            ActionKind::Outage(wait) => {
                self.disturb_all(now + wait);
                self.api.outage = true;
                self.plan(wait, ActionKind::OutageEnd);
            }
            ActionKind::OutageEnd => {
                self.api.outage = false;
                for node in 0..self.nodes.len() {
                    self.reconnect(node);
                }
            }
            ActionKind::Slow(by, wait) => {
                self.disturb_all(now + wait + by);
                self.api.slow = by;
                self.plan(wait, ActionKind::SlowEnd);
            }
            ActionKind::SlowEnd => self.api.slow = 0,
            ActionKind::Errors(rate, wait) => {
                self.disturb_all(now + wait);
                self.api.errors = rate;
                self.plan(wait, ActionKind::ErrorsEnd);
            }
            ActionKind::ErrorsEnd => self.api.errors = 0,
            other => unreachable!("{other:?} does nothing to the API server"),
        }
    }

    fn perform_object(&mut self, what: ActionKind) {
        let now = self.now;
        if self.api.outage {
            return;
        }
        match what {
            ActionKind::LeaseDeleted(node) => {
                self.disturb(node, now + SEC);
                self.remove_lease(node);
            }
            ActionKind::LeaseEdited(node) => self.lease_edited(node),
            ActionKind::LeaseTaken(node) => {
                self.disturb(node, now + SEC);
                let name = self.nodes[node].name.clone();
                let mark = self.renewal_mark(node);
                if let Some(lease) = self.api.leases.get(&name).cloned() {
                    let mut facts = lease.facts;
                    facts.renewal = mark;
                    facts.instance = InstanceId::new(&format!("stranger-{now}")).ok();
                    self.store_lease(node, facts, lease.node_uid);
                }
            }
            ActionKind::NodeDeleted(node) => {
                self.disturb(node, now + 30 * SEC);
                let name = self.nodes[node].name.clone();
                if self.api.nodes.remove(&name).is_some() {
                    self.publish(Source::Nodes, &Input::Nodes(FactsUpdate::Gone(name)));
                    self.objects_changed(None);
                    let uid = self.nodes[node].uid.clone();
                    self.plan_collection(node, uid);
                    let back = self.rng.range(3 * SEC, 25 * SEC);
                    self.plan(back, ActionKind::NodeCreated(node));
                }
            }
            ActionKind::NodeCreated(node) => self.create_node(node),
            ActionKind::CollectLease(node, uid) => {
                let name = self.nodes[node].name.clone();
                if self.api.leases.get(&name).is_some_and(|l| l.node_uid == uid) {
                    self.remove_lease(node);
                }
            }
            ActionKind::Label(node) => self.change_node(node, |facts| facts.excluded = !facts.excluded),
            ActionKind::Unwell(node, lasts) => {
                self.change_node(node, |facts| facts.impaired = Some(NodeImpairment::NotReady));
                self.plan(lasts, ActionKind::Well(node));
            }
            ActionKind::Well(node) => self.change_node(node, |facts| facts.impaired = None),
            ActionKind::Vouch(node) if !self.nodes[node].powered => {
                self.disturb(node, now + SEC);
                self.set_vouched(node, true);
            }
            ActionKind::Vouch(_) => {}
            other => unreachable!("{other:?} does nothing to the objects"),
        }
    }

    /// A Lease whose Node is gone is collected: at once, before its holder knows, or later.
    pub fn plan_collection(&mut self, node: usize, uid: String) {
        let at_most = if self.rng.percent(50) { 20 * MS } else { 2 * SEC };
        let collect = self.rng.range(MS, at_most);
        self.plan(collect, ActionKind::CollectLease(node, uid));
    }

    /// Somebody with the right to write Leases does so.
    fn lease_edited(&mut self, node: usize) {
        let until = self.now + self.duration(node) / 3 + SEC;
        match self.rng.below(6) {
            // What a wrong duration would do to a peer is for its next renewal to say.
            0..3 => {
                let seconds = *self.rng.pick(&[1, 2, 0, -5, 3600]).unwrap_or(&1);
                self.edit_lease(node, |facts| facts.duration_seconds = seconds);
            }
            3 => {
                self.disturb(node, until);
                self.edit_lease(node, |facts| facts.subnets.clear());
            }
            4 => {
                self.disturb(node, until);
                self.edit_lease(node, |facts| facts.draining = Some("by hand".into()));
            }
            _ => {
                self.disturb(node, until);
                self.edit_lease(node, |facts| facts.announced = Some(Default::default()));
            }
        }
    }

    /// A restart with other timers, as after a change of the configuration.
    fn retime(&mut self, node: usize) {
        let Some(later) = self.setup.later else {
            return;
        };
        if self.nodes[node].legacy {
            return;
        }
        let timers = self.nodes[node].timers;
        self.log(|w| format!("{}: timers {timers:?}, later {later:?}", w.nodes[node].name));
        self.nodes[node].next_timers = Some(later);
        if self.nodes[node].process.as_ref().is_some_and(|p| p.stopping.is_none() && !p.paused) {
            self.stop(node, ShutdownMode::Leave);
        }
    }

    /// Which listing takes long at this start, and how long.
    pub fn slow_listing(&mut self, node: usize) -> Option<(Source, T)> {
        if !std::mem::take(&mut self.nodes[node].slow_start) {
            return None;
        }
        let source = *self.rng.pick(&WATCHED)?;
        let long = self.rng.range(2 * SEC, 60 * SEC);
        self.disturb(node, self.now + long);
        Some((source, long))
    }

    pub fn create_node(&mut self, node: usize) {
        let name = self.nodes[node].name.clone();
        if self.api.nodes.contains_key(&name) {
            return;
        }
        self.serial += 1;
        self.nodes[node].uid = format!("uid-{}", self.serial);
        let facts = NodeFacts {
            name: name.clone(),
            uid: self.nodes[node].uid.clone(),
            labels: self.nodes[node].labels.clone(),
            out_of_service: false,
            excluded: false,
            impaired: None,
            addresses: Default::default(),
        };
        self.api.nodes.insert(name, facts.clone());
        self.publish(Source::Nodes, &Input::Nodes(FactsUpdate::Set(facts)));
        self.objects_changed(None);
    }

    pub fn set_vouched(&mut self, node: usize, out: bool) {
        self.change_node(node, |facts| facts.out_of_service = out);
    }

    pub fn change_node(&mut self, node: usize, change: impl FnOnce(&mut NodeFacts)) {
        let name = self.nodes[node].name.clone();
        let Some(facts) = self.api.nodes.get_mut(&name) else { return };
        let before = facts.clone();
        change(facts);
        if *facts != before {
            let facts = facts.clone();
            self.log(|_| format!("api: {facts:?}"));
            self.publish(Source::Nodes, &Input::Nodes(FactsUpdate::Set(facts)));
            self.objects_changed(None);
        }
    }

    pub fn toggle_own(&mut self, node: usize, index: IfIndex, segment: usize) -> ActionKind {
        let subnet = match self.rng.below(3) {
            0 => v4_subnet(segment, true),
            1 => v4_subnet(segment, false),
            _ => v6_subnet(segment),
        };
        let net = own_address(subnet, node);
        if self.nodes[node].kernel.find(index, net).is_some() {
            ActionKind::OwnAddressGone(node, index, net)
        } else {
            ActionKind::OwnAddress(node, index, net)
        }
    }

    /// Somebody's own address appears: any, or the very address of a service.
    pub fn stranger(&mut self) -> Option<ActionKind> {
        let nodes: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes[*n].powered && self.nodes[*n].joined).collect();
        let node = *self.rng.pick(&nodes)?;
        let ports = self.nodes[node].ports.clone();
        let (index, segment) = *self.rng.pick(&ports)?;
        let v = self.rng.below(self.truth.vips.len() as u64) as usize;
        let truth = &self.truth.vips[v];
        let ip = if self.rng.percent(40) && truth.segment == Some(segment) {
            truth.vip.ip()
        } else {
            own_address(v4_subnet(segment, false), 240).addr()
        };
        let bits = if matches!(ip, IpAddr::V4(_)) { 24 } else { 64 };
        let wait = self.rng.range(SEC, 30 * SEC);
        Some(ActionKind::Stranger(node, index, IpNet::new(ip, bits).ok()?, wait))
    }

    fn perform_network(&mut self, what: ActionKind) {
        let now = self.now;
        match what {
            ActionKind::Carrier(node, index, wait) => {
                self.disturb(node, now + wait + 3 * SEC);
                self.set_link(node, index, true, false);
                self.plan(wait, ActionKind::LinkBack(node, index));
            }
            ActionKind::LinkDown(node, index, wait) => {
                self.disturb(node, now + wait + 3 * SEC);
                self.set_link(node, index, false, false);
                self.plan(wait, ActionKind::LinkBack(node, index));
            }
            ActionKind::LinkLost(node, index, up) => self.set_link(node, index, up, false),
            ActionKind::LinkBack(node, index) => self.set_link(node, index, true, true),
            ActionKind::Flap(node, index, times) => self.flap(node, index, times),
            ActionKind::FlapEnd(node) => self.nodes[node].flap = None,
            ActionKind::OwnAddress(node, index, net) => self.add_own(node, index, net),
            ActionKind::OwnAddressGone(node, index, net) => {
                self.disturb(node, now + 3 * SEC);
                self.remove_by_hand(node, index, net);
            }
            ActionKind::Stranger(node, index, net, wait) => {
                self.disturb(node, now + wait);
                self.add_own(node, index, net);
                self.plan(wait, ActionKind::StrangerGone(node, index, net));
            }
            ActionKind::StrangerGone(node, index, net) => {
                let kernel = &self.nodes[node].kernel;
                if kernel.find(index, net).is_some_and(|a| !a.facts.ours) {
                    self.remove_by_hand(node, index, net);
                }
            }
            ActionKind::TakeByHand(node, v) => {
                let vip = self.truth.vips[v].vip;
                let found = self.nodes[node].kernel.marked(vip).next();
                if let Some((index, net)) = found.map(|a| (a.facts.index, a.facts.net))
                    && !self.nodes[node].legacy
                {
                    self.plan_put_back(node, v);
                    self.remove_by_hand(node, index, net);
                }
            }
            ActionKind::Overrun(node, wait) => {
                self.disturb(node, now + wait);
                self.nodes[node].overrun = true;
                self.blind(node, now + wait + 500 * MS);
                self.plan(wait, ActionKind::OverrunEnd(node));
            }
            ActionKind::OverrunEnd(node) => {
                self.nodes[node].overrun = false;
                self.plan_dump(node, MS);
            }
            ActionKind::Refuse(node, v, wait) => {
                self.disturb(node, now + wait);
                self.nodes[node].refuses = Some(v.map(|v| self.truth.vips[v].vip));
                self.plan(wait, ActionKind::RefuseEnd(node));
            }
            ActionKind::RefuseEnd(node) => self.nodes[node].refuses = None,
            ActionKind::Mute(node, wait) => {
                self.disturb(node, now + wait);
                self.nodes[node].mute = true;
                self.plan(wait, ActionKind::MuteEnd(node));
            }
            ActionKind::MuteEnd(node) => self.nodes[node].mute = false,
            ActionKind::DummyRemoved(node) => {
                self.disturb(node, now + SEC);
                let notify = self.nodes[node].kernel.remove_link(DUMMY);
                self.kernel_changed(node, notify);
            }
            other => unreachable!("{other:?} does nothing to the network"),
        }
    }

    /// Down and up again faster than the two seconds a gain has to last.
    fn flap(&mut self, node: usize, index: IfIndex, times: u32) {
        let hard = self.rng.percent(20);
        let mut at: T = 0;
        if self.nodes[node].flap.is_none() {
            self.nodes[node].flap = Some(Flap { index, from: self.now, life: self.nodes[node].life });
        }
        for _ in 0..times {
            self.plan(at, ActionKind::LinkLost(node, index, !hard));
            at += self.rng.range(20 * MS, 900 * MS);
            self.plan(at, ActionKind::LinkBack(node, index));
            at += self.rng.range(20 * MS, 1000 * MS);
        }
        self.plan(at, ActionKind::FlapEnd(node));
        self.disturb(node, self.now + at + 3 * SEC);
    }
}
