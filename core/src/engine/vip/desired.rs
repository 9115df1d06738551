//! What an address should be here, and why, before it is compared with the kernel.

use ipnet::IpNet;

use crate::facts::LinkFacts;
use crate::handoff::OwnerVerdict;
use crate::ids::{IfIndex, IfName, Vip};
use crate::node_config::ConfigStatus;
use crate::placement::Demand;
use crate::reason::{FenceCause, HiddenNetwork, PendingCause, Reason};
use crate::time::Mono;

use super::Engine;

/// What is to be done about one address, before it is compared with the kernel.
pub(in crate::engine) struct DesiredVip {
    pub(super) verdict: OwnerVerdict,
    pub(super) obstacle: Option<VipObstacle>,
    pub(super) reason: Reason,
    pub(super) place: Option<VipPlace>,
}

/// What keeps an address from being here, where a later step goes by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum VipObstacle {
    /// Another node won it.
    AnotherWinner,
    NotInPool,
    ForeignAddress {
        interface: IfName,
    },
}

/// Where an address goes.
#[derive(Clone, Debug)]
pub(in crate::engine) struct VipPlace {
    pub(super) index: IfIndex,
    pub(super) interface: IfName,
    pub(super) net: IpNet,
}

impl DesiredVip {
    pub(in crate::engine) fn forbidden(reason: Reason) -> Self {
        Self { verdict: OwnerVerdict::Forbidden, obstacle: None, reason, place: None }
    }

    pub(super) fn not_in_pool() -> Self {
        Self { obstacle: Some(VipObstacle::NotInPool), ..Self::forbidden(Reason::NotInPool) }
    }

    fn foreign_address(interface: IfName) -> Self {
        let obstacle = Some(VipObstacle::ForeignAddress { interface: interface.clone() });
        Self { obstacle, ..Self::forbidden(Reason::ForeignAddress { interface }) }
    }

    /// As far as the owner goes; nothing else stands in the way.
    pub(in crate::engine) fn of(verdict: OwnerVerdict, reason: Reason, place: Option<VipPlace>) -> Self {
        Self { verdict, obstacle: None, reason, place }
    }
}

impl Engine {
    pub(super) fn desired_local(
        &self,
        now: Mono,
        vip: Vip,
        demand: &Demand,
        held: bool,
        kept: bool,
    ) -> DesiredVip {
        if self.stopping_now() {
            return DesiredVip::forbidden(Reason::Stopping);
        }
        if !self.in_service(&self.config.node) {
            return DesiredVip::forbidden(Reason::OutOfService);
        }
        if let Some(interface) = self.foreign(vip) {
            return DesiredVip::foreign_address(interface);
        }
        let cause = self.fence_cause(now);
        let first = self.lease.written().is_none() && cause == Some(FenceCause::NeverRenewed);
        if let Some(cause) = cause.filter(|_| !first) {
            return DesiredVip::forbidden(Reason::Fenced { cause });
        }
        if first || self.lease.confirmed().is_none() {
            // An earlier run's Lease still stands, so what it left in the kernel is
            // fenced by its lifetime: kept until we know whether it is ours (R3).
            // Without that Lease, or once we lost ours, others may have it already.
            let keep = held && self.lease.seen().is_some() && self.lease.looked().is_none();
            let reason = Reason::Pending { missing: PendingCause::Lease };
            return DesiredVip::of(OwnerVerdict::Nobody { keep }, reason, None);
        }
        let missing = self.missing_listings();
        if !missing.is_empty() {
            let reason = Reason::Pending { missing: PendingCause::Sources(missing) };
            return DesiredVip::of(OwnerVerdict::Nobody { keep: false }, reason, None);
        }
        let configured = self.agents.current().is_some();
        let place = self.subnets.locate(now, vip).and_then(|(name, subnet)| {
            let link = self.kernel.link_named(name)?;
            Some(VipPlace { index: link.index, interface: name.clone(), net: demand.net(vip, Some(subnet)) })
        });
        match self.election.winner(vip) {
            Some(winner) if *winner == self.config.node => match place {
                Some(place) => {
                    let reason = Reason::Pending { missing: PendingCause::Kernel };
                    DesiredVip::of(OwnerVerdict::Mine, reason, Some(place))
                }
                None => DesiredVip::forbidden(Reason::NoLocalSubnet),
            },
            // It fell silent, and nobody else has it (R12).
            Some(_) if self.is_early(vip) && place.is_some() => {
                let reason = Reason::Pending { missing: PendingCause::Kernel };
                DesiredVip::of(OwnerVerdict::Mine, reason, place)
            }
            Some(winner) => {
                let reason = if configured {
                    Reason::NotWinner { winner: winner.clone() }
                } else {
                    self.unconfigured()
                };
                // Without the subnet we cannot serve a moment longer, and need not wait.
                // If only the configuration took it from us, we can: until the
                // winner has it.
                let verdict = if place.is_none() && !self.still_serves(vip) {
                    OwnerVerdict::Forbidden
                } else {
                    OwnerVerdict::Peer(winner.clone())
                };
                DesiredVip { verdict, obstacle: Some(VipObstacle::AnotherWinner), reason, place }
            }
            // The same edit may have brought in those who take it over, or ourselves again, and
            // none of us has said so yet: as with any handoff, there is time until its deadline.
            None if held && demand.permits(&self.config.node) && self.passes_on(now, vip) => {
                let missing = if place.is_some() { PendingCause::Lease } else { PendingCause::Successor };
                let reason = Reason::Pending { missing };
                DesiredVip::of(OwnerVerdict::Nobody { keep: true }, reason, place)
            }
            None if !configured => DesiredVip::forbidden(self.unconfigured()),
            None => self.desired_without_winner(vip, demand, held, kept, place),
        }
    }

    /// The configuration changed a moment ago, and what is here still serves.
    fn passes_on(&self, now: Mono, vip: Vip) -> bool {
        self.passes_on_until().is_some_and(|until| now < until) && self.still_serves(vip)
    }

    pub(super) fn passes_on_until(&self) -> Option<Mono> {
        self.reconfigured.filter(|_| !self.leaving()).map(|at| at + self.config.handoff.deadline)
    }

    /// The address is here, on a link that works and has its subnet, whatever the
    /// configuration says by now.
    pub(super) fn still_serves(&self, vip: Vip) -> bool {
        let ours = self.kernel.of_vip(vip).filter(|a| a.ours && !a.tentative && !a.dad_failed);
        let works = |link: &LinkFacts| link.usable() && !self.is_cut_off(link);
        ours.filter(|a| self.kernel.link(a.index).is_some_and(works))
            .any(|held| self.kernel.others_on(held.index).any(|a| a.net.contains(&vip.ip())))
    }

    /// `kept`: it was here for this reason before a fence took it. Where a peer says that
    /// it has the address meanwhile, it is that peer's to keep.
    pub(super) fn desired_without_winner(
        &self,
        vip: Vip,
        demand: &Demand,
        held: bool,
        kept: bool,
        place: Option<VipPlace>,
    ) -> DesiredVip {
        let forced = self.drain.as_ref().is_some_and(|d| d.force);
        let excluded = self.drain.is_none() && self.excluded();
        let drains = self.drain.is_some() || excluded || self.lease_says_draining();
        let keep = drains
            && !forced
            && self.stop.is_none()
            && (held || (kept && !self.rival(vip)))
            && place.is_some()
            && demand.permits(&self.config.node);
        if keep && !held {
            let reason = Reason::Pending { missing: PendingCause::Kernel };
            return DesiredVip::of(OwnerVerdict::Mine, reason, place);
        }
        let reason = if self.stop.is_some() {
            Reason::Stopping
        } else if excluded {
            Reason::Excluded { held: keep }
        } else if keep && self.drain.is_none() {
            // Undrained, or let in again; we are a candidate again once the others can read it.
            Reason::Pending { missing: PendingCause::Lease }
        } else if keep || (self.drain.is_some() && held) {
            Reason::Draining { held: keep }
        } else {
            self.why_nobody(vip, place.is_some())
        };
        DesiredVip::of(OwnerVerdict::Nobody { keep }, reason, place)
    }

    /// Nobody wins it: why? `placed`: there is a place for it here.
    pub(in crate::engine) fn why_nobody(&self, vip: Vip, placed: bool) -> Reason {
        if self.election.all_declined(vip) {
            Reason::AllDeclined
        } else if !self.election.has_candidates(vip) {
            // We can have it, and the others are yet to read so.
            let soon = placed && !self.offered_before(vip);
            if soon { Reason::Pending { missing: PendingCause::Lease } } else { Reason::NoEligibleNode }
        } else {
            Reason::NoEndpoints
        }
    }

    /// Our Lease, as it came back, names a subnet that contains the address.
    fn offered_before(&self, vip: Vip) -> bool {
        self.lease.confirmed().is_some_and(|l| l.subnets.iter().any(|s| s.contains(&vip.ip())))
    }

    /// Remote addresses live on every node; no election, no handoff, no fence: a
    /// router takes away the path to a node that is gone.
    pub(super) fn desired_remote(&self, vip: Vip, demand: &Demand, held: bool) -> DesiredVip {
        if self.stop.is_some() {
            return DesiredVip::forbidden(Reason::Stopping);
        }
        if !self.in_service(&self.config.node) {
            return DesiredVip::forbidden(Reason::OutOfService);
        }
        let Some(config) = self.agents.current() else {
            return DesiredVip::forbidden(self.unconfigured());
        };
        if let Some(interface) = self.foreign(vip) {
            return DesiredVip::foreign_address(interface);
        }
        if !demand.permits(&self.config.node) {
            return DesiredVip::forbidden(Reason::NoEndpoints);
        }
        if self.drain.is_some() || self.excluded() {
            let me = &self.config.node;
            let others = self.candidacies.iter().any(|(n, c)| n != me && c.eligible && demand.permits(n));
            let reason = match &self.drain {
                Some(_) => Reason::Draining { held: false },
                None => Reason::Excluded { held: false },
            };
            if others || self.drain.as_ref().is_some_and(|d| d.force) || !held {
                return DesiredVip::forbidden(reason);
            }
        }
        let net = demand.net(vip, None);
        // Without a prefix route there is the address itself.
        let reach = if config.dummy_address.no_prefix_route { vip.ip().into() } else { net };
        if let Some(what) = self.hidden_by(reach) {
            return DesiredVip::forbidden(Reason::HidesOwnNetwork { net: reach.trunc(), what });
        }
        let place = self.kernel.link_named(&config.dummy).map(|link| VipPlace {
            index: link.index,
            interface: link.name.clone(),
            net,
        });
        let reason = Reason::Pending { missing: PendingCause::DummyInterface };
        DesiredVip::of(OwnerVerdict::Mine, reason, place)
    }

    /// What a prefix route to the dummy interface would take from the node: its own
    /// address on a real interface, or its way out. The kernel would prefer it to the
    /// network that is really there.
    fn hidden_by(&self, net: IpNet) -> Option<HiddenNetwork> {
        // A host route, or the address itself, takes the gateway as well as a prefix does.
        if let Some(gateway) = self.kernel.gateways().find(|gateway| net.contains(gateway)) {
            return Some(HiddenNetwork::Gateway { address: Vip::new(gateway) });
        }
        if net.prefix_len() == net.max_prefix_len() {
            return None;
        }
        let dummy = self.agents.current().map(|config| &config.dummy);
        self.kernel.others().filter(|a| !a.link_local && net.contains(&a.net.addr())).find_map(|a| {
            let name = self.kernel.name_of(a.index)?;
            let elsewhere = Some(name) != dummy && !self.config.shadow_interfaces.contains(name);
            elsewhere.then(|| HiddenNetwork::OwnAddress { address: a.vip(), interface: name.clone() })
        })
    }

    pub(super) fn unconfigured(&self) -> Reason {
        match self.agents.standing() {
            ConfigStatus::Rejected(p) => Reason::ConfigRejected {
                object: p.object.to_string(),
                field: p.field.clone(),
                message: p.message.clone(),
            },
            ConfigStatus::NotSelected | ConfigStatus::Defaults | ConfigStatus::Configured => {
                Reason::NotSelected
            }
        }
    }

    /// Somebody else's address equal to the VIP, where it is not there by design (R4).
    pub(in crate::engine) fn foreign(&self, vip: Vip) -> Option<IfName> {
        self.kernel
            .of_vip(vip)
            .filter(|a| !a.ours)
            .filter_map(|a| self.kernel.name_of(a.index))
            .find(|name| !self.config.shadow_interfaces.contains(*name))
            .cloned()
    }
}
