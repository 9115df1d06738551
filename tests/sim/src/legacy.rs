//! A member of the older format, as it really is. It knows no handoffs, no drains, no
//! `announced` and no taint: among all Leases that have not expired by its own wall
//! clock it elects the lowest hash, takes what it wins at once, with a lifetime of its
//! own, and lets go at once of what it no longer wins.

use std::collections::BTreeSet;

use purelb_core::InstanceId;
use purelb_core::facts::LeaseFacts;
use purelb_core::messages::AddressSpec;
use purelb_core::segment::SightingKind;

use crate::kernel::ETH0;
use crate::queue::{MS, SimEvent, T};
use crate::setup::{net, v4_subnet, v6_subnet};
use crate::wire::Station;
use crate::world::World;

/// How old its view of the Leases may be.
const LOOK_EVERY: T = 400 * MS;

impl World {
    pub fn legacy_tick(&mut self, node: usize) {
        let jitter = self.rng.below(100 * MS);
        self.queue.push(self.now + LOOK_EVERY - 50 * MS + jitter, SimEvent::LegacyTick { node });
        if self.api.outage {
            return;
        }
        let lease = self.api.leases.get(&self.nodes[node].name);
        if lease.is_none_or(|l| self.now >= l.applied + self.duration(node) / 2) {
            self.legacy_renews(node);
        }
        for v in 0..self.truth.vips.len() {
            if !self.truth.vips[v].local {
                continue;
            }
            let wins = self.truth.vips[v].wanted && self.legacy_winner(node, v) == Some(node);
            match (wins, self.truth.vips[v].holds[node].is_some()) {
                (true, false) => self.legacy_takes(node, v),
                (false, true) => {
                    let held = self.nodes[node].kernel.marked(self.truth.vips[v].vip).next();
                    if let Some((index, net)) = held.map(|a| (a.facts.index, a.facts.net)) {
                        self.remove_by_hand(node, index, net);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whom it takes for the winner.
    pub fn legacy_winner(&self, node: usize, v: usize) -> Option<usize> {
        let wall = self.wall(node);
        let vip = self.truth.vips[v].vip;
        let unexpired = |n: &usize| {
            self.api.leases.get(&self.nodes[*n].name).is_some_and(|lease| {
                let renewed: i64 = lease.facts.renewal.parse().unwrap_or(0);
                wall < renewed + lease.facts.duration_seconds * 1_000_000
                    && lease.facts.subnets.iter().any(|s| s.contains(&vip.ip()))
            })
        };
        (0..self.nodes.len()).filter(unexpired).min_by_key(|n| self.truth.vips[v].score(*n))
    }

    fn legacy_takes(&mut self, node: usize, v: usize) {
        let vip = self.truth.vips[v].vip;
        let bits = if vip.ip().is_ipv4() { 24 } else { 64 };
        let spec = AddressSpec {
            index: ETH0,
            net: net(vip.ip(), bits),
            until: None,
            valid: None,
            preferred: None,
            no_prefix_route: true,
            no_dad: true,
        };
        if self.put(node, &spec).is_ok()
            && let Some(segment) = self.nodes[node].segment_of(ETH0)
        {
            self.claim_sent(segment, Station::Node(node), vip, SightingKind::Announcement);
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
            duration_seconds: self.nodes[node].timers.duration.as_secs() as i64,
            renewal,
            subnets,
            draining: None,
            announced: None,
            declined: None,
            rank: None,
            macs: None,
            control_endpoint: None,
        };
        let uid = self.nodes[node].uid.clone();
        self.store_lease(node, facts, uid);
    }
}
