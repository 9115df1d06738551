//! One machine: its clocks, its kernel, and the process that may run on it.

use std::collections::{BTreeMap, BTreeSet};

use purelb_core::io::{Input, Op, Shutdown, Source};
use purelb_core::{Engine, IfIndex, InstanceId, NodeName, Vip};

use crate::kernel::Kernel;
use crate::queue::{Channel, T};

#[derive(Debug)]
pub struct Node {
    pub name: NodeName,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// What its monotonic clock said when the simulation began: no two alike.
    pub boot: u64,
    /// Its wall clock's error in microseconds.
    pub wall: i64,
    pub last_renewal: String,
    /// Interfaces and the segments they are plugged into.
    pub ports: Vec<(IfIndex, usize)>,
    pub kernel: Kernel,
    /// Part of the cluster at all: spares are not until they join.
    pub joined: bool,
    pub powered: bool,
    pub life: u32,
    pub process: Option<Process>,
    /// The drain mark on its disk.
    pub drain: Option<String>,
    /// Cut off from the API.
    pub cut: bool,
    /// The kernel refuses these; `None` inside = everything.
    pub refuses: Option<Option<Vip>>,
    /// Netlink messages are being lost.
    pub overrun: bool,
    /// Announcements fail.
    pub mute: bool,
    /// When the API last applied a write of its Lease by its own process.
    pub last_applied: Option<T>,
    /// When it last came back after having been fenced.
    pub back_at: T,
    pub run_out_planned: bool,
    pub disturbed_until: T,
    pub trouble_since: T,
    /// Its picture of its own kernel may be old until then.
    pub blind_until: T,
    /// Restarted on purpose and in time: nothing of it may move until then.
    pub keeps_until: T,
    pub legacy: bool,
    pub flap: Option<Flap>,
}

/// A link that goes up and down faster than it may be trusted (R8).
#[derive(Clone, Copy, Debug)]
pub struct Flap {
    pub index: IfIndex,
    pub from: T,
    pub life: u32,
}

#[derive(Debug)]
pub struct Process {
    pub engine: Box<Engine>,
    pub instance: InstanceId,
    pub paused: bool,
    /// What arrived while it was stopped.
    pub inbox: Vec<(Channel, Input)>,
    pub held_ops: Vec<(T, u64, Op)>,
    pub listed: BTreeSet<Source>,
    watches: [Watch; 6],
    pub monitor: T,
    pub dumping: bool,
    pub dumped: bool,
    answers: T,
    commands: T,
    pub kernel_queue: T,
    pub wake_at: Option<T>,
    pub stopping: Option<Shutdown>,
    pub second: T,
    pub steps: u32,
    pub idle_wakes: u32,
    pub started: T,
}

#[derive(Debug, Default)]
pub struct Watch {
    pub generation: u32,
    pub connected: bool,
    /// Open and silent.
    pub stalled: bool,
    pub backlog: Vec<Input>,
    pub fifo: T,
}

pub const WATCHED: [Source; 6] = [
    Source::Services,
    Source::ServiceGroups,
    Source::NodeAgents,
    Source::EndpointSlices,
    Source::Nodes,
    Source::Leases,
];

impl Process {
    pub fn new(engine: Engine, instance: InstanceId, started: T) -> Self {
        Self {
            engine: Box::new(engine),
            instance,
            paused: false,
            inbox: Vec::new(),
            held_ops: Vec::new(),
            listed: BTreeSet::new(),
            watches: Default::default(),
            monitor: 0,
            dumping: false,
            dumped: false,
            answers: 0,
            commands: 0,
            kernel_queue: 0,
            wake_at: None,
            stopping: None,
            second: 0,
            steps: 0,
            idle_wakes: 0,
            started,
        }
    }

    pub fn watch(&mut self, source: Source) -> &mut Watch {
        let i = WATCHED.iter().position(|s| *s == source).expect("the kernel is no watch");
        &mut self.watches[i]
    }

    /// The channel's earliest next delivery, and what voids deliveries on it.
    pub fn fifo(&mut self, channel: Channel) -> (&mut T, u32) {
        match channel {
            Channel::Watch(source) => {
                let watch = self.watch(source);
                (&mut watch.fifo, watch.generation)
            }
            Channel::Monitor => (&mut self.monitor, 0),
            Channel::Answers => (&mut self.answers, 0),
            Channel::Commands => (&mut self.commands, 0),
        }
    }

    pub fn generation(&mut self, channel: Channel) -> u32 {
        self.fifo(channel).1
    }
}

impl Node {
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    pub fn segment_of(&self, index: IfIndex) -> Option<usize> {
        self.kernel.links.get(&index).and_then(|l| l.segment)
    }
}
