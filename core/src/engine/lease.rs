//! The engine's side of its own Lease: what it says, and what its state means.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::facts::LeaseFacts;
use crate::ids::Vip;
use crate::io::{Effect, LeaseContent, LeaseError, Renewed, Source};
use crate::own_lease::Outcome;
use crate::reason::FenceCause;
use crate::time::Mono;

use super::{Engine, Stop};

impl Engine {
    pub(super) fn own_lease_seen(&mut self, now: Mono, seen: Option<&LeaseFacts>) {
        let confirmed = self.lease.confirmed().is_some();
        if let Some(outcome) = self.lease.observed(seen) {
            self.lease_outcome(now, outcome);
        }
        if confirmed != self.lease.confirmed().is_some() {
            self.touch_all();
        }
    }

    pub(super) fn lease_answered(
        &mut self,
        now: Mono,
        seq: u64,
        sent: Mono,
        result: Result<Renewed, LeaseError>,
    ) {
        let outcome = self.lease.answered(now, seq, sent, result);
        self.lease_outcome(now, outcome);
    }

    fn lease_outcome(&mut self, now: Mono, outcome: Outcome) {
        match outcome {
            Outcome::Renewed { sent } => {
                self.counters.renewals += 1;
                if let Some(deadline) = self.fence.deadline() {
                    self.times.fence_margin.share(now.until(deadline), self.config.timers.renew_deadline);
                }
                self.fence.renewed(sent);
                if self.fence_cause(now).is_none() {
                    self.extend_lifetimes(now);
                    self.touch_missing();
                }
            }
            Outcome::Failed { error } => {
                self.counters.renewal_failures += 1;
                self.fence.failed(error);
            }
            Outcome::Lost { cause } => {
                self.counters.renewal_failures += 1;
                self.fence.lose(now, cause);
            }
        }
        // What we may claim depends on what is written.
        let me = self.config.node.clone();
        self.members_dirty.insert(me);
        if self.leaving() {
            self.touch_all();
        }
    }

    pub(super) fn check_lease(&mut self, now: Mono) {
        if let Some(outcome) = self.lease.expire(now) {
            self.lease_outcome(now, outcome);
        }
        if self.lease.wants_relist(now) {
            self.out.push(Effect::Relist(Source::Leases));
        }
        let healthy = self.fence_cause(now).is_none();
        if healthy != self.healthy {
            self.healthy = healthy;
            self.touch_all();
        }
    }

    /// Why we may hold nothing, if so.
    pub(super) fn fence_cause(&self, now: Mono) -> Option<FenceCause> {
        let stale = || self.lease.view_is_stale(now).then_some(FenceCause::StaleView);
        self.fence.cause(now).or_else(stale)
    }

    /// The others can read in our Lease what makes us lose an address: that we leave,
    /// or that we have its subnet no more. Until then none of them can know it won.
    pub(super) fn loss_is_published(&self, now: Mono, vip: Vip) -> bool {
        let Some(written) = self.lease.written() else {
            return false;
        };
        let leaves = !self.leaving() || written.draining.is_some();
        let has = |subnets: &BTreeSet<IpNet>| subnets.iter().any(|s| s.contains(&vip.ip()));
        leaves && (!has(&written.subnets) || has(&self.subnets.advertised(now)))
    }

    /// A Lease is written once we know what to say in it, whose it is, and which Node
    /// owns it; not for a Node that does not exist, and not while we delete it.
    pub(super) fn may_write_lease(&self) -> bool {
        let needed = [Source::Kernel, Source::NodeAgents, Source::Nodes, Source::Leases];
        needed.iter().all(|s| !self.unsynced.contains(s))
            && self.nodes.contains_key(&self.config.node)
            && self.stop.as_ref().is_none_or(Stop::still_renews)
    }

    pub(super) fn write_lease(&mut self, now: Mono) {
        if !self.may_write_lease() {
            return;
        }
        let other_lives = self.members.get(&self.config.node).is_some_and(|m| m.live(now));
        let wanted = self.lease_content(now);
        if let Some(write) = self.lease.due(now, &wanted, other_lives) {
            self.out.push(Effect::WriteLease(write));
        }
    }

    fn lease_content(&self, now: Mono) -> LeaseContent {
        let draining = match (&self.drain, &self.stop) {
            (Some(drain), _) => Some(drain.since.clone()),
            (None, Some(stop)) => Some(stop.since().to_owned()),
            (None, None) => None,
        };
        LeaseContent {
            instance: self.config.instance.clone(),
            duration: self.config.timers.duration,
            subnets: self.subnets.advertised(now),
            draining,
            announced: self.announced_now(),
            node_uid: self.nodes.get(&self.config.node).map(|n| n.uid.clone()).unwrap_or_default(),
        }
    }

    /// What we hold and have announced. Before the picture is whole, and before our first
    /// write came back: what the Lease said before us, as far as the kernel still has it.
    fn announced_now(&self) -> BTreeSet<Vip> {
        if self.unsynced.is_empty() && self.lease.confirmed().is_some() {
            return self.announced.clone();
        }
        let before = self.lease.seen().and_then(|l| l.announced.clone()).unwrap_or_default();
        let ours: BTreeSet<Vip> = self.kernel.ours().map(|a| a.vip()).collect();
        before.intersection(&ours).copied().collect()
    }
}
