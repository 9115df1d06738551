//! What must be once nothing is wrong any more: every address where it belongs, and
//! everybody who looks for it finds it there.

use std::collections::BTreeSet;

use ipnet::IpNet;
use purelb_core::facts::{AgentConfig, AutoInterface};
use purelb_core::{IfIndex, Vip};

use crate::world::World;

impl World {
    pub fn check_settled(&mut self) {
        for node in 0..self.nodes.len() {
            self.check_member(node);
        }
        for v in 0..self.truth.vips.len() {
            if self.truth.vips[v].local {
                self.check_owner(v);
            } else {
                self.check_remote(v);
            }
            if self.violation.is_some() {
                return;
            }
        }
    }

    fn agent_config(&self, node: usize) -> Option<&AgentConfig> {
        let labels = &self.nodes[node].labels;
        let matching = self.api.agents.values().filter(|a| a.selector.matches(labels));
        let best = matching.min_by_key(|a| (a.selector.is_catch_all(), a.key.clone()))?;
        best.config.as_ref().ok()
    }

    pub fn interfaces(&self, node: usize) -> BTreeSet<IfIndex> {
        let Some(config) = self.agent_config(node) else {
            return BTreeSet::new();
        };
        let kernel = &self.nodes[node].kernel;
        kernel
            .links
            .values()
            .filter(|l| l.segment.is_some() && l.facts.usable())
            .filter(|l| {
                config.interfaces.contains(&l.facts.name)
                    || match &config.auto {
                        AutoInterface::DefaultRoute => kernel.routes.iter().any(|r| r.index == l.facts.index),
                        AutoInterface::Pattern(text) => l.facts.name.as_str().contains(text.as_str()),
                        AutoInterface::None => false,
                    }
            })
            .map(|l| l.facts.index)
            .collect()
    }

    fn subnets(&self, node: usize) -> BTreeSet<IpNet> {
        let interfaces = self.interfaces(node);
        self.nodes[node]
            .kernel
            .addrs
            .iter()
            .map(|a| &a.facts)
            .filter(|a| interfaces.contains(&a.index) && !a.ours && !a.link_local)
            .filter(|a| !a.tentative && !a.dad_failed && !a.deprecated)
            .map(|a| a.net.trunc())
            .collect()
    }

    /// A running node is a member and advertises what it has; no other node is one.
    fn check_member(&mut self, node: usize) {
        let n = &self.nodes[node];
        if n.legacy || !n.joined {
            return;
        }
        let name = n.name.clone();
        let live = self.lease_live(node);
        if !n.runs() {
            if live {
                self.violate("R2", format!("{name} does not run and its Lease lives"));
            }
            return;
        }
        if !live {
            let snapshot =
                self.nodes[node].process.as_ref().map(|p| p.engine.clone().snapshot(self.mono(node)).fence);
            self.violate("liveness", format!("{name} runs and has no live Lease: {snapshot:?}"));
            return;
        }
        // Members of the older format elect by subnets alone: who drains names none.
        let older = (0..self.nodes.len()).any(|n| self.nodes[n].legacy && self.lease_live(n));
        let hides = older && self.nodes[node].drain.is_some();
        let expected = if hides { BTreeSet::new() } else { self.subnets(node) };
        let lease = self.api.leases.get(&name).map(|l| l.facts.subnets.clone());
        if lease.as_ref() != Some(&expected) {
            let words = format!("{name} advertises {lease:?} and has {expected:?}");
            self.violate("R8", words);
        }
    }

    fn check_owner(&mut self, v: usize) {
        let truth = &self.truth.vips[v];
        let (vip, winner, holders) = (truth.vip, truth.winner, truth.holders());
        let names = |nodes: &[usize]| {
            let names: Vec<&str> = nodes.iter().map(|n| self.nodes[*n].name.as_str()).collect();
            if names.is_empty() { "nobody".to_owned() } else { names.join(" and ") }
        };
        let Some(winner) = winner else {
            // A draining node keeps what nobody can take.
            let kept = truth.wanted
                && holders.len() == 1
                && self.nodes[holders[0]].drain.is_some()
                && self.truth.live[holders[0]]
                && self.subnets(holders[0]).iter().any(|s| s.contains(&vip.ip()));
            if !holders.is_empty() && !kept {
                let words = format!("{vip} is on {} and nobody may hold it", names(&holders));
                self.violate("R1", words);
            }
            return;
        };
        if holders != [winner] {
            let reason = self.reason(winner, vip);
            let words = format!(
                "{vip} is on {} and belongs to {} ({reason})",
                names(&holders),
                self.nodes[winner].name,
            );
            self.violate("R1", words);
            return;
        }
        if self.nodes[winner].legacy {
            return;
        }
        self.check_place(v, winner);
        self.check_found(v, winner);
    }

    pub fn reason(&self, node: usize, vip: Vip) -> String {
        let Some(process) = &self.nodes[node].process else {
            return "does not run".into();
        };
        let snapshot = process.engine.clone().snapshot(self.mono(node));
        snapshot
            .vips
            .iter()
            .find(|v| v.vip == vip)
            .map_or("does not know it".into(), |v| format!("{:?}", v.reason))
    }

    /// On an interface of a matching subnet, fenced, and past detection.
    fn check_place(&mut self, v: usize, node: usize) {
        let vip = self.truth.vips[v].vip;
        let n = &self.nodes[node];
        let Some(addr) = n.kernel.marked(vip).next() else {
            return;
        };
        let index = addr.facts.index;
        let subnet_here = n
            .kernel
            .addrs
            .iter()
            .any(|a| !a.facts.ours && a.facts.index == index && a.facts.net.contains(&vip.ip()));
        let copies = n.kernel.marked(vip).count();
        let usable = !addr.facts.tentative && !addr.facts.dad_failed;
        let (name, until) = (n.name.clone(), addr.valid_until);
        let past = until.and_then(|until| self.lifetime_past_fence(node, until));
        if !subnet_here || !self.interfaces(node).contains(&index) || copies != 1 {
            self.violate("R1", format!("{vip} is on the wrong interface of {name}, or {copies} times"));
        } else if until.is_none() {
            self.violate("R3", format!("{vip} is on {name} for ever"));
        } else if let Some(past) = past {
            self.violate("R3", format!("{vip} lives on {name} {} ms past its fence", past.as_millis()));
        } else if !usable {
            let reason = self.reason(node, vip);
            self.violate("liveness", format!("{vip} on {name} is not past detection ({reason})"));
        }
    }

    /// Clients, and those who read the Service or the Lease, find the owner.
    fn check_found(&mut self, v: usize, node: usize) {
        let vip = self.truth.vips[v].vip;
        let name = self.nodes[node].name.clone();
        if let Some(segment) = self.truth.vips[v].segment {
            for cache in &self.caches[segment] {
                let believed = cache.get(&vip).copied();
                if believed != Some(node) {
                    let words = format!(
                        "a client sends what is for {vip} to {:?}, and {name} has it",
                        believed.map(|n| self.nodes[n].name.clone()),
                    );
                    self.violate("R9", words);
                    return;
                }
            }
        }
        let listed = self
            .api
            .leases
            .get(&name)
            .and_then(|l| l.facts.announced.as_ref())
            .is_some_and(|a| a.contains(&vip));
        if !listed {
            self.violate("R7", format!("{name} has {vip} and its Lease does not say so"));
            return;
        }
        let wrong = self
            .api
            .services
            .values()
            .find(|s| s.vips.contains(&vip) && s.slots.get(&vip).is_none_or(|slot| slot.node != name));
        if let Some(service) = wrong {
            let words =
                format!("{name} has {vip} and Service {} says {:?}", service.key, service.slots.get(&vip));
            self.violate("R11", words);
        }
    }

    /// A remote pool's address is on every member's dummy interface.
    fn check_remote(&mut self, v: usize) {
        let vip = self.truth.vips[v].vip;
        for node in 0..self.nodes.len() {
            let n = &self.nodes[node];
            if n.legacy || !n.runs() || n.drain.is_some() {
                continue;
            }
            let should = self.remote_wanted(node, vip).unwrap_or(false);
            let has = n.kernel.marked(vip).count() > 0;
            if has != should {
                let words = format!(
                    "{} has {vip} of a remote pool: {has}; should: {should} ({})",
                    n.name,
                    self.reason(node, vip)
                );
                self.violate("R1", words);
                return;
            }
        }
    }
}
