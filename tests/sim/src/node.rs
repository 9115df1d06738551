//! One machine: its clocks, its kernel, and the process that may run on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use purelb_core::config::LeaseTimers;
use purelb_core::lease_write::{LeaseMemory, LeaseReply};
use purelb_core::messages::{Effect, Input, KernelChange, LeaseWrite, ShutdownMode, Source};
use purelb_core::segment::{HardwareAddr, SegmentSighting};
use purelb_core::{Engine, IfIndex, InstanceId, Mono, NodeName, Vip};

use crate::kernel::Kernel;
use crate::queue::{Channel, T};
use crate::writer::Writing;

#[derive(Debug)]
pub struct Node {
    pub name: NodeName,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// What its monotonic clock said when the simulation began: no two alike.
    pub boot: u64,
    /// Its wall clock's error in microseconds.
    pub wall: i64,
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
    /// Its writes are served; its lists fail and its watches are silent.
    pub deaf: bool,
    /// Until when one of its watches, not that of the Leases, is silent.
    pub deaf_until: T,
    /// What its processes are started with.
    pub timers: LeaseTimers,
    pub next_timers: Option<LeaseTimers>,
    /// The machine stands still.
    pub frozen: Option<Frozen>,
    /// When it last went on, and whether its clock had stood still as well.
    pub thawed: Option<(T, bool)>,
    /// When the last renewal was sent that its running process knows to have
    /// succeeded, by its own clock: what its fence counts from.
    pub fence_from: Option<Mono>,
    /// One of the first listings of its next process takes long.
    pub slow_start: bool,
    /// Changes wait until then before they are sent to the kernel.
    pub busy_until: T,
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
    /// The duration that write gave it.
    pub last_duration: T,
    pub run_out_planned: Option<T>,
    /// When trouble last began on it.
    pub last_trouble: T,
    pub disturbed_until: T,
    pub trouble_since: T,
    /// Its picture of its own kernel may be old until then.
    pub blind_until: T,
    /// Restarted on purpose and in time: nothing of it may move until then.
    pub keeps_until: T,
    pub legacy: bool,
    pub flap: Option<Flap>,
    /// When the last addition that its kernel was told of was decided.
    pub put_issued: T,
    /// When its Lease last came to name another set of subnets.
    pub offered_at: T,
    /// When a link of it last went down or came up.
    pub port_changed: T,
    /// Its firewall lets no echo requests in: it answers only for its addresses.
    pub echo_filtered: bool,
    /// It may not open packet sockets.
    pub no_sockets: bool,
    /// Frames are lost between its kernel and the process's sockets.
    pub drops: bool,
}

/// A question that left.
#[derive(Clone, Copy, Debug)]
pub struct AskedQuestion {
    pub at: T,
    pub index: IfIndex,
    pub target: Vip,
    pub to: Option<HardwareAddr>,
}

/// Suspended, or a virtual machine that its host stopped: no process and no kernel
/// timer runs, nobody is answered.
#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    pub since: T,
    /// Suspended: the clock that the engine is given goes on.
    pub clock_runs: bool,
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
    /// What has arrived and was not taken in yet.
    pub mail: VecDeque<(Channel, Input)>,
    pub turn_planned: bool,
    /// It is stopped between its next step and what follows from it, for so long.
    pub stall_next: Option<T>,
    /// What the last step before such a stop asked for.
    pub held_effects: Vec<Effect>,
    /// Its lease writer: what it remembers, does and is to do next.
    pub memory: LeaseMemory,
    pub writing: Option<Writing>,
    pub next_write: Option<LeaseWrite>,
    pub held_reply: Option<LeaseReply>,
    pub held_ops: Vec<(T, u64, KernelChange)>,
    pub listed: BTreeSet<Source>,
    watches: [Watch; 6],
    pub monitor: T,
    pub dumping: bool,
    pub dumped: bool,
    answers: T,
    commands: T,
    segment: T,
    pub kernel_queue: T,
    pub wake_at: Option<T>,
    pub stopping: Option<ShutdownMode>,
    pub second: T,
    pub steps: u32,
    pub idle_wakes: u32,
    pub started: T,
    /// Interfaces that it has a socket on.
    pub listening: BTreeSet<IfIndex>,
    /// What its sockets hold, and where they lost something.
    pub socket: Vec<SegmentSighting>,
    pub overrun: BTreeSet<IfIndex>,
    pub read_planned: bool,
    pub last_asked: Option<T>,
    /// The last ten seconds of its questions.
    pub questions: VecDeque<AskedQuestion>,
    /// Who answered on an interface, and when last.
    pub answered_by: BTreeMap<(IfIndex, HardwareAddr), T>,
    /// When somebody last answered for an address there, and who.
    pub answered_for: BTreeMap<(IfIndex, Vip), (T, HardwareAddr)>,
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
            mail: VecDeque::new(),
            turn_planned: false,
            stall_next: None,
            held_effects: Vec::new(),
            memory: LeaseMemory::default(),
            writing: None,
            next_write: None,
            held_reply: None,
            held_ops: Vec::new(),
            listed: BTreeSet::new(),
            watches: Default::default(),
            monitor: 0,
            dumping: false,
            dumped: false,
            answers: 0,
            commands: 0,
            segment: 0,
            kernel_queue: 0,
            wake_at: None,
            stopping: None,
            second: 0,
            steps: 0,
            idle_wakes: 0,
            started,
            listening: BTreeSet::new(),
            socket: Vec::new(),
            overrun: BTreeSet::new(),
            read_planned: false,
            last_asked: None,
            questions: VecDeque::new(),
            answered_by: BTreeMap::new(),
            answered_for: BTreeMap::new(),
        }
    }

    /// Changes of this kind reach it.
    pub fn hears(&self, source: Source) -> bool {
        let i = WATCHED.iter().position(|s| *s == source);
        i.is_some_and(|i| self.watches[i].connected && !self.watches[i].stalled)
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
            Channel::Segment => (&mut self.segment, 0),
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
