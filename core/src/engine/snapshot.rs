//! The picture that everyone else reads, drawn anew only where something changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::EngineConfig;
use crate::election::RankedCandidate;
use crate::facts::{AddrFacts, EXCLUDED, PoolType};
use crate::ids::{NodeName, Vip};
use crate::rank::Rank;
use crate::reason::{FenceCause, PendingCause, Reason};
use crate::shared_table::SharedTable;
use crate::snapshot::{
    ConfigStatus, Counters, EngineTimes, FenceView, MemberView, Snapshot, SnapshotTotals, VipView,
};
use crate::time::Mono;

use super::Engine;

/// The last picture, and what of it is out of date.
#[derive(Clone, Debug)]
pub(super) struct SnapshotCache {
    last: Snapshot,
    pub(super) vips: BTreeSet<Vip>,
    pub(super) members: BTreeSet<NodeName>,
    pub(super) candidates: bool,
    pub(super) groups: bool,
    pub(super) problems: bool,
}

impl SnapshotCache {
    pub(super) fn new(config: &EngineConfig) -> Self {
        let last = Snapshot {
            at: Mono::ZERO,
            version: 0,
            node: config.node.clone(),
            instance: config.instance.clone(),
            unsynced: Vec::new(),
            ready: false,
            config_status: ConfigStatus::default(),
            fence: FenceView::Fenced { cause: FenceCause::NeverRenewed },
            riding_since: None,
            draining: None,
            excluded: false,
            impaired: None,
            rank: Rank::First,
            stopping: false,
            members: SharedTable::default(),
            advertised: Arc::default(),
            local_subnets: Arc::default(),
            candidates: Arc::default(),
            segments: Arc::default(),
            vips: SharedTable::default(),
            groups: Arc::default(),
            problems: Arc::default(),
            totals: SnapshotTotals::default(),
            counters: Counters::default(),
            times: EngineTimes::default(),
        };
        Self {
            last,
            vips: BTreeSet::new(),
            members: BTreeSet::new(),
            candidates: false,
            groups: false,
            problems: false,
        }
    }

    /// Each tells whether something changed that anybody is told of.
    fn set_vip(&mut self, vip: Vip, view: Option<VipView>) -> bool {
        let announces = |v: &VipView| v.reason.announces();
        let rides = |v: &VipView| matches!(v.reason, Reason::Riding { .. });
        let picture = &mut self.last;
        if picture.vips.get(&vip) == view.as_ref() {
            return false;
        }
        if let Some(view) = &view {
            picture.totals.announcing += usize::from(announces(view));
            picture.totals.riding += usize::from(rides(view));
            picture.totals.held += usize::from(view.on_interface.is_some());
        }
        let before = match view {
            Some(view) => picture.vips.set(view),
            None => picture.vips.remove(&vip),
        };
        if let Some(before) = before {
            picture.totals.announcing -= usize::from(announces(&before));
            picture.totals.riding -= usize::from(rides(&before));
            picture.totals.held -= usize::from(before.on_interface.is_some());
        }
        true
    }

    fn set_member(&mut self, node: &NodeName, view: Option<MemberView>) -> bool {
        let picture = &mut self.last;
        picture.totals.live += usize::from(view.as_ref().is_some_and(|v| v.live));
        let after = view.clone();
        let before = match view {
            Some(view) => picture.members.set(view),
            None => picture.members.remove(node),
        };
        picture.totals.live -= usize::from(before.as_ref().is_some_and(|v| v.live));
        // It was renewed: nobody is told of that.
        let told = |v: &MemberView| MemberView { expires: None, ..v.clone() };
        before.as_deref().map(told) != after.as_ref().map(told)
    }
}

/// Replaces what differs, and says whether it did.
fn renew<T: PartialEq>(known: &mut T, fresh: T) -> bool {
    let differs = *known != fresh;
    if differs {
        *known = fresh;
    }
    differs
}

fn renew_shared<T: PartialEq>(known: &mut Arc<T>, fresh: T) -> bool {
    let differs = **known != fresh;
    if differs {
        *known = Arc::new(fresh);
    }
    differs
}

impl Engine {
    /// The picture as of now. Costs what changed since the last one.
    pub fn snapshot(&mut self, now: Mono) -> Snapshot {
        let mut news = false;
        let unsynced = self.missing_sources();
        if renew(&mut self.snapshot_cache.last.unsynced, unsynced) {
            // It is the reason of everything not decided yet.
            news = true;
            self.snapshot_cache.vips.extend(self.demands.vips());
            self.snapshot_cache.vips.extend(self.kernel.ours().map(AddrFacts::vip));
        }
        for vip in std::mem::take(&mut self.snapshot_cache.vips) {
            let view = self.is_shown(vip).then(|| self.vip_view(vip));
            news |= self.snapshot_cache.set_vip(vip, view);
        }
        for node in std::mem::take(&mut self.snapshot_cache.members) {
            let view = self.member_view(now, &node);
            news |= self.snapshot_cache.set_member(&node, view);
        }
        news |= self.update_summary(now);
        let picture = &mut self.snapshot_cache.last;
        picture.version += u64::from(news);
        picture.at = now;
        let found = self.detector.counters();
        (picture.counters, picture.times) = (self.counters, self.times);
        picture.counters.questions = found.questions;
        picture.counters.answers = found.answers;
        picture.counters.witness_missing = found.witness_missing;
        picture.counters.overruns = found.overruns;
        picture.clone()
    }

    fn update_summary(&mut self, now: Mono) -> bool {
        let fence = match (self.fence_cause(now), self.fence.deadline()) {
            (None, Some(until)) => FenceView::Healthy { until },
            (Some(cause), _) => FenceView::Fenced { cause },
            (None, None) => FenceView::Fenced { cause: FenceCause::NeverRenewed },
        };
        let ready = self.ready();
        let draining = self.drain.as_ref().map(|d| d.since.clone());
        let (excluded, rank) = (self.excluded(), self.rank.get());
        let impaired = self.nodes.get(&self.config.node).and_then(|n| n.impaired);
        let riding_since = self.ride.since().filter(|_| self.ride.any());
        let advertised = self.offered(now);
        let local = self.subnets.stable(now);
        let segments = self.detector.views();
        let stale = &mut self.snapshot_cache;
        let candidates = std::mem::take(&mut stale.candidates).then(|| self.election.candidates_by_subnet());
        let groups = std::mem::take(&mut stale.groups).then(|| self.demands.groups().cloned().collect());
        let problems = std::mem::take(&mut stale.problems).then(|| self.agents.problems().cloned().collect());
        let picture = &mut stale.last;
        let both_open = |a: &FenceView, b: &FenceView| {
            matches!((a, b), (FenceView::Healthy { .. }, FenceView::Healthy { .. }))
        };
        let mut news = !both_open(&picture.fence, &fence) && picture.fence != fence;
        picture.fence = fence;
        news |= renew(&mut picture.riding_since, riding_since);
        news |= renew(&mut picture.ready, ready);
        news |= renew(&mut picture.draining, draining);
        news |= renew(&mut picture.excluded, excluded);
        news |= renew(&mut picture.impaired, impaired);
        news |= renew(&mut picture.rank, rank);
        news |= renew(&mut picture.stopping, self.stop.is_some());
        if picture.config_status != *self.agents.standing() {
            picture.config_status = self.agents.standing().clone();
            news = true;
        }
        news |= renew_shared(&mut picture.advertised, advertised);
        news |= renew_shared(&mut picture.local_subnets, local);
        news |= renew_shared(&mut picture.segments, segments);
        news |= candidates.is_some_and(|fresh| renew_shared(&mut picture.candidates, fresh));
        news |= groups.is_some_and(|fresh| renew_shared(&mut picture.groups, fresh));
        news |= problems.is_some_and(|fresh| renew_shared(&mut picture.problems, fresh));
        news
    }

    /// A Service asks for it, or something of ours is left of it.
    fn is_shown(&self, vip: Vip) -> bool {
        self.demands.has(vip) || self.kernel.of_vip(vip).any(|a| a.ours)
    }

    pub(super) fn member_view(&self, now: Mono, node: &NodeName) -> Option<MemberView> {
        let member = self.members.get(node)?;
        let facts = member.facts();
        // Thousands of addresses, often, and the same ones at every renewal.
        let known = self.snapshot_cache.last.members.get(node).and_then(|m| m.announced.clone());
        let announced = facts
            .announced
            .as_ref()
            .map(|said| known.filter(|known| **known == *said).unwrap_or_else(|| Arc::new(said.clone())));
        Some(MemberView {
            node: node.clone(),
            // Of a peer what was decided, not what would be by now: who was counted out stays so
            // until it is heard of, whatever our own silence since would excuse.
            live: *node == self.config.node && member.live(now)
                || *node != self.config.node && self.candidacies.contains_key(node),
            expires: member.live(now).then(|| member.expires()),
            draining: facts.draining.as_deref().is_some_and(|d| d != EXCLUDED),
            excluded: facts.draining.as_deref() == Some(EXCLUDED),
            rank: self.candidacies.get(node).map_or(Rank::First, |c| c.rank),
            out_of_service: !self.in_service(node),
            announced,
            declined: facts.declined.clone().unwrap_or_default(),
            subnets: facts.subnets.clone(),
            control_endpoint: facts.control_endpoint.clone(),
        })
    }

    pub(super) fn vip_view(&self, vip: Vip) -> VipView {
        let group = self.demands.group_of(vip);
        let pending = || Reason::Pending { missing: PendingCause::Sources(self.missing_sources()) };
        VipView {
            vip,
            pool: group.map_or(PoolType::Local, |(_, pool)| pool),
            group: group.map(|(name, _)| name.to_owned()),
            services: self.demands.services_of(vip).cloned().collect(),
            reason: self.vips.get(&vip).and_then(|s| s.reason()).cloned().unwrap_or_else(pending),
            winner: self.election.winner(vip).cloned(),
            slot: self.demands.slot(vip).map(|s| s.node.clone()),
            on_interface: self
                .kernel
                .of_vip(vip)
                .find(|a| a.ours)
                .and_then(|a| self.kernel.name_of(a.index))
                .cloned(),
            announced: self.vips.get(&vip).is_some_and(|s| s.announced()),
        }
    }

    /// Where the picture differs from one drawn from nothing, in words.
    pub(super) fn snapshot_mismatch(&self, now: Mono) -> Option<String> {
        let mut engine = self.clone();
        let drawn = engine.snapshot(now);
        let held = self.kernel.ours().map(|a| a.vip());
        let vips: BTreeSet<Vip> = self.demands.vips().chain(held).collect();
        let vips: SharedTable<VipView> = vips.into_iter().map(|vip| self.vip_view(vip)).collect();
        if let Some((anew, drawn)) = drawn.vips.changes_since(&vips).next() {
            return Some(format!("drawn {drawn:?}, and it is {anew:?}"));
        }
        let members = self.members.iter().filter_map(|(node, _)| self.member_view(now, node));
        let members: SharedTable<MemberView> = members.collect();
        if let Some((anew, drawn)) = drawn.members.changes_since(&members).next() {
            return Some(format!("drawn {drawn:?}, and it is {anew:?}"));
        }
        let totals = SnapshotTotals {
            announcing: vips.iter().filter(|v| v.reason.announces()).count(),
            riding: vips.iter().filter(|v| matches!(v.reason, Reason::Riding { .. })).count(),
            held: vips.iter().filter(|v| v.on_interface.is_some()).count(),
            live: members.iter().filter(|m| m.live).count(),
        };
        let counted = totals == drawn.totals && *drawn.candidates == self.election.candidates_by_subnet();
        let groups = self.demands.groups().eq(drawn.groups.iter());
        let right = counted && groups && self.agents.problems().eq(drawn.problems.iter());
        (!right).then(|| format!("sums, candidates, groups or problems of {drawn:?} are wrong"))
    }

    /// The full order for an address, best first: for `winner`, `explain` and the
    /// dry run of a drain.
    pub fn order(&self, vip: Vip) -> Vec<RankedCandidate> {
        self.election.order(vip)
    }
}
