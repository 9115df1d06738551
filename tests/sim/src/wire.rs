//! The segments between the machines: which frames get through, whose kernel answers a
//! question, and who hears what is said.
//!
//! ```text
//!   question ──▶ every station it reaches ──▶ kernels that hold the address ──▶ answer
//!   claim ─────▶ every station it reaches ──▶ listening sockets, clients' caches
//! ```
//!
//! Kernels answer, not daemons: also where the daemon is dead, stopped or hangs; not where
//! the machine is dark or stands still.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use purelb_core::facts::DefaultRoute;
use purelb_core::segment::{HardwareAddr, QuestionKind, SegmentQuestion, SightingKind};
use purelb_core::{Family, IfIndex, Vip};

use crate::kernel::ETH0;
use crate::queue::{MS, SimEvent, T, US};
use crate::rng::Rng;
use crate::setup::MOST_NODES;
use crate::world::World;

/// Who can be at an end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Station {
    Node(usize),
    Host(usize),
    Client(usize),
}

impl Station {
    /// Its bit in [`Segment::side`].
    fn bit(self) -> u64 {
        1 << match self {
            Self::Node(n) => n,
            Self::Host(n) => MOST_NODES + n,
            Self::Client(n) => 2 * MOST_NODES + n,
        }
    }
}

/// A machine on a segment that runs nothing of ours: a gateway, a printer, a stranger.
#[derive(Clone, Debug)]
pub struct Host {
    pub mac: HardwareAddr,
    pub addresses: BTreeSet<Vip>,
    /// Its firewall lets echo requests through.
    pub echo: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub hosts: Vec<Host>,
    /// The first of them is the default gateway.
    pub gateway: bool,
    /// Per mille of frames that get lost.
    pub loss: u64,
    /// What the first node sends does not reach the second.
    pub one_way: Option<(usize, usize)>,
    /// Stations with a bit here hear each other, and so do those without.
    pub side: Option<u64>,
    /// Nodes whose switch port is dead, with the carrier up.
    pub dead: BTreeSet<usize>,
    /// When any of this last changed.
    pub changed: T,
}

impl Segment {
    /// What stands of it lets a frame through, loss aside.
    pub fn carries(&self, from: Station, to: Station) -> bool {
        let dead = |s| matches!(s, Station::Node(n) if self.dead.contains(&n));
        let apart = self.side.is_some_and(|side| (side & from.bit() == 0) != (side & to.bit() == 0));
        let mute = matches!((from, to), (Station::Node(a), Station::Node(b)) if self.one_way == Some((a, b)));
        !dead(from) && !dead(to) && !apart && !mute
    }

    pub fn well(&self) -> bool {
        self.loss == 0 && self.one_way.is_none() && self.side.is_none() && self.dead.is_empty()
    }
}

pub fn mac_of(node: usize, index: IfIndex) -> HardwareAddr {
    [2, 0, 0, 0, node as u8, index.0 as u8]
}

/// Some segments have a gateway, some other hosts, some nobody else.
pub fn some_segments(rng: &mut Rng, count: usize) -> Vec<Segment> {
    (0..count)
        .map(|s| {
            let gateway = rng.percent(65);
            let others = rng.below(2) as usize;
            let hosts = (0..usize::from(gateway) + others).map(|h| {
                let ip = if gateway && h == 0 { 1 } else { 200 + h as u8 };
                let v4 = Ipv4Addr::new(10, s as u8, 0, ip);
                let v6 = Ipv6Addr::new(0xfd00, s as u16, 0, 0, 0, 0, 0, 0xf00 + u16::from(ip));
                let addresses = [Vip::new(v4.into()), Vip::new(v6.into())].into();
                Host { mac: [2, 0, 0, 1, s as u8, h as u8], addresses, echo: rng.percent(80) }
            });
            Segment { hosts: hosts.collect(), gateway, ..Segment::default() }
        })
        .collect()
}

impl World {
    /// The node's interface that is plugged into the segment and works.
    pub fn port_on(&self, node: usize, segment: usize) -> Option<IfIndex> {
        let n = &self.nodes[node];
        let (index, _) = n.ports.iter().find(|(_, s)| *s == segment)?;
        (n.powered && n.frozen.is_none() && n.kernel.usable(*index)).then_some(*index)
    }

    pub fn default_routes_of(&self, node: usize) -> Vec<DefaultRoute> {
        let segment = self.nodes[node].ports.iter().find(|(i, _)| *i == ETH0).map_or(0, |(_, s)| *s);
        let gateway = self.segments.get(segment).filter(|s| s.gateway).and_then(|s| s.hosts.first());
        let via = |family: Family| {
            let addresses = gateway.map(|g| g.addresses.iter().map(|a| a.ip()));
            addresses?
                .find(|ip| matches!((family, ip), (Family::V4, IpAddr::V4(_)) | (Family::V6, IpAddr::V6(_))))
        };
        [Family::V4, Family::V6]
            .map(|family| DefaultRoute { family, metric: 100, index: ETH0, gateway: via(family) })
            .into()
    }

    /// Both ways, loss aside: each is there and hears the other.
    pub fn connected(&self, segment: usize, a: usize, b: usize) -> bool {
        let (from, to) = (Station::Node(a), Station::Node(b));
        let wire = &self.segments[segment];
        self.port_on(a, segment).is_some()
            && self.port_on(b, segment).is_some()
            && wire.carries(from, to)
            && wire.carries(to, from)
    }

    /// At least one of the two hears the other.
    pub fn touches(&self, segment: usize, a: usize, b: usize) -> bool {
        let (from, to) = (Station::Node(a), Station::Node(b));
        let wire = &self.segments[segment];
        wire.carries(from, to) || wire.carries(to, from)
    }

    /// One frame: does it get there?
    pub fn passes(&mut self, segment: usize, from: Station, to: Station) -> bool {
        let wire = &self.segments[segment];
        wire.carries(from, to) && !(wire.loss > 0 && self.wire_rng.permille(wire.loss))
    }

    /// From one machine to another, mostly as fast as a wire, now and then behind others.
    pub fn wire_delay(&mut self) -> T {
        let rare = if self.wire_rng.permille(5) { 15 * MS } else { MS / 2 };
        self.wire_rng.range(30 * US, rare)
    }

    /// Whoever has the address there, of those that can be reached at all.
    fn answers(
        &self,
        segment: usize,
        station: Station,
        target: Vip,
        kind: QuestionKind,
    ) -> Option<HardwareAddr> {
        match station {
            Station::Node(node) => {
                let index = self.port_on(node, segment)?;
                let n = &self.nodes[node];
                if kind == QuestionKind::Echo && n.echo_filtered {
                    return None;
                }
                let has = n.kernel.addrs.iter().any(|a| {
                    a.facts.index == index
                        && a.facts.vip() == target
                        && !a.facts.tentative
                        && !a.facts.dad_failed
                });
                has.then(|| mac_of(node, index))
            }
            Station::Host(h) => {
                let host = &self.segments[segment].hosts[h];
                let lets = kind == QuestionKind::Resolve || host.echo;
                (lets && host.addresses.contains(&target)).then_some(host.mac)
            }
            Station::Client(_) => None,
        }
    }

    fn mac_on(&self, segment: usize, station: Station) -> Option<HardwareAddr> {
        match station {
            Station::Node(node) => self.port_on(node, segment).map(|index| mac_of(node, index)),
            Station::Host(h) => self.segments[segment].hosts.get(h).map(|h| h.mac),
            Station::Client(_) => None,
        }
    }

    fn stations(&self, segment: usize) -> Vec<Station> {
        let nodes = (0..self.nodes.len()).filter(|n| self.port_on(*n, segment).is_some()).map(Station::Node);
        nodes.chain((0..self.segments[segment].hosts.len()).map(Station::Host)).collect()
    }

    /// A question is on the wire: whoever it reaches and has the address answers.
    pub fn question_sent(&mut self, node: usize, segment: usize, question: &SegmentQuestion) {
        let from = Station::Node(node);
        let Some(mac) = self.port_on(node, segment).map(|index| mac_of(node, index)) else {
            return;
        };
        for to in self.stations(segment) {
            let meant = question.to.is_none_or(|mac| self.mac_on(segment, to) == Some(mac));
            if to == from || !meant || !self.passes(segment, from, to) {
                continue;
            }
            if question.kind == QuestionKind::Resolve && question.to.is_none() {
                // Who asks everybody is heard by everybody.
                let (address, kind) = match question.from {
                    Some(ip) => (Vip::new(ip), SightingKind::Asker),
                    None => (question.target, SightingKind::Probe),
                };
                self.frame_on_its_way(segment, to, address, mac, kind);
            }
            let Some(answer) = self.answers(segment, to, question.target, question.kind) else {
                continue;
            };
            let kind = match question.kind {
                QuestionKind::Echo => SightingKind::EchoReply,
                QuestionKind::Resolve => SightingKind::ResolveReply,
            };
            if self.passes(segment, to, from) {
                self.frame_on_its_way(segment, from, question.target, answer, kind);
            }
        }
    }

    /// Said to everybody on the segment: listeners hear it, and clients believe it.
    pub fn claim_sent(&mut self, segment: usize, from: Station, vip: Vip, kind: SightingKind) {
        let Some(mac) = self.mac_on(segment, from) else {
            return;
        };
        for to in self.stations(segment) {
            if to != from && self.passes(segment, from, to) {
                self.frame_on_its_way(segment, to, vip, mac, kind);
            }
        }
        let Station::Node(node) = from else {
            return;
        };
        if kind != SightingKind::Announcement {
            return;
        }
        for client in 0..self.caches[segment].len() {
            if self.passes(segment, from, Station::Client(client)) {
                self.caches[segment][client].insert(vip, node);
            }
        }
    }

    fn frame_on_its_way(
        &mut self,
        segment: usize,
        to: Station,
        address: Vip,
        mac: HardwareAddr,
        kind: SightingKind,
    ) {
        let Station::Node(node) = to else {
            return;
        };
        let Some(index) = self.port_on(node, segment) else {
            return;
        };
        let listens = self.nodes[node].process.as_ref().is_some_and(|p| p.listening.contains(&index));
        if listens {
            let at = self.now + self.wire_delay();
            self.queue.push(at, SimEvent::Frame { node, index, address, mac, kind });
        }
    }

    /// What stands of a segment changes: whoever hears whom has to be told anew.
    pub fn rewire(&mut self, segment: usize, change: impl FnOnce(&mut Segment)) {
        let now = self.now;
        let wire = &mut self.segments[segment];
        change(wire);
        wire.changed = now;
        self.log(|w| {
            let wire = &w.segments[segment];
            format!(
                "segment {segment}: loss {} one way {:?} side {:?} dead {:?}",
                wire.loss, wire.one_way, wire.side, wire.dead
            )
        });
        for node in 0..self.nodes.len() {
            self.all_holdings_changed(node);
        }
    }

    /// A client's neighbour cache asks the one it believes in, and everybody if that one
    /// does not answer: what happens within a minute on any kernel.
    pub fn clients_look_again(&mut self, segment: usize) {
        for client in 0..self.caches[segment].len() {
            let known: BTreeMap<Vip, usize> = self.caches[segment][client].clone();
            for (vip, believed) in known {
                let Some(v) = self.truth.index.get(&vip).copied() else {
                    continue;
                };
                let here = Station::Client(client);
                let has = |w: &Self, n: usize| {
                    let wire = &w.segments[segment];
                    w.truth.vips[v].holds[n].is_some_and(|h| h.usable && h.reachable)
                        && wire.carries(here, Station::Node(n))
                        && wire.carries(Station::Node(n), here)
                };
                if has(self, believed) {
                    continue;
                }
                let others: Vec<usize> = (0..self.nodes.len()).filter(|n| has(self, *n)).collect();
                if let Some(other) = self.wire_rng.pick(&others).copied() {
                    self.caches[segment][client].insert(vip, other);
                }
            }
        }
    }
}
