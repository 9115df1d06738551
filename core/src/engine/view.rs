//! The picture that everyone else reads.

use crate::election::Ranked;
use crate::facts::PoolType;
use crate::ids::Vip;
use crate::reason::{Missing, Reason};
use crate::snapshot::{FenceView, MemberView, Snapshot, VipView};
use crate::time::Mono;

use super::Engine;

impl Engine {
    pub fn snapshot(&self, now: Mono) -> Snapshot {
        let fence = match (self.fence_cause(now), self.fence.deadline()) {
            (None, Some(until)) => FenceView::Healthy { until },
            (Some(cause), _) => FenceView::Fenced { cause },
            (None, None) => FenceView::Fenced { cause: crate::reason::FenceCause::NeverRenewed },
        };
        Snapshot {
            at: now,
            node: self.config.node.clone(),
            instance: self.config.instance.clone(),
            unsynced: self.missing_sources(),
            ready: self.ready(),
            standing: self.agents.standing().clone(),
            fence,
            draining: self.drain.as_ref().map(|d| d.since.clone()),
            stopping: self.stop.is_some(),
            members: self.member_views(now),
            advertised: self.subnets.advertised(now),
            local_subnets: self.subnets.stable(now),
            candidates: self.election.candidates_by_subnet(),
            vips: self.demands.vips().map(|vip| self.vip_view(vip)).collect(),
            groups: self.demands.groups().cloned().collect(),
            problems: self.agents.problems().cloned().collect(),
            counters: self.counters,
            times: self.times,
        }
    }

    fn member_views(&self, now: Mono) -> Vec<MemberView> {
        self.members
            .iter()
            .map(|(node, member)| {
                let facts = member.facts();
                MemberView {
                    node: node.clone(),
                    live: *node == self.config.node && member.live(now)
                        || *node != self.config.node && self.lives(now, member),
                    expires: member.live(now).then(|| member.expires()),
                    draining: facts.draining.is_some(),
                    out_of_service: !self.in_service(node),
                    announced: facts.announced.clone(),
                    subnets: facts.subnets.clone(),
                    control_endpoint: facts.control_endpoint.clone(),
                }
            })
            .collect()
    }

    fn vip_view(&self, vip: Vip) -> VipView {
        let demand = self.demands.of(vip);
        let pending = || Reason::Pending { missing: Missing::Sources(self.missing_sources()) };
        VipView {
            vip,
            pool: demand.as_ref().map_or(PoolType::Local, |d| d.pool),
            group: demand.as_ref().and_then(|d| self.demands.group_of(d)).map(str::to_owned),
            services: demand.map(|d| d.services.into_iter().collect()).unwrap_or_default(),
            reason: self.vips.get(&vip).and_then(|s| s.reason()).cloned().unwrap_or_else(pending),
            winner: self.election.winner(vip).cloned(),
            on_interface: self
                .kernel
                .of_vip(vip)
                .find(|a| a.ours)
                .and_then(|a| self.kernel.name_of(a.index))
                .cloned(),
            announced: self.vips.get(&vip).is_some_and(|s| s.announced()),
        }
    }

    /// The full order for an address, best first: for `winner`, `explain` and the
    /// dry run of a drain.
    pub fn order(&self, vip: Vip) -> Vec<Ranked> {
        self.election.order(vip)
    }
}
