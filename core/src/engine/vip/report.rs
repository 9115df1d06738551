//! What is said about an address: its reason, its events, its slot on the Service.

use crate::facts::AnnouncingSlot;
use crate::ids::{IfName, ObjectKey, Vip};
use crate::messages::{Effect, Event, EventKind, EventObject};
use crate::placement::Demand;
use crate::reason::Reason;
use crate::time::Mono;

use super::{ENDPOINT_PATIENCE, Engine, SLOT_PATIENCE, VipFindings, VipState};

impl Engine {
    /// Events and slots follow the fact, once per change.
    pub(super) fn report_change(
        &mut self,
        found: &VipFindings,
        demand: &Demand,
        state: &mut VipState,
        reason: &Reason,
    ) {
        let (now, vip, remote) = (found.now, found.vip, found.is_remote());
        let me = &self.config.node;
        let before = state.reason.as_ref();
        let is_new = before.is_none_or(|b| b.name() != reason.name());
        match reason {
            Reason::Announcing { interface } => {
                let message = || format!("Node {me} announcing {vip} on interface {interface}");
                if before != Some(reason) && remote {
                    // All nodes do: one of them says so, and not what it found there.
                    if state.put_here && self.speaks {
                        let message = message();
                        self.say(&demand.services, EventKind::AnnouncingNonLocal, &message);
                    }
                } else if before != Some(reason) {
                    // The slot is what the Service was last told: as long as it says the same,
                    // nothing changed, however often the daemon was started meanwhile.
                    let news: Vec<ObjectKey> = demand
                        .services
                        .iter()
                        .filter(|s| !self.has_slot(s, vip, interface))
                        .cloned()
                        .collect();
                    let message = message();
                    self.say(&news, EventKind::AnnouncingLocal, &message);
                }
                if !remote {
                    self.claim_slots(now, vip, demand, state, interface);
                }
            }
            Reason::ApplyFailed { error, .. } if is_new => {
                let message = format!("Node {me} cannot announce {vip}: {error}");
                self.say(&demand.services, EventKind::AnnouncementFailed, &message);
            }
            Reason::ForeignAddress { .. }
            | Reason::Duplicate { .. }
            | Reason::Declined { .. }
            | Reason::HidesOwnNetwork { .. }
                if is_new =>
            {
                let message = format!("Node {me} cannot announce {vip}: {reason}");
                self.say(&demand.services, EventKind::AnnouncementFailed, &message);
            }
            _ => {}
        }
    }

    fn say<'a>(&mut self, services: impl IntoIterator<Item = &'a ObjectKey>, kind: EventKind, message: &str) {
        for service in services {
            let object = EventObject::Service(service.clone());
            self.out.push(Effect::Event(Event { object, kind, message: message.to_owned() }));
        }
    }

    /// The Service says already that we announce the address there.
    fn has_slot(&self, service: &ObjectKey, vip: Vip, interface: &IfName) -> bool {
        let slot = self.demands.service(service).and_then(|s| s.slots.get(&vip));
        slot.is_some_and(|s| s.node == self.config.node && s.interface == *interface)
    }

    /// That no node can have the address, and why, is said by one of them for all (R11).
    /// Whose turn that is may change before it was said: then the next one says it.
    pub(super) fn report_nobody(
        &mut self,
        found: &VipFindings,
        demand: &Demand,
        state: &mut VipState,
        reason: &Reason,
    ) {
        let (now, vip, remote) = (found.now, found.vip, found.is_remote());
        let nobody = match reason {
            Reason::NoEligibleNode | Reason::AllDeclined | Reason::NotInPool => true,
            // Without a winner: every node that could have it is kept off.
            Reason::Excluded { held: false } => !remote,
            // Every node has an address of a remote pool, but for those without an endpoint.
            Reason::NoEndpoints => !remote || demand.permits_nobody(),
            // As the one to speak: no node that could serve anything is selected.
            Reason::NotSelected | Reason::ConfigRejected { .. } => {
                remote || self.election.winner(vip).is_none()
            }
            _ => false,
        };
        if !nobody {
            (state.nobody_since, state.nobody_told) = (None, None);
            return;
        }
        let since = *state.nobody_since.get_or_insert(now);
        let lasts = *reason != Reason::NoEndpoints || now >= since + ENDPOINT_PATIENCE;
        if !lasts || !self.speaks || state.nobody_told == Some(reason.name()) {
            return;
        }
        state.nobody_told = Some(reason.name());
        let why = match reason {
            Reason::NotSelected => "no LBNodeAgent selects a live node".to_owned(),
            Reason::Excluded { .. } => format!("on {}, {reason}", self.config.node),
            other => other.to_string(),
        };
        let message = format!("No node can announce {vip}: {why}");
        self.say(&demand.services, EventKind::NoEligibleNodes, &message);
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
        let missing: Vec<ObjectKey> =
            demand.services.iter().filter(|key| !self.has_slot(key, vip, interface)).cloned().collect();
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

    /// A slot goes when its address has left the Service, or when no node can have it.
    /// (Where another node has it, that one writes its own.) Its writer sees to that; for
    /// a writer that is gone the one who speaks for all does.
    pub(super) fn clear_slots(&mut self, now: Mono, vip: Vip, state: &mut VipState, held: bool) {
        if state.slot_written.is_some_and(|at| now < at + SLOT_PATIENCE) {
            return;
        }
        let me = &self.config.node;
        let nobody = state.nobody_since.is_some();
        let stale = |(_, slot, has): &(&ObjectKey, &AnnouncingSlot, bool)| {
            let due = !has || (nobody && !held);
            let gone = || self.speaks && !self.candidacies.contains_key(&slot.node);
            due && (slot.node == *me || gone())
        };
        let clear = |(service, slot, _): (&ObjectKey, &AnnouncingSlot, bool)| Effect::ClearSlot {
            service: service.clone(),
            vip,
            node: slot.node.clone(),
        };
        let cleared: Vec<Effect> = self.demands.slots_of(vip).filter(stale).map(clear).collect();
        if !cleared.is_empty() {
            state.slot_written = Some(now);
            self.out.extend(cleared);
        }
    }
}
