//! A process's sockets on its segments: what it asks leaves by them, what it hears waits
//! in them until they are read.

use std::collections::{BTreeMap, BTreeSet};

use purelb_core::messages::Input;
use purelb_core::segment::{HardwareAddr, SegmentQuestion, SegmentReport, SegmentSighting, SightingKind};
use purelb_core::{IfIndex, IfName, Vip};

use crate::node::{AskedQuestion, Process};
use crate::queue::{Channel, MS, SEC, SimEvent, T, US};
use crate::setup::Batches;
use crate::world::World;

/// Frames that fit into a socket nobody reads.
const SOCKET: usize = 300;

/// Whoever asked this lately may be waiting for the answer.
const WAITS: T = 3 * SEC;

impl World {
    /// Sockets are opened and closed; each new one is answered for.
    pub fn listen(&mut self, node: usize, interfaces: &BTreeMap<IfIndex, IfName>) {
        let deafened = self.nodes[node].no_sockets;
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        process.listening.retain(|index| interfaces.contains_key(index));
        let fresh: Vec<IfIndex> =
            interfaces.keys().filter(|index| !process.listening.contains(index)).copied().collect();
        for index in fresh {
            let result = if deafened {
                Err("Operation not permitted (os error 1)".to_owned())
            } else if !self.nodes[node].kernel.links.contains_key(&index) {
                Err("No such device (os error 19)".to_owned())
            } else {
                Ok(())
            };
            if let Some(process) = self.nodes[node].process.as_mut().filter(|_| result.is_ok()) {
                process.listening.insert(index);
            }
            let delay = self.wire_rng.range(50 * US, 5 * MS);
            self.deliver(node, Channel::Segment, delay, Input::Listening { index, result });
        }
    }

    /// The question is handed to the kernel, which sends it after what it has to do.
    pub fn ask(&mut self, node: usize, question: SegmentQuestion) {
        let life = self.nodes[node].life;
        let at = self.now + self.wire_rng.range(10 * US, 300 * US);
        self.stats.questions += 1;
        self.queue.push(at, SimEvent::Question { node, life, question: Box::new(question) });
    }

    pub fn question_leaves(&mut self, node: usize, life: u32, question: &SegmentQuestion) {
        if self.nodes[node].life != life || self.nodes[node].frozen.is_some() {
            return;
        }
        let (now, mono) = (self.now, self.mono(node));
        let segment = self.nodes[node].segment_of(question.index);
        let usable = self.nodes[node].kernel.usable(question.index);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let result = if !process.listening.contains(&question.index) {
            Err("nobody listens there".to_owned())
        } else if !usable {
            Err("Network is down (os error 100)".to_owned())
        } else {
            process.asked(now, question);
            Ok(mono)
        };
        if result.is_ok()
            && let Some(segment) = segment
        {
            self.question_sent(node, segment, question);
        }
        let delay = self.wire_rng.range(20 * US, 2 * MS);
        self.deliver(node, Channel::Segment, delay, Input::Asked { id: question.id, result });
    }

    /// A frame is in the socket, with the kernel's stamp, unless nobody is there or it is full.
    pub fn frame_arrives(
        &mut self,
        node: usize,
        index: IfIndex,
        address: Vip,
        mac: HardwareAddr,
        kind: SightingKind,
    ) {
        let n = &self.nodes[node];
        if !n.powered || n.frozen.is_some() || !n.kernel.usable(index) {
            return;
        }
        let (now, mono, drops) = (self.now, self.mono(node), n.drops);
        let Some(process) = self.nodes[node].process.as_mut().filter(|p| p.listening.contains(&index)) else {
            return;
        };
        if drops || process.socket.len() >= SOCKET {
            process.overrun.insert(index);
        } else {
            process.socket.push(SegmentSighting { index, address, mac, kind, at: mono });
            process.heard(now, index, address, mac, kind);
        }
        self.plan_read(node);
    }

    /// The task that reads the sockets gets to run.
    pub fn plan_read(&mut self, node: usize) {
        let (now, life) = (self.now, self.nodes[node].life);
        let longest = match self.setup.batches {
            Batches::Single => 50 * US,
            Batches::Moments => MS,
            Batches::Heaps if self.wire_rng.percent(95) => 5 * MS,
            Batches::Heaps => 30 * MS,
        };
        let after = self.wire_rng.below(longest);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        if !process.paused && !process.read_planned {
            process.read_planned = true;
            self.queue.push(now + after, SimEvent::Read { node, life });
        }
    }

    pub fn read(&mut self, node: usize, life: u32) {
        if self.nodes[node].life != life {
            return;
        }
        let mono = self.mono(node);
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        process.read_planned = false;
        if process.paused {
            return;
        }
        let report = process.read_sockets(mono);
        process.mail.push_back((Channel::Segment, Input::Heard(report)));
        self.plan_turn(node);
    }

    /// Before a deadline is acted on, what the sockets hold by then is read, if a question
    /// waits for its answer.
    pub fn tick_inputs(&mut self, node: usize) -> Vec<Input> {
        let (now, mono) = (self.now, self.mono(node));
        let Some(process) = &mut self.nodes[node].process else {
            return Vec::new();
        };
        let mut inputs = Vec::new();
        if process.last_asked.is_some_and(|at| now < at + WAITS) {
            let (heard, rest): (Vec<_>, Vec<_>) =
                process.mail.drain(..).partition(|(_, input)| matches!(input, Input::Heard(_)));
            process.mail = rest.into();
            inputs.extend(heard.into_iter().map(|(_, input)| input));
            inputs.push(Input::Heard(process.read_sockets(mono)));
        }
        inputs.push(Input::Tick);
        inputs
    }
}

impl Process {
    fn read_sockets(&mut self, now: purelb_core::Mono) -> SegmentReport {
        SegmentReport {
            sightings: std::mem::take(&mut self.socket),
            listened_until: now,
            overrun: std::mem::take(&mut self.overrun).into_iter().collect(),
        }
    }

    fn asked(&mut self, now: T, question: &SegmentQuestion) {
        self.last_asked = Some(now);
        self.questions.push_back(AskedQuestion {
            at: now,
            index: question.index,
            target: question.target,
            to: question.to,
        });
        while self.questions.front().is_some_and(|q| q.at + 10 * SEC < now) {
            self.questions.pop_front();
        }
    }

    /// Answers that reached its sockets, whatever its engine is told of them.
    fn heard(&mut self, now: T, index: IfIndex, address: Vip, mac: HardwareAddr, kind: SightingKind) {
        if matches!(kind, SightingKind::EchoReply | SightingKind::ResolveReply) {
            self.answered_by.insert((index, mac), now);
            self.answered_for.insert((index, address), (now, mac));
        }
    }

    pub fn hears_on(&self) -> &BTreeSet<IfIndex> {
        &self.listening
    }
}
