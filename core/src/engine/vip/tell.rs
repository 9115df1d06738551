//! What is said about an address: its reason, its events, its slot on the Service.

use crate::facts::AddrFacts;
use crate::handoff::Stance;
use crate::ids::{IfName, ObjectKey, Vip};
use crate::io::{Effect, Event, EventKind, EventObject};
use crate::placement::Demand;
use crate::reason::{Missing, Reason};
use crate::time::Mono;

use super::{Engine, SLOT_PATIENCE, VipState, Wish};

impl Engine {
    #[allow(clippy::too_many_arguments, reason = "one look at one address, split from `decide` for reading")]
    pub(super) fn explain(
        &self,
        now: Mono,
        state: &VipState,
        stance: Stance,
        wish: Wish,
        ours: &[AddrFacts],
        remote: bool,
    ) -> Reason {
        match stance {
            Stance::Absent => return wish.reason,
            Stance::Keep => {
                return match state.handoff.giving_to() {
                    Some(to) => Reason::HandingOver { to: to.clone() },
                    None => wish.reason,
                };
            }
            Stance::Have => {}
        }
        if let Some(retry_at) = state.duplicate_until.filter(|at| now < *at)
            && let Some(place) = wish.place
        {
            return Reason::Duplicate { interface: place.interface, retry_at };
        }
        if let Some(failure) = &state.failure {
            return Reason::ApplyFailed {
                error: failure.error.clone(),
                attempt: failure.attempt,
                retry_at: failure.retry_at,
            };
        }
        let Some(place) = wish.place else {
            return wish.reason;
        };
        let pending = |missing| Reason::Pending { missing };
        match ours.iter().find(|a| (a.index, a.net) == (place.index, place.net)) {
            None => pending(Missing::Kernel),
            Some(a) if a.tentative => pending(Missing::DuplicateDetection),
            Some(_) if !remote && !state.announced => pending(Missing::Announcement),
            Some(_) => Reason::Announcing { interface: place.interface },
        }
    }

    /// Events and slots follow the fact, once per change.
    pub(super) fn tell(
        &mut self,
        now: Mono,
        vip: Vip,
        demand: &Demand,
        state: &mut VipState,
        reason: &Reason,
        remote: bool,
    ) {
        let me = self.config.node.clone();
        let before = state.reason.as_ref();
        let is_new = before.is_none_or(|b| b.name() != reason.name());
        let mut event = |kind: EventKind, message: String| {
            for service in &demand.services {
                let object = EventObject::Service(service.clone());
                self.out.push(Effect::Event(Event { object, kind, message: message.clone() }));
            }
        };
        match reason {
            Reason::Announcing { interface } => {
                if before != Some(reason) {
                    let kind =
                        if remote { EventKind::AnnouncingNonLocal } else { EventKind::AnnouncingLocal };
                    event(kind, format!("Node {me} announcing {vip} on interface {interface}"));
                }
                if !remote {
                    self.claim_slots(now, vip, demand, state, interface);
                }
            }
            Reason::ApplyFailed { error, .. } if is_new => {
                event(EventKind::AnnouncementFailed, format!("Node {me} cannot announce {vip}: {error}"));
            }
            Reason::ForeignAddress { .. } | Reason::Duplicate { .. } if is_new => {
                event(EventKind::AnnouncementFailed, format!("Node {me} cannot announce {vip}: {reason}"));
            }
            Reason::NoEligibleNode if is_new && self.speaks_for(vip) => {
                let message = format!("No node can announce {vip}: {reason}");
                for service in &demand.services {
                    let object = EventObject::Service(service.clone());
                    let kind = EventKind::NoEligibleNodes;
                    self.out.push(Effect::Event(Event { object, kind, message: message.clone() }));
                }
            }
            _ => {}
        }
    }

    /// What concerns all nodes alike is said by one of them.
    pub(super) fn speaks_for(&self, vip: Vip) -> bool {
        let key = vip.to_string();
        let others = self.candidacies.keys();
        let speaker = others.min_by_key(|n| crate::election::score(n.as_str(), &key));
        speaker.is_none_or(|n| *n == self.config.node)
    }

    pub(super) fn claim_slots(
        &mut self,
        now: Mono,
        vip: Vip,
        demand: &Demand,
        state: &mut VipState,
        interface: &IfName,
    ) {
        if state.slot_written.is_some_and(|at| now < at + SLOT_PATIENCE) {
            return;
        }
        let missing: Vec<ObjectKey> = demand
            .services
            .iter()
            .filter(|key| {
                let slot = self.demands.service(key).and_then(|s| s.slots.get(&vip));
                slot.is_none_or(|s| s.node != self.config.node || s.interface != *interface)
            })
            .cloned()
            .collect();
        for service in missing {
            let stolen = self
                .demands
                .service(&service)
                .and_then(|s| s.slots.get(&vip))
                .is_some_and(|s| s.node != self.config.node);
            self.counters.slot_steals += u64::from(stolen);
            state.slot_written = Some(now);
            self.out.push(Effect::WriteSlot { service, vip, interface: interface.clone() });
        }
    }
}
