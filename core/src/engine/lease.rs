//! The engine's side of its own Lease: what it says, and what its state means.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::facts::{EXCLUDED, LeaseFacts};
use crate::ids::Vip;
use crate::membership::duration_of;
use crate::messages::{Effect, LeaseContent, LeaseError, LeaseRenewal, Source};
use crate::own_lease::LeaseOutcome;
use crate::rank::Rank;
use crate::reason::FenceCause;
use crate::time::Mono;

use super::{Engine, OngoingShutdown};

/// What the wish for any address takes from our Lease, and from what we doubt: when it
/// changes, it concerns them all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimBasis {
    /// An earlier run's Lease stands, and nothing of ours came back yet.
    inherited: bool,
    /// The subnets in our Lease, as it came back.
    confirmed: Option<BTreeSet<IpNet>>,
    draining: bool,
    /// What our Lease says of it as written: that we leave, that we rank last, which
    /// subnets we have. Others can win what we lose once they can read that we lost it.
    published: Option<(bool, Rank, BTreeSet<IpNet>)>,
    missing: Vec<Source>,
}

impl Engine {
    pub(super) fn claim_basis(&self) -> ClaimBasis {
        ClaimBasis {
            inherited: self.lease.seen().is_some() && self.lease.looked().is_none(),
            confirmed: self.lease.confirmed().map(|l| l.subnets.clone()),
            draining: self.lease_says_draining(),
            published: self.lease.written().map(|l| (l.draining.is_some(), l.rank, l.subnets.clone())),
            missing: self.missing_listings(),
        }
    }

    pub(super) fn own_lease_seen(&mut self, now: Mono, seen: Option<&LeaseFacts>) {
        self.inherit(now, seen);
        if let Some(outcome) = self.lease.observed(seen) {
            self.lease_outcome(now, outcome);
        }
    }

    /// What an earlier run left in the kernel lives until its own fence, which may be later
    /// than ours. A Lease that said less than its own would have peers claim it before.
    fn inherit(&mut self, now: Mono, seen: Option<&LeaseFacts>) {
        let first = self.inherited.is_none() && self.lease.written().is_none();
        let earlier = seen.filter(|l| first && l.instance.as_ref() != Some(&self.config.instance));
        if let Some(duration) = earlier.map(duration_of) {
            self.inherited = Some((duration, now + duration));
        }
    }

    fn lease_duration(&self, now: Mono) -> Duration {
        let earlier = self.inherited.filter(|(_, until)| now < *until).map(|(duration, _)| duration);
        earlier.unwrap_or_default().max(self.config.timers.duration)
    }

    pub(super) fn lease_answered(
        &mut self,
        now: Mono,
        seq: u64,
        sent: Mono,
        result: Result<LeaseRenewal, LeaseError>,
    ) {
        let outcome = self.lease.answered(now, seq, sent, result);
        self.lease_outcome(now, outcome);
    }

    fn lease_outcome(&mut self, now: Mono, outcome: LeaseOutcome) {
        match outcome {
            LeaseOutcome::Renewed { sent } => {
                self.counters.renewals += 1;
                if let Some(deadline) = self.fence.deadline() {
                    self.times
                        .fence_margin
                        .record_share(now.until(deadline), self.config.timers.renew_deadline);
                }
                self.record_fence_expiry(now);
                self.fence.renewed(sent);
                self.ride.renewed(now);
                if self.adopting.is_none() && !self.unsynced.is_empty() {
                    self.adopting = Some(now + self.config.timers.duration);
                }
                if self.fence.cause(now).is_none() && std::mem::take(&mut self.ran_out) {
                    self.recover(now);
                }
                if self.fence_cause(now).is_none() {
                    self.extend = true;
                    self.mark_missing_vips();
                }
            }
            LeaseOutcome::Failed { error } => {
                self.sight.failed();
                self.ride.failed();
                self.counters.renewal_failures += 1;
                self.fence.failed(error);
            }
            LeaseOutcome::Lost { cause } => {
                self.counters.renewal_failures += 1;
                self.record_fence_expiry(now);
                self.fence.lose(now, cause);
            }
        }
        // What we may claim depends on what is written, see `claim_basis`.
        let me = self.config.node.clone();
        self.members_dirty.insert(me);
    }

    /// The fence fell by time: whatever ends it, we were blind meanwhile.
    fn record_fence_expiry(&mut self, now: Mono) {
        if let Some(since) = self.fence.ran_out(now) {
            self.ran_out = true;
            self.lease.was_fenced(since);
        }
    }

    pub(super) fn check_lease(&mut self, now: Mono) {
        self.record_fence_expiry(now);
        if let Some(outcome) = self.lease.expire(now) {
            self.lease_outcome(now, outcome);
        }
        self.sight.update(now, self.lease.looked());
        self.check_view(now);
        let claim_basis = self.claim_basis();
        if claim_basis != self.claim_basis {
            self.claim_basis = claim_basis;
            self.members_dirty.insert(self.config.node.clone());
            self.mark_all_vips();
        }
        let fenced = self.fence_cause(now);
        if fenced != self.fenced {
            self.fenced = fenced;
            self.mark_all_vips();
        }
        self.check_ride(now);
    }

    /// Why we may hold nothing, if so.
    pub(super) fn fence_cause(&self, now: Mono) -> Option<FenceCause> {
        let stale = || self.view_is_stale(now).then_some(FenceCause::StaleView);
        self.fence.cause(now).or_else(stale)
    }

    /// The others can read in our Lease what makes us lose an address: that we leave, that
    /// we rank last, or that we have its subnet no more. Until then none of them can know it won.
    pub(super) fn loss_is_published(&self, now: Mono, vip: Vip) -> bool {
        let Some(written) = self.lease.written() else {
            return false;
        };
        let leaves = !self.leaving() || written.draining.is_some();
        let ranks = self.rank.get() == Rank::First || written.rank == Rank::Last;
        let has = |subnets: &BTreeSet<IpNet>| subnets.iter().any(|s| s.contains(&vip.ip()));
        leaves && ranks && (!has(&written.subnets) || has(&self.offered(now)))
    }

    /// The subnets our Lease should name: those whose addresses we would serve, were
    /// they given to us now. A winner that cannot act leaves its share to nobody.
    pub(super) fn offered(&self, now: Mono) -> BTreeSet<IpNet> {
        let have = self.subnets.advertised(now);
        if !self.unsynced.is_empty() {
            return self.adopted(now, have);
        }
        let stale = self.fence_cause(now) == Some(FenceCause::StaleView);
        // Members of the older format do not read that we leave, and would go on
        // electing us.
        if self.leaving() && !self.older.is_empty() {
            return BTreeSet::new();
        }
        if stale {
            return self.still_here(now, have);
        }
        have
    }

    /// The subnets of the local addresses that the kernel still has: who reads that we
    /// have one no more takes its addresses at once. What rides is there to be claimed, once
    /// those who see more than we do had time to become one with us again.
    fn still_here(&self, now: Mono, have: BTreeSet<IpNet>) -> BTreeSet<IpNet> {
        let left_to_others = self.ride.is_left_to_others(now, self.config.timers);
        let here = |net: &IpNet| {
            self.kernel.ours().any(|a| {
                let stays = !a.dad_failed && !self.is_remote(a);
                net.contains(&a.net.addr()) && stays && !(left_to_others && self.ride.has(a.vip()))
            })
        };
        have.into_iter().filter(here).collect()
    }

    /// Before the picture is whole we serve what an earlier run left, and nothing
    /// else: of what its Lease said, the subnets of the addresses that are still here.
    /// Kept alive for one duration; who cannot list its sources by then lets others have
    /// them, as soon as the kernel has ended them.
    fn adopted(&self, now: Mono, have: BTreeSet<IpNet>) -> BTreeSet<IpNet> {
        let Some(before) = self.lease.seen() else {
            return BTreeSet::new();
        };
        let named = have.into_iter().filter(|net| before.subnets.contains(net)).collect();
        self.still_here(now, named)
    }

    /// What an earlier run left is kept alive, though we do not know yet what it is for.
    pub(super) fn adopts(&self, now: Mono) -> bool {
        !self.unsynced.is_empty() && self.adopting.is_none_or(|until| now < until)
    }

    /// A Lease is written once we know what to say in it, whose it is, and which Node
    /// owns it; not for a Node that does not exist, but for a last word, and not while we
    /// delete it.
    pub(super) fn may_write_lease(&self) -> bool {
        let needed = [Source::Kernel, Source::NodeAgents, Source::Nodes, Source::Leases];
        needed.iter().all(|s| !self.unsynced.contains(s))
            && (self.nodes.contains_key(&self.config.node) || self.has_let_go())
            && self.stop.as_ref().is_none_or(OngoingShutdown::still_renews)
    }

    /// Our Node is gone and so are our addresses, but the Lease lists some, or did when it was
    /// collected with the Node: whoever read that waits for us until it runs out.
    fn has_let_go(&self) -> bool {
        let awaited = self.lease.lists_addresses() || self.lease.owes_word();
        awaited && self.kernel.ours().all(|a| self.is_remote(a))
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
            (None, None) => self.excluded().then(|| EXCLUDED.to_owned()),
        };
        LeaseContent {
            instance: self.config.instance.clone(),
            duration: self.lease_duration(now),
            subnets: self.offered(now),
            draining,
            rank: self.rank.get(),
            announced: self.announced_now(),
            declined: self.declined.clone(),
            macs: self.segment_macs(),
            node_uid: self.node_uid.clone(),
        }
    }

    /// What we hold and have announced. Before the picture is whole, and before our first
    /// write came back: what the Lease said before us, as far as the kernel still has it.
    fn announced_now(&self) -> Arc<BTreeSet<Vip>> {
        if self.unsynced.is_empty() && self.lease.confirmed().is_some() {
            return self.announced.clone();
        }
        let before = self.lease.seen().and_then(|l| l.announced.clone()).unwrap_or_default();
        let ours: BTreeSet<Vip> = self.kernel.ours().map(|a| a.vip()).collect();
        Arc::new(before.intersection(&ours).copied().collect())
    }
}
