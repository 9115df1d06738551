//! What an address should be here, and why, before it is compared with the kernel.

use crate::agents::Standing;
use crate::facts::LinkFacts;
use crate::handoff::Verdict;
use crate::ids::{IfIndex, IfName, Vip};
use crate::placement::Demand;
use crate::reason::{FenceCause, Missing, Reason};
use crate::time::Mono;

use super::Engine;

/// What is to be done about one address, before it is compared with the kernel.
pub(super) struct Wish {
    pub(super) verdict: Verdict,
    pub(super) reason: Reason,
    pub(super) place: Option<Place>,
}

/// Where an address goes.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) index: IfIndex,
    pub(super) interface: IfName,
    pub(super) net: ipnet::IpNet,
}

impl Wish {
    pub(super) fn forbidden(reason: Reason) -> Self {
        Self { verdict: Verdict::Forbidden, reason, place: None }
    }
}

impl Engine {
    pub(super) fn wish_local(&self, now: Mono, vip: Vip, demand: &Demand, held: bool) -> Wish {
        if self.stopping_now() {
            return Wish::forbidden(Reason::Stopping);
        }
        if !self.in_service(&self.config.node) {
            return Wish::forbidden(Reason::OutOfService);
        }
        if let Some(interface) = self.foreign(vip) {
            return Wish::forbidden(Reason::ForeignAddress { interface });
        }
        let cause = self.fence_cause(now);
        let first = self.lease.written().is_none() && cause == Some(FenceCause::NeverRenewed);
        if let Some(cause) = cause.filter(|_| !first) {
            return Wish::forbidden(Reason::Fenced { cause });
        }
        if first || self.lease.confirmed().is_none() {
            // An earlier run's Lease still stands, so what it left in the kernel is
            // fenced by its lifetime: kept until we know whether it is ours (R3).
            // Without that Lease, or once we lost ours, others may have it already.
            let keep = held && self.lease.seen().is_some() && self.lease.looked().is_none();
            return Wish {
                verdict: Verdict::Nobody { keep },
                reason: Reason::Pending { missing: Missing::Lease },
                place: None,
            };
        }
        let configured = self.agents.current().is_some();
        let place = self.subnets.locate(now, vip).and_then(|(name, subnet)| {
            let link = self.kernel.link_named(name)?;
            Some(Place { index: link.index, interface: name.clone(), net: demand.net(vip, Some(subnet)) })
        });
        match self.election.winner(vip) {
            Some(winner) if *winner == self.config.node => match place {
                Some(place) => Wish {
                    verdict: Verdict::Mine,
                    reason: Reason::Pending { missing: Missing::Kernel },
                    place: Some(place),
                },
                None => Wish::forbidden(Reason::NoLocalSubnet),
            },
            Some(winner) => {
                let reason = if configured {
                    Reason::NotWinner { winner: winner.clone() }
                } else {
                    self.unconfigured()
                };
                // Without the subnet we cannot serve a moment longer, and need not wait.
                // If only the configuration took it from us, we can: until the
                // winner has it.
                if place.is_none() && !self.still_serves(vip) {
                    return Wish::forbidden(reason);
                }
                Wish { verdict: Verdict::Peer(winner.clone()), reason, place }
            }
            None if !configured => Wish::forbidden(self.unconfigured()),
            None => self.wish_unwon(vip, demand, held, place),
        }
    }

    /// The address is here, on a link that works and has its subnet, whatever the
    /// configuration says by now.
    pub(super) fn still_serves(&self, vip: Vip) -> bool {
        let ours = self.kernel.of_vip(vip).filter(|a| a.ours && !a.tentative && !a.dad_failed);
        ours.filter(|a| self.kernel.link(a.index).is_some_and(LinkFacts::usable)).any(|held| {
            let mut addresses = self.kernel.addresses();
            addresses.any(|a| !a.ours && a.index == held.index && a.net.contains(&vip.ip()))
        })
    }

    pub(super) fn wish_unwon(&self, vip: Vip, demand: &Demand, held: bool, place: Option<Place>) -> Wish {
        let forced = self.drain.as_ref().is_some_and(|d| d.force);
        let keep = self.drain.is_some()
            && !forced
            && self.stop.is_none()
            && held
            && place.is_some()
            && demand.permits(&self.config.node);
        let reason = if self.stop.is_some() {
            Reason::Stopping
        } else if keep || (self.drain.is_some() && held) {
            Reason::Draining { held: keep }
        } else if self.election.order_under(vip, &crate::election::Restriction::None).is_empty() {
            Reason::NoEligibleNode
        } else {
            Reason::NoEndpoints
        };
        Wish { verdict: Verdict::Nobody { keep }, reason, place }
    }

    /// Remote addresses live on every node; no election, no handoff, no fence: a
    /// router takes away the path to a node that is gone.
    pub(super) fn wish_remote(&self, vip: Vip, demand: &Demand, held: bool) -> Wish {
        if self.stop.is_some() {
            return Wish::forbidden(Reason::Stopping);
        }
        if !self.in_service(&self.config.node) {
            return Wish::forbidden(Reason::OutOfService);
        }
        let Some(config) = self.agents.current() else {
            return Wish::forbidden(self.unconfigured());
        };
        if let Some(interface) = self.foreign(vip) {
            return Wish::forbidden(Reason::ForeignAddress { interface });
        }
        if !demand.permits(&self.config.node) {
            return Wish::forbidden(Reason::NoEndpoints);
        }
        if let Some(drain) = &self.drain {
            let me = &self.config.node;
            let others = self.candidacies.iter().any(|(n, c)| n != me && c.eligible && demand.permits(n));
            if others || drain.force || !held {
                return Wish::forbidden(Reason::Draining { held: false });
            }
        }
        let place = self.kernel.link_named(&config.dummy).map(|link| Place {
            index: link.index,
            interface: link.name.clone(),
            net: demand.net(vip, None),
        });
        Wish { verdict: Verdict::Mine, reason: Reason::Pending { missing: Missing::DummyInterface }, place }
    }

    pub(super) fn unconfigured(&self) -> Reason {
        match self.agents.standing() {
            Standing::Rejected(p) => Reason::ConfigRejected {
                object: p.object.to_string(),
                field: p.field.clone(),
                message: p.message.clone(),
            },
            Standing::NotSelected | Standing::Configured => Reason::NotSelected,
        }
    }

    /// Somebody else's address equal to the VIP, where it is not there by design (R4).
    pub(super) fn foreign(&self, vip: Vip) -> Option<IfName> {
        self.kernel
            .of_vip(vip)
            .filter(|a| !a.ours)
            .filter_map(|a| self.kernel.name_of(a.index))
            .find(|name| !self.config.shadow_interfaces.contains(*name))
            .cloned()
    }
}
