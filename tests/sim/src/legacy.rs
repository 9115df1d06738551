//! A member of the older format: no handoffs, no `announced`, long lifetimes. It
//! claims what it wins at once and lets go at once of what it no longer wins.

use std::collections::BTreeSet;

use purelb_core::InstanceId;
use purelb_core::facts::LeaseFacts;
use purelb_core::io::AddressSpec;

use crate::kernel::ETH0;
use crate::queue::{Ev, MS, T};
use crate::setup::{net, v4_subnet, v6_subnet};
use crate::world::World;

const LOOK_EVERY: T = 400 * MS;

impl World {
    pub fn legacy_tick(&mut self, node: usize) {
        self.queue.push(self.now + LOOK_EVERY, Ev::LegacyTick { node });
        let lease = self.api.leases.get(&self.nodes[node].name);
        let due = lease.is_none_or(|l| self.now >= l.applied + self.setup.duration() / 2);
        if due && !self.api.outage {
            self.legacy_renews(node);
        }
        for v in 0..self.truth.vips.len() {
            let truth = &self.truth.vips[v];
            let (vip, wins) = (truth.vip, truth.winner == Some(node));
            match (wins, truth.holds[node].is_some()) {
                (true, false) => {
                    let bits = if vip.ip().is_ipv4() { 24 } else { 64 };
                    let spec = AddressSpec {
                        index: ETH0,
                        net: net(vip.ip(), bits),
                        valid: None,
                        preferred: None,
                        no_prefix_route: true,
                        no_dad: true,
                    };
                    if self.put(node, &spec).is_ok()
                        && let Some(segment) = self.nodes[node].segment_of(ETH0)
                    {
                        for cache in &mut self.caches[segment] {
                            cache.insert(vip, node);
                        }
                    }
                }
                (false, true) => {
                    let held = self.nodes[node].kernel.marked(vip).next();
                    if let Some((index, net)) = held.map(|a| (a.facts.index, a.facts.net)) {
                        self.remove_by_hand(node, index, net);
                    }
                }
                _ => {}
            }
        }
    }

    fn legacy_renews(&mut self, node: usize) {
        let renewal = self.renewal_mark(node);
        let (_, segment) = self.nodes[node].ports[0];
        let mut subnets = BTreeSet::from([v4_subnet(segment, false), v6_subnet(segment)]);
        if node.is_multiple_of(2) {
            subnets.insert(v4_subnet(segment, true));
        }
        let facts = LeaseFacts {
            node: self.nodes[node].name.clone(),
            instance: InstanceId::new("older").ok(),
            duration_seconds: self.setup.timers.duration.as_secs() as i64,
            renewal,
            subnets,
            draining: None,
            announced: None,
            control_endpoint: None,
        };
        let uid = self.nodes[node].uid.clone();
        self.store_lease(node, facts, uid);
    }
}
