//! What will happen, ordered by true time and then by the order it was planned.
//!
//! True time is the simulator's alone: no engine ever sees it, each gets its own
//! node's clock.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use purelb_core::lease_write::{LeaseReply, LeaseRequest};
use purelb_core::messages::{Input, KernelChange, LeaseWrite, Source};
use purelb_core::segment::{HardwareAddr, SegmentQuestion, SightingKind};
use purelb_core::{IfIndex, IfName, ObjectKey, Vip};

use crate::actions::Action;

/// Nanoseconds of true time since the simulation began.
pub type T = u64;

pub const US: T = 1_000;
pub const MS: T = 1_000_000;
pub const SEC: T = 1_000_000_000;

/// Inputs of one channel reach the process in order; between channels there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    Watch(Source),
    Monitor,
    Answers,
    Commands,
    /// What becomes of questions, and reports of what is heard.
    Segment,
}

#[derive(Debug)]
pub enum SimEvent {
    /// Something reaches a process. `life` and `generation` void what was meant
    /// for an earlier process or an earlier watch.
    Input {
        node: usize,
        life: u32,
        generation: u32,
        channel: Channel,
        input: Box<Input>,
    },
    DeadlineQueue {
        node: usize,
        life: u32,
    },
    /// The process takes in what has arrived.
    Turn {
        node: usize,
        life: u32,
    },
    /// Is the node empty, if its fence has fallen?
    FenceCheck {
        node: usize,
    },
    /// A look at which rules are in force, and at what is missing for too long.
    Sample,
    LeaseArrives {
        node: usize,
        life: u32,
        by: T,
        request: LeaseRequest,
        write: Box<LeaseWrite>,
    },
    LeaseReply {
        node: usize,
        life: u32,
        reply: Box<LeaseReply>,
    },
    DeleteArrives {
        node: usize,
        life: u32,
    },
    SlotArrives {
        node: usize,
        life: u32,
        service: ObjectKey,
        vip: Vip,
        interface: IfName,
    },
    ListArrives {
        node: usize,
        life: u32,
        source: Source,
        generation: u32,
    },
    KernelOp {
        node: usize,
        life: u32,
        issued: T,
        id: u64,
        op: Box<KernelChange>,
    },
    Dump {
        node: usize,
        life: u32,
    },
    Expire {
        node: usize,
        token: u64,
    },
    DadDone {
        node: usize,
        token: u64,
    },
    /// The node's last renewal, as the API applied it, has run out: see `check`.
    LeaseRunsOut {
        node: usize,
    },
    /// Two holders since then: is one of them gone by now?
    PairCheck {
        vip: usize,
        a: usize,
        b: usize,
        since: T,
    },
    /// Gone since then: has somebody taken what it had?
    TakeoverCheck {
        vip: usize,
        owner: usize,
        since: T,
    },
    PutBackCheck {
        node: usize,
        vip: usize,
        removed: T,
    },
    LegacyTick {
        node: usize,
    },
    /// A question leaves its machine.
    Question {
        node: usize,
        life: u32,
        question: Box<SegmentQuestion>,
    },
    /// A frame reaches a machine whose process listens.
    Frame {
        node: usize,
        index: IfIndex,
        address: Vip,
        mac: HardwareAddr,
        kind: SightingKind,
    },
    /// The process reads its sockets.
    Read {
        node: usize,
        life: u32,
    },
    Act(Box<Action>),
    NextPhase,
}

#[derive(Debug)]
struct Item {
    at: T,
    order: u64,
    ev: SimEvent,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    /// Reversed: the heap's greatest is the one that happens first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Item>,
    order: u64,
}

impl Queue {
    pub fn push(&mut self, at: T, ev: SimEvent) {
        self.order += 1;
        self.heap.push(Item { at, order: self.order, ev });
    }

    pub fn pop(&mut self) -> Option<(T, SimEvent)> {
        self.heap.pop().map(|i| (i.at, i.ev))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_the_order_of_planning() {
        let mut queue = Queue::default();
        for (at, node) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            queue.push(at, SimEvent::LegacyTick { node });
        }
        let mut seen = Vec::new();
        while let Some((at, SimEvent::LegacyTick { node })) = queue.pop() {
            seen.push((at, node));
        }
        assert_eq!(seen, [(3, 1), (3, 3), (5, 0), (5, 2)]);
    }
}
