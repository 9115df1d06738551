//! What happens in the nodes' kernels, and who hears of it.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use purelb_core::facts::AddrFacts;
use purelb_core::messages::{AddressSpec, Input, KernelChange, KernelRefusal, Lifetimes};
use purelb_core::segment::SightingKind;
use purelb_core::{IfIndex, Vip};

use crate::kernel::{ETH0, Kernel, Planned, link};
use crate::mutate::Mutation;
use crate::queue::{MS, SEC, SimEvent, T};
use crate::setup::{own_address, v4_subnet, v6_subnet};
use crate::wire::{Station, mac_of};
use crate::world::World;

/// Measured on real kernels: expiries of short lifetimes are never early and late by
/// no more than this; of long ones by up to an eighth of the lifetime more, since the
/// kernel's timers are the coarser the farther away they are.
const LATEST_EXPIRY: T = 1_270 * MS;

/// How old an engine's picture of its kernel may be when nothing is wrong.
pub(crate) const MONITOR_LAG: T = 400 * MS;

fn not_permitted() -> KernelRefusal {
    KernelRefusal::NotPermitted("Operation not permitted (os error 1)".into())
}

impl World {
    pub fn kernel_apply(&mut self, node: usize, issued: T, op: KernelChange) -> Result<(), KernelRefusal> {
        let refused = |refuses: &Option<Option<Vip>>, net: &IpNet| {
            refuses.as_ref().is_some_and(|only| only.is_none_or(|v| v == Vip::new(net.addr())))
        };
        match op {
            KernelChange::Remove { index, net } => {
                self.check_foreign(node, issued, index, net, "removes");
                if refused(&self.nodes[node].refuses, &net) {
                    return Err(not_permitted());
                }
                if self.mutated(Mutation::RemovalsIgnored) {
                    return Ok(());
                }
                let notify = self.nodes[node].kernel.remove(index, net).map_err(KernelRefusal::Passing)?;
                self.kernel_changed(node, vec![notify]);
                Ok(())
            }
            KernelChange::Put(spec) => {
                self.check_foreign(node, issued, spec.index, spec.net, "changes");
                if refused(&self.nodes[node].refuses, &spec.net) {
                    return Err(not_permitted());
                }
                // As the applier does: whole seconds, counted when it is sent.
                let waited = if self.mutated(Mutation::LateChangesSent) { self.now - issued } else { 0 };
                let counted = self.mono(node) - Duration::from_nanos(waited);
                let Some(Lifetimes { valid, preferred }) = spec.lifetimes(counted) else {
                    return Err(KernelRefusal::Passing("its time is over".into()));
                };
                let spec = AddressSpec { until: None, valid, preferred, ..spec };
                self.check_lifetime(node, &spec);
                self.nodes[node].put_issued = issued;
                self.put(node, &spec).map_err(KernelRefusal::Passing)
            }
            KernelChange::EnsureDummy { name } => {
                let notify = self.nodes[node].kernel.ensure_dummy(&name);
                self.kernel_changed(node, notify);
                Ok(())
            }
            KernelChange::RemoveDummy { name } => {
                let kernel = &mut self.nodes[node].kernel;
                let index = kernel.links.values().find(|l| l.facts.name == name);
                if let Some(index) = index.map(|l| l.facts.index) {
                    let notify = kernel.remove_link(index);
                    self.kernel_changed(node, notify);
                }
                Ok(())
            }
        }
    }

    pub fn put(&mut self, node: usize, spec: &AddressSpec) -> Result<(), String> {
        let now = self.now;
        let fresh = self.nodes[node].kernel.find(spec.index, spec.net).is_none();
        let Planned { expire, dad, notify } = self.nodes[node].kernel.put(now, spec)?;
        self.stats.additions += u64::from(fresh);
        if let Some((token, at)) = expire {
            self.plan_expiry(node, token, at);
        }
        if let Some(token) = dad {
            if let Some(segment) = self.nodes[node].segment_of(spec.index) {
                self.claim_sent(segment, Station::Node(node), Vip::new(spec.net.addr()), SightingKind::Probe);
            }
            let at = now + self.rng.range(SEC, 2 * SEC);
            self.queue.push(at, SimEvent::DadDone { node, token });
        }
        self.kernel_changed(node, notify);
        Ok(())
    }

    pub fn plan_expiry(&mut self, node: usize, token: u64, valid_until: T) {
        if self.mutated(Mutation::KernelKeepsForEver) {
            return;
        }
        let far = valid_until.saturating_sub(self.now) / 8;
        let at = valid_until + self.rng.below(LATEST_EXPIRY) + self.rng.below(far + 1);
        self.queue.push(at.max(self.now), SimEvent::Expire { node, token });
    }

    pub fn expire(&mut self, node: usize, token: u64) {
        // No timer runs there: it is planned anew when the machine goes on.
        if self.nodes[node].frozen.is_some() {
            return;
        }
        let now = self.now;
        let Some(addr) = self.nodes[node].kernel.by_token(token) else {
            return;
        };
        let Some(until) = addr.valid_until else {
            return;
        };
        if now < until {
            self.plan_expiry(node, token, until);
            return;
        }
        let (index, net) = (addr.facts.index, addr.facts.net);
        self.log(|w| format!("{}: the kernel lets {net} expire", w.nodes[node].name));
        if let Ok(notify) = self.nodes[node].kernel.remove(index, net) {
            self.kernel_changed(node, vec![notify]);
        }
    }

    pub fn dad_done(&mut self, node: usize, token: u64) {
        if self.nodes[node].frozen.is_some() {
            self.queue.push(self.now + SEC, SimEvent::DadDone { node, token });
            return;
        }
        let Some(addr) = self.nodes[node].kernel.by_token(token) else {
            return;
        };
        let facts = addr.facts.clone();
        let segment = self.nodes[node].segment_of(facts.index);
        let taken = self.nodes[node].kernel.usable(facts.index)
            && (0..self.nodes.len()).any(|other| {
                other != node
                    && self.nodes[other].frozen.is_none()
                    && segment.is_none_or(|s| self.connected(s, node, other))
                    && self.nodes[other].kernel.addrs.iter().any(|a| {
                        a.facts.net.addr() == facts.net.addr()
                            && !a.facts.dad_failed
                            && self.nodes[other].segment_of(a.facts.index) == segment
                            && self.nodes[other].kernel.usable(a.facts.index)
                    })
            });
        let squatted = self.truth.squatted.contains(&facts.vip());
        let addr = self.nodes[node].kernel.by_token(token).expect("it was there above");
        if taken || squatted {
            addr.facts.dad_failed = true;
        } else {
            addr.facts.tentative = false;
        }
        let notify = Input::AddressSet(addr.facts.clone());
        self.kernel_changed(node, vec![notify]);
    }

    /// Tells the monitor, and keeps the truth about holders.
    pub fn kernel_changed(&mut self, node: usize, notify: Vec<Input>) {
        for input in notify {
            let touched = match &input {
                Input::AddressSet(AddrFacts { net, .. }) | Input::AddressGone { net, .. } => Some(*net),
                _ => None,
            };
            self.monitor(node, input);
            match touched {
                Some(net) => {
                    if let Some(vip) = self.truth.index.get(&Vip::new(net.addr())) {
                        self.holding_changed(node, *vip);
                    }
                }
                None => self.all_holdings_changed(node),
            }
        }
    }

    pub fn all_holdings_changed(&mut self, node: usize) {
        for vip in 0..self.truth.vips.len() {
            self.holding_changed(node, vip);
        }
    }

    /// A kernel as it is after boot: links up, own addresses, default routes.
    pub fn fresh_kernel(&self, node: usize) -> Kernel {
        let mut kernel = Kernel::default();
        for (index, segment) in &self.nodes[node].ports {
            let name = if *index == ETH0 { "eth0" } else { "eth1" };
            let mut link = link(*index, name, Some(*segment));
            link.facts.mac = Some(mac_of(node, *index));
            kernel.links.insert(*index, link);
            for subnet in [v4_subnet(*segment, false), v6_subnet(*segment)] {
                kernel.add_foreign(self.now, *index, own_address(subnet, node));
            }
            // Every second node has the segment's second subnet too.
            if node.is_multiple_of(2) {
                kernel.add_foreign(self.now, *index, own_address(v4_subnet(*segment, true), node));
            }
            let local: IpAddr = format!("fe80::{:x}", node + 1).parse().expect("an address");
            kernel.add_foreign(self.now, *index, crate::setup::net(local, 64));
        }
        kernel.routes = self.default_routes_of(node);
        kernel
    }

    pub fn set_link(&mut self, node: usize, index: IfIndex, up: bool, carrier: bool) {
        let notify = self.nodes[node].kernel.set_link(index, up, carrier);
        if !notify.is_empty() {
            self.nodes[node].port_changed = self.now;
            self.log(|w| format!("{}: {index:?} up={up} carrier={carrier}", w.nodes[node].name));
            self.kernel_changed(node, notify);
        }
    }

    pub fn add_own(&mut self, node: usize, index: IfIndex, net: IpNet) {
        if let Some(notify) = self.nodes[node].kernel.add_foreign(self.now, index, net) {
            self.log(|w| format!("{}: the administrator adds {net}", w.nodes[node].name));
            self.kernel_changed(node, vec![notify]);
        }
    }

    /// Somebody runs `ip addr del`.
    pub fn remove_by_hand(&mut self, node: usize, index: IfIndex, net: IpNet) {
        if let Ok(notify) = self.nodes[node].kernel.remove(index, net) {
            self.log(|w| format!("{}: the administrator removes {net}", w.nodes[node].name));
            self.kernel_changed(node, vec![notify]);
        }
    }

    pub fn power_off(&mut self, node: usize) {
        self.expect_takeover(node);
        self.kill(node);
        self.nodes[node].frozen = None;
        self.nodes[node].powered = false;
        self.nodes[node].kernel = Kernel::default();
        self.all_holdings_changed(node);
    }

    pub fn power_on(&mut self, node: usize) {
        if self.nodes[node].powered {
            return;
        }
        self.nodes[node].powered = true;
        self.nodes[node].kernel = self.fresh_kernel(node);
        self.nodes[node].port_changed = self.now;
        // Another boot, another origin of its clock.
        let boot = self.rng.range(10_000 * SEC, 1_000_000 * SEC);
        self.nodes[node].boot = boot;
        self.start(node);
    }
}
