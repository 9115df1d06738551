//! What everyone but the engine's own task gets to see: one immutable picture.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use crate::agents::Standing;
use crate::counted::Counted;
use crate::facts::{ConfigProblem, GroupFacts, PoolType};
use crate::ids::{IfName, InstanceId, NodeName, ObjectKey, Vip};
use crate::io::Source;
use crate::reason::{FenceCause, Reason};
use crate::time::Mono;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub at: Mono,
    pub node: NodeName,
    pub instance: InstanceId,
    /// Sources not listed yet; empty = every decision is on a whole picture.
    pub unsynced: Vec<Source>,
    /// Everything listed and our Lease written (R5).
    pub ready: bool,
    /// Where the node stands with its LBNodeAgent.
    pub standing: Standing,
    pub fence: FenceView,
    pub draining: Option<String>,
    pub stopping: bool,
    pub members: Vec<MemberView>,
    /// What our Lease says once the pending write is through.
    pub advertised: BTreeSet<IpNet>,
    /// Subnets per interface that VIPs can be put on right now.
    pub local_subnets: BTreeMap<IfName, BTreeSet<IpNet>>,
    pub candidates: BTreeMap<IpNet, usize>,
    pub vips: Vec<VipView>,
    /// The ServiceGroups, by name.
    pub groups: Vec<GroupFacts>,
    pub problems: Vec<ConfigProblem>,
    pub counters: Counters,
    pub times: Times,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceView {
    /// Ours until then, unless renewed.
    Healthy {
        until: Mono,
    },
    Fenced {
        cause: FenceCause,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    pub node: NodeName,
    pub live: bool,
    pub expires: Option<Mono>,
    pub draining: bool,
    pub out_of_service: bool,
    /// `None`: speaks the older format, without handoffs.
    pub announced: Option<BTreeSet<Vip>>,
    pub subnets: BTreeSet<IpNet>,
    pub control_endpoint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VipView {
    pub vip: Vip,
    pub pool: PoolType,
    /// The ServiceGroup it came from.
    pub group: Option<String>,
    pub services: Vec<ObjectKey>,
    pub reason: Reason,
    pub winner: Option<NodeName>,
    /// The kernel shows it on this interface, with our mark.
    pub on_interface: Option<IfName>,
    /// The first announcement since it is there has gone out, where there is one to send.
    pub announced: bool,
}

/// Things that only ever go up. Metrics are read from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub renewals: u64,
    pub renewal_failures: u64,
    pub winner_changes: u64,
    pub wins: u64,
    pub losses: u64,
    pub additions: u64,
    pub withdrawals: u64,
    pub refreshes: u64,
    pub apply_errors: u64,
    /// An address that should have been there was put back.
    pub recoveries: u64,
    pub announcements: u64,
    pub announcement_errors: u64,
    pub announcements_dropped: u64,
    pub affinity_fallbacks: u64,
    pub handoffs_confirmed: u64,
    pub handoffs_timed_out: u64,
    pub slot_steals: u64,
}

/// How long things took, and how close they came. Metrics are read from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Handoffs, from the decision to give an address away to each of their ends.
    pub handoff_confirmed: Counted,
    pub handoff_timed_out: Counted,
    /// Ours again, or to be gone at once, before the other had it.
    pub handoff_abandoned: Counted,
    /// From knowing that an address is ours to the kernel showing it.
    pub to_kernel: Counted,
    /// The same, to the first announcement.
    pub to_announced: Counted,
    /// Share of the renew deadline that was left when a renewal succeeded.
    pub fence_margin: Counted,
}
