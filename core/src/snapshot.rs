//! What everyone but the engine's own task gets to see: one immutable picture.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use crate::detector::{DetectorTrouble, SegmentView, WatchState, WatchView};
use crate::facts::{ConfigProblem, GroupFacts, NodeImpairment, PoolType};
use crate::histogram::Histogram;
use crate::ids::{IfName, InstanceId, NodeName, ObjectKey, Vip};
use crate::messages::Source;
pub use crate::node_config::ConfigStatus;
use crate::rank::Rank;
use crate::reason::{FenceCause, Reason};
use crate::shared_table::{SharedTable, TableRow};
use crate::time::Mono;

/// Cheap to copy: what two pictures have in common they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub at: Mono,
    /// Goes up when something changed that anybody is told of. Renewals change the rest:
    /// this picture's time, expiries, the fence's moment, counters.
    pub version: u64,
    pub node: NodeName,
    pub instance: InstanceId,
    /// Sources not listed yet; empty = every decision is on a whole picture.
    pub unsynced: Vec<Source>,
    /// Everything listed and our Lease written (R5).
    pub ready: bool,
    /// Where the node stands with its LBNodeAgent.
    pub config_status: ConfigStatus,
    pub fence: FenceView,
    /// Since when the API server is away, while addresses ride.
    pub riding_since: Option<Mono>,
    pub draining: Option<String>,
    /// The Node's label keeps it out of elections.
    pub excluded: bool,
    /// What the cluster holds against the Node.
    pub impaired: Option<NodeImpairment>,
    /// Where the node ranks itself.
    pub rank: Rank,
    pub stopping: bool,
    pub members: SharedTable<MemberView>,
    /// What our Lease says once the pending write is through.
    pub advertised: Arc<BTreeSet<IpNet>>,
    /// Subnets per interface that VIPs can be put on right now.
    pub local_subnets: Arc<BTreeMap<IfName, BTreeSet<IpNet>>>,
    pub candidates: Arc<BTreeMap<IpNet, usize>>,
    /// What the detector makes of each interface that is served, and why not where it does not work.
    pub segments: Arc<BTreeMap<IfName, SegmentView>>,
    /// Addresses that a Service has, and what of ours is left of others.
    pub vips: SharedTable<VipView>,
    /// The ServiceGroups, by name.
    pub groups: Arc<Vec<GroupFacts>>,
    pub problems: Arc<Vec<ConfigProblem>>,
    pub totals: SnapshotTotals,
    pub counters: Counters,
    pub times: EngineTimes,
}

/// Counted as the tables change, for those who want no more than the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotTotals {
    /// Riding ones among them.
    pub announcing: usize,
    pub riding: usize,
    pub held: usize,
    pub live: usize,
}

impl TableRow for MemberView {
    type Key = NodeName;

    fn key(&self) -> &NodeName {
        &self.node
    }
}

impl TableRow for VipView {
    type Key = Vip;

    fn key(&self) -> &Vip {
        &self.vip
    }
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    pub node: NodeName,
    pub live: bool,
    pub expires: Option<Mono>,
    /// By an operator, or because it stops.
    pub draining: bool,
    /// By the label on its Node.
    pub excluded: bool,
    /// As it counts in elections.
    pub rank: Rank,
    pub out_of_service: bool,
    /// `None`: speaks the older format, without handoffs.
    pub announced: Option<Arc<BTreeSet<Vip>>>,
    /// Won, and left to the next in line.
    pub declined: BTreeSet<Vip>,
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
    /// Who says on the Service that it announces the address.
    pub slot: Option<NodeName>,
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
    /// What the detector asked on segments, and who answered.
    pub questions: u64,
    pub answers: u64,
    /// Addresses of a silent owner taken before its Lease had run out, and those of them given
    /// back because it answered after all.
    pub early_takeovers: u64,
    pub early_withdrawals: u64,
    /// Claims of others to what is ours that were answered by an announcement, and those that
    /// we gave way to since their sender does not hear us.
    pub defences: u64,
    pub yields: u64,
    /// An owner fell silent, and nobody else answered either: its Lease decides.
    pub witness_missing: u64,
    /// Reads of a segment that had lost frames.
    pub overruns: u64,
    /// Addresses that began to ride, and riders that gave way to somebody's claim.
    pub rides: u64,
    pub rides_ended_by_claim: u64,
}

/// How long things took, and how close they came. Metrics are read from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineTimes {
    /// Handoffs, from the decision to give an address away to each of their ends.
    pub handoff_confirmed: Histogram,
    pub handoff_timed_out: Histogram,
    /// Ours again, or to be gone at once, before the other had it.
    pub handoff_abandoned: Histogram,
    /// From knowing that an address is ours to the kernel showing it.
    pub to_kernel: Histogram,
    /// The same, to the first announcement.
    pub to_announced: Histogram,
    /// Share of the renew deadline that was left when a renewal succeeded.
    pub fence_margin: Histogram,
}
