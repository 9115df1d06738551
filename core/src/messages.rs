//! The engine's two doors: what comes in, and what goes out.
//!
//! ```text
//!   watches, netlink, timers, commands          lease writer, netlink applier,
//!                 │                              packet sender, annotations, events
//!                 ▼                                              ▲
//!            Input + now ──────▶  Engine::step  ──────▶  Vec<Effect>
//!                                     │
//!                                     └─▶ Engine::deadline(): call again by then
//! ```
//!
//! Effects are carried out in order; results come back as inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::facts::{
    AddrFacts, AgentFacts, ConfigProblem, DefaultRoute, EndpointFacts, GroupFacts, LeaseFacts, LinkFacts,
    NodeFacts, ServiceFacts,
};
use crate::ids::{IfIndex, IfName, InstanceId, NodeName, ObjectKey, Vip};
use crate::rank::Rank;
use crate::segment::{HardwareAddr, SegmentQuestion, SegmentReport};
use crate::time::Mono;

/// Where facts come from. Nothing is decided until each was listed once (R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    Services,
    ServiceGroups,
    NodeAgents,
    EndpointSlices,
    Nodes,
    Leases,
    Kernel,
}

impl Source {
    pub const ALL: [Self; 7] = [
        Self::Services,
        Self::ServiceGroups,
        Self::NodeAgents,
        Self::EndpointSlices,
        Self::Nodes,
        Self::Leases,
        Self::Kernel,
    ];
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Services => "Services",
            Self::ServiceGroups => "ServiceGroups",
            Self::NodeAgents => "LBNodeAgents",
            Self::EndpointSlices => "EndpointSlices",
            Self::Nodes => "Nodes",
            Self::Leases => "Leases",
            Self::Kernel => "links and addresses",
        })
    }
}

/// A change of one watched kind. `All` is a complete listing and replaces
/// everything known of that kind at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FactsUpdate<T, K> {
    All(Vec<T>),
    Set(T),
    Gone(K),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    Services(FactsUpdate<ServiceFacts, ObjectKey>),
    Groups(FactsUpdate<GroupFacts, String>),
    Agents(FactsUpdate<AgentFacts, ObjectKey>),
    Endpoints(FactsUpdate<EndpointFacts, ObjectKey>),
    Nodes(FactsUpdate<NodeFacts, NodeName>),
    Leases(FactsUpdate<LeaseFacts, NodeName>),
    /// A complete dump: at the start and after a netlink overrun (R6).
    Kernel(KernelDump),
    Link(FactsUpdate<LinkFacts, IfIndex>),
    /// An address that appeared or changed.
    AddressSet(AddrFacts),
    AddressGone {
        index: IfIndex,
        net: IpNet,
    },
    /// All default routes now; routes change rarely.
    DefaultRoutes(Vec<DefaultRoute>),
    /// The answer to [`Effect::WriteLease`] with the same `seq`.
    LeaseWritten {
        seq: u64,
        sent_at: Mono,
        result: Result<LeaseRenewal, LeaseError>,
    },
    /// The answer to [`Effect::DeleteLease`].
    LeaseDeleted(Result<(), String>),
    /// The answer to [`Effect::Apply`] with the same `id`.
    Applied {
        id: u64,
        result: Result<(), KernelRefusal>,
    },
    /// The answer to [`Effect::Announce`] with the same `id`.
    Announced {
        id: u64,
        result: Result<(), String>,
    },
    /// The answer to [`Effect::Listen`] for one interface, and whenever that changes.
    Listening {
        index: IfIndex,
        result: Result<(), String>,
    },
    /// The answer to [`Effect::Ask`] with the same `id`: when the question left.
    Asked {
        id: u64,
        result: Result<Mono, String>,
    },
    /// Sent whenever the sockets were read: when something arrived, and before every
    /// [`Input::Tick`] while a question waits for its answer.
    Heard(SegmentReport),
    /// The last whole picture of an earlier run, before anything was listed.
    LastPicture(Box<LastPicture>),
    Command(Command),
    /// A deadline passed.
    Tick,
}

/// Why a change was not made in the kernel, each in words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelRefusal {
    /// This process may not. It will not be allowed to by trying again.
    NotPermitted(String),
    /// The interface is gone, or has no IPv6.
    NoInterface(String),
    /// Somebody else's address is in the way.
    Foreign(String),
    /// Anything that may pass by itself.
    Passing(String),
}

impl fmt::Display for KernelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotPermitted(text) | Self::NoInterface(text) | Self::Foreign(text) | Self::Passing(text)) =
            self;
        f.write_str(text)
    }
}

/// Everything that was listed when an earlier run last wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPicture {
    /// How long ago that was, as far as the wall clock tells.
    pub age: Duration,
    pub services: Vec<ServiceFacts>,
    pub groups: Vec<GroupFacts>,
    pub agents: Vec<AgentFacts>,
    pub endpoints: Vec<EndpointFacts>,
    pub nodes: Vec<NodeFacts>,
    pub leases: Vec<LeaseFacts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDump {
    pub links: Vec<LinkFacts>,
    pub addresses: Vec<AddrFacts>,
    pub default_routes: Vec<DefaultRoute>,
}

/// A Lease write that the API server accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRenewal {
    /// The renewal mark it wrote: it must come back through the watch.
    pub renewal: String,
}

/// Every one of these counts as a failed renewal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseError {
    Timeout,
    Unreachable(String),
    Conflict(String),
    /// There is no such Lease any more.
    Missing,
    /// Another instance's id stands in it.
    Taken(InstanceId),
    /// On creation: there is one already.
    Exists,
    Refused(String),
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("timed out"),
            Self::Unreachable(e) => write!(f, "API server unreachable: {e}"),
            Self::Conflict(e) => write!(f, "conflict: {e}"),
            Self::Missing => f.write_str("the Lease does not exist"),
            Self::Taken(by) => write!(f, "instance {by} holds the Lease"),
            Self::Exists => f.write_str("the Lease exists already"),
            Self::Refused(e) => write!(f, "refused: {e}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// `since`: RFC 3339, written to the Lease. The caller keeps the mark on disk.
    Drain {
        since: String,
        force: bool,
    },
    Undrain,
    /// `since` as for a drain: the others read that we leave.
    Shutdown {
        mode: ShutdownMode,
        since: String,
    },
    /// Compare everything again and announce everything once more. The caller
    /// relists and dumps.
    Resync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ShutdownMode {
    /// Leave addresses and Lease to the process that replaces us.
    Leave,
    /// Hand over, withdraw, confirm, delete the Lease.
    Graceful,
    /// Withdraw at once, delete the Lease.
    Now,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    WriteLease(LeaseWrite),
    DeleteLease,
    /// One change of the kernel's state. Removals come before additions.
    Apply {
        id: u64,
        op: KernelChange,
    },
    /// Send one gratuitous ARP pair or unsolicited neighbour advertisement.
    Announce {
        id: u64,
        vip: Vip,
        index: IfIndex,
        interface: IfName,
        /// Not later than this: a process that was stopped meanwhile would call clients to
        /// an address that another node has by now. Who is late answers with an error.
        until: Mono,
    },
    /// Listen on these interfaces and on no others.
    Listen(BTreeMap<IfIndex, IfName>),
    /// Ask the segment who has an address.
    Ask(SegmentQuestion),
    /// Put our slot on the Service, merging with the slots of others.
    WriteSlot {
        service: ObjectKey,
        vip: Vip,
        interface: IfName,
    },
    /// Take that node's slot for the address off the Service; another's stays.
    ClearSlot {
        service: ObjectKey,
        vip: Vip,
        node: NodeName,
    },
    Event(Event),
    /// Our view is suspect: list this source again and feed it as one replacement.
    Relist(Source),
    /// The process ends, and the kernel would not let go of these: said before `Exit`.
    LeftBehind(Vec<IpNet>),
    /// All is withdrawn and confirmed, or left as told: the process may end.
    Exit,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseWrite {
    pub seq: u64,
    pub mode: LeaseMode,
    pub content: LeaseContent,
    /// Give up then: the engine asks again by itself.
    pub timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseMode {
    /// There is none.
    Create,
    /// There is one of an earlier instance of this node; make it ours.
    TakeOver,
    /// It is ours: fail with [`LeaseError::Taken`] if it no longer is.
    Renew,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseContent {
    pub instance: InstanceId,
    pub duration: Duration,
    pub subnets: BTreeSet<IpNet>,
    pub draining: Option<String>,
    pub rank: Rank,
    #[serde(serialize_with = "write_shared", deserialize_with = "read_shared")]
    pub announced: Arc<BTreeSet<Vip>>,
    /// Left to the next in line, since we cannot have them.
    pub declined: BTreeSet<Vip>,
    /// By which our segments know us.
    pub macs: BTreeSet<HardwareAddr>,
    /// UID of our Node, for the owner reference.
    pub node_uid: String,
}

fn write_shared<S: Serializer>(set: &BTreeSet<Vip>, to: S) -> Result<S::Ok, S::Error> {
    set.serialize(to)
}

fn read_shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<BTreeSet<Vip>>, D::Error> {
    BTreeSet::deserialize(from).map(Arc::new)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelChange {
    Remove {
        index: IfIndex,
        net: IpNet,
    },
    /// Add, or replace what is there with the same address and prefix length.
    Put(AddressSpec),
    /// Make the dummy interface, or adopt the one that is there.
    EnsureDummy {
        name: IfName,
    },
    /// Remove the dummy interface if we made it.
    RemoveDummy {
        name: IfName,
    },
}

/// An address as it should stand in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSpec {
    pub index: IfIndex,
    pub net: IpNet,
    /// The moment at which it has to be gone by itself (R3): the fence does not move
    /// while the change waits for its turn. `None` = it is not fenced.
    pub until: Option<Mono>,
    /// Whole seconds from when the kernel hears of it; `None` = for ever.
    pub valid: Option<u32>,
    pub preferred: Option<u32>,
    pub no_prefix_route: bool,
    pub no_dad: bool,
}

/// What the kernel is told: whole seconds from now on, `None` = for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    pub valid: Option<u32>,
    pub preferred: Option<u32>,
}

impl AddressSpec {
    /// The lifetimes for a kernel that hears of the address at `now`. Floored: a
    /// lifetime that ends a moment early costs nothing, and one that ends late may cost
    /// a second owner. `None`: not a single second is left, so it may not be put there.
    pub fn lifetimes(&self, now: Mono) -> Option<Lifetimes> {
        let left = self.until.map(|until| u32::try_from(now.until(until).as_secs()).unwrap_or(u32::MAX));
        let valid = [self.valid, left].into_iter().flatten().min();
        if valid == Some(0) {
            return None;
        }
        // The kernel refuses an address that is to be preferred longer than it is valid.
        let preferred = [self.preferred, valid].into_iter().flatten().min();
        Some(Lifetimes { valid, preferred })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub object: EventObject,
    pub kind: EventKind,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EventObject {
    Service(ObjectKey),
    NodeAgent(ObjectKey),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EventKind {
    AnnouncingLocal,
    AnnouncingNonLocal,
    AnnouncementFailed,
    NoEligibleNodes,
    ConfigError,
}

impl Event {
    pub(crate) fn config_error(problem: &ConfigProblem) -> Self {
        Self {
            object: EventObject::NodeAgent(problem.object.clone()),
            kind: EventKind::ConfigError,
            message: format!("{}: {}; the last good configuration stays", problem.field, problem.message),
        }
    }
}
