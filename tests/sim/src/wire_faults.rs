//! What goes wrong on a segment, and how it ends.

use purelb_core::Vip;

use crate::actions::ActionKind;
use crate::queue::{SEC, T};
use crate::setup::{MOST_NODES, Profile};
use crate::wire::{Segment, Station};
use crate::world::World;

#[derive(Clone, Debug)]
pub enum WireFault {
    /// Per mille of all frames get lost for a while.
    Lossy(usize, u64, T),
    /// What the first node sends does not reach the second.
    OneWay(usize, (usize, usize), T),
    /// Stations with a bit, and those without.
    Split(usize, u64, T),
    /// Loss, direction and sides as they should be.
    Well(usize),
    /// The node and the segment.
    PortDead(usize, usize, T),
    PortBack(usize, usize),
    /// A machine that is nobody's takes a Service's address.
    Squat(usize, usize, Vip, T),
    SquatEnd(usize, usize, Vip),
    /// A process's sockets lose frames.
    Drops(usize, T),
    DropsEnd(usize),
    /// Clients find out that who they believed in is gone.
    ClientsLook(usize),
}

impl World {
    pub fn some_wire_fault(&mut self, word: &str) -> Option<WireFault> {
        let segment = self.rng.below(self.segments.len() as u64) as usize;
        let here: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.port_on(*n, segment).is_some()).collect();
        let wait = match self.rng.below(3) {
            0 => self.rng.range(SEC / 2, 5 * SEC),
            1 => self.rng.range(5 * SEC, 20 * SEC),
            _ => self.rng.range(20 * SEC, 60 * SEC),
        };
        Some(match word {
            "lossy" => WireFault::Lossy(segment, self.rng.range(10, 300), wait),
            "one-way" => {
                let from = self.rng.pick(&here).copied()?;
                let to = self.rng.pick(&here).copied().filter(|to| *to != from)?;
                WireFault::OneWay(segment, (from, to), wait)
            }
            "split" => {
                let side = self.rng.draw() & ((1 << (3 * MOST_NODES)) - 1);
                WireFault::Split(segment, side, wait)
            }
            "port-dead" => {
                let node = self.rng.pick(&here).copied()?;
                WireFault::PortDead(node, segment, wait)
            }
            "squat" => {
                let host = self.rng.below(self.segments[segment].hosts.len().max(1) as u64) as usize;
                self.segments[segment].hosts.get(host)?;
                let here: Vec<Vip> =
                    self.truth.vips.iter().filter(|v| v.segment == Some(segment)).map(|v| v.vip).collect();
                WireFault::Squat(segment, host, *self.rng.pick(&here)?, wait)
            }
            _ => {
                let runs: Vec<usize> = (0..self.nodes.len()).filter(|n| self.nodes[*n].runs()).collect();
                WireFault::Drops(*self.rng.pick(&runs)?, wait)
            }
        })
    }

    pub fn wire_fault(&mut self, fault: WireFault) {
        let now = self.now;
        match fault {
            WireFault::Lossy(segment, loss, wait) => {
                self.disturb_segment(segment, wait);
                self.rewire(segment, |s| s.loss = loss);
                self.plan(wait, ActionKind::Wire(WireFault::Well(segment)));
            }
            WireFault::OneWay(segment, pair, wait) => {
                self.disturb_segment(segment, wait);
                self.rewire(segment, |s| s.one_way = Some(pair));
                self.plan(wait, ActionKind::Wire(WireFault::Well(segment)));
            }
            WireFault::Split(segment, side, wait) => {
                self.disturb_segment(segment, wait);
                self.rewire(segment, |s| s.side = Some(side));
                self.plan(wait, ActionKind::Wire(WireFault::Well(segment)));
            }
            WireFault::Well(segment) => {
                let mends = |s: &mut Segment| (s.loss, s.one_way, s.side) = (0, None, None);
                self.rewire(segment, mends);
                self.plan_clients_look(segment);
            }
            WireFault::PortDead(node, segment, wait) => {
                self.expect_takeover(node);
                self.disturb(node, now + wait + 3 * SEC);
                self.rewire(segment, |s| {
                    s.dead.insert(node);
                });
                self.plan(wait, ActionKind::Wire(WireFault::PortBack(segment, node)));
            }
            WireFault::PortBack(segment, node) => {
                self.rewire(segment, |s| {
                    s.dead.remove(&node);
                });
                self.plan_clients_look(segment);
            }
            WireFault::Squat(segment, host, vip, wait) => {
                self.disturb_segment(segment, wait);
                self.segments[segment].hosts[host].addresses.insert(vip);
                self.truth.squatted.insert(vip);
                if self.rng.percent(60) {
                    let kind = purelb_core::segment::SightingKind::Announcement;
                    self.claim_sent(segment, Station::Host(host), vip, kind);
                }
                self.plan(wait, ActionKind::Wire(WireFault::SquatEnd(segment, host, vip)));
            }
            WireFault::SquatEnd(segment, host, vip) => {
                self.segments[segment].hosts[host].addresses.remove(&vip);
                self.truth.squatted.remove(&vip);
            }
            WireFault::Drops(node, wait) => {
                self.disturb(node, now + wait);
                self.nodes[node].drops = true;
                self.plan(wait, ActionKind::Wire(WireFault::DropsEnd(node)));
            }
            WireFault::DropsEnd(node) => self.nodes[node].drops = false,
            WireFault::ClientsLook(segment) => self.clients_look_again(segment),
        }
    }

    fn disturb_segment(&mut self, segment: usize, wait: T) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].ports.iter().any(|(_, s)| *s == segment) {
                self.disturb(node, self.now + wait);
            }
        }
    }

    /// A neighbour cache that nobody answers for asks again within half a minute.
    fn plan_clients_look(&mut self, segment: usize) {
        let after = self.rng.range(5 * SEC, 30 * SEC);
        self.plan(after, ActionKind::Wire(WireFault::ClientsLook(segment)));
    }

    pub fn heal_segments(&mut self) {
        for segment in 0..self.segments.len() {
            if !self.segments[segment].well() {
                self.rewire(segment, |s| {
                    (s.loss, s.one_way, s.side) = (0, None, None);
                    s.dead.clear();
                });
            }
            for vip in std::mem::take(&mut self.truth.squatted) {
                self.segments.iter_mut().flat_map(|s| &mut s.hosts).for_each(|h| {
                    h.addresses.remove(&vip);
                });
            }
            if matches!(self.setup.profile, Profile::Segment | Profile::Outage | Profile::Everything) {
                self.plan_clients_look(segment);
            }
        }
    }
}
