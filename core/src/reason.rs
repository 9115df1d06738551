//! Why a virtual address is, or is not, on this node. Logs, metrics, the control API and
//! `purelbctl explain` all speak through this one enum, and so do events, which tell of
//! some of the reasons (`engine/vip/report.rs`).

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::ids::{IfName, InstanceId, NodeName, Vip};
use crate::time::Mono;

/// A VIP has exactly one reason at any time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// On the interface and announced.
    Announcing { interface: IfName },
    /// The API server is away, and it was ours when that began: it stays while nobody else
    /// claims it.
    Riding { interface: IfName, since: Mono },
    /// Ours to hold, and something has yet to happen first.
    Pending { missing: PendingCause },
    /// Another node is the better candidate.
    NotWinner { winner: NodeName },
    /// No live node advertises a subnet that contains the address.
    NoEligibleNode,
    /// Live nodes have the subnet, and none of them has an endpoint that takes traffic.
    NoEndpoints,
    /// We won, and no usable interface here has the subnet (yet).
    NoLocalSubnet,
    /// The node drains. `held`: nobody can take the address, so it stays.
    Draining { held: bool },
    /// The Node carries the label that keeps load balancers off it. `held`: as above.
    Excluded { held: bool },
    /// Our Lease is not ours beyond doubt, so we hold nothing.
    Fenced { cause: FenceCause },
    /// Another node takes over; we hold the address until it says it has it.
    HandingOver { to: NodeName },
    /// The kernel refused.
    ApplyFailed { error: String, attempt: u32, retry_at: Mono },
    /// The kernel found the address on another host (IPv6 duplicate detection).
    Duplicate { interface: IfName, retry_at: Mono },
    /// Somebody else put the very address on this node: a configuration error.
    ForeignAddress { interface: IfName },
    /// We won it, cannot have it, and left it to the next in line.
    Declined { why: String, to: Option<NodeName>, retry_at: Option<Mono> },
    /// Every node that could have it has declined it.
    AllDeclined,
    /// No ServiceGroup has the address: it is not ours to serve.
    NotInPool,
    /// Its prefix route to the dummy interface would hide a network this node needs.
    HidesOwnNetwork { net: IpNet, what: HiddenNetwork },
    /// No LBNodeAgent selects this node.
    NotSelected,
    /// The LBNodeAgent for this node was refused, and there is no earlier good one.
    ConfigRejected { object: String, field: String, message: String },
    /// The Node is gone or vouched to be down.
    OutOfService,
    /// The daemon stops.
    Stopping,
    /// No Service has it any more, and it is on its way out of the kernel.
    NoService,
}

/// What a node would lose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HiddenNetwork {
    OwnAddress { address: Vip, interface: IfName },
    Gateway { address: Vip },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PendingCause {
    /// These sources have not been listed completely: since the start, or since a
    /// fence (R5).
    Sources(Vec<crate::messages::Source>),
    /// Our own Lease has not been written yet.
    Lease,
    /// The address is on its way into the kernel.
    Kernel,
    /// Duplicate address detection is running.
    DuplicateDetection,
    /// The first announcement has not gone out.
    Announcement,
    /// The dummy interface is being made.
    DummyInterface,
    /// The configuration took the address from this node a moment ago: it stays until
    /// another has it, or until one could have said so.
    Successor,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceCause {
    /// No renewal has succeeded since the start.
    NeverRenewed,
    /// The last successful renewal is too long ago.
    Expired { last_error: Option<String> },
    /// Somebody deleted our Lease: a node that starts now knows nothing of us.
    Deleted,
    /// Another instance writes our Lease.
    Taken { by: InstanceId },
    /// Renewals succeed, yet we no longer see changes: our picture is old.
    StaleView,
}

impl Reason {
    /// Traffic for the address is served here, whatever stands behind that.
    pub fn announces(&self) -> bool {
        matches!(self, Self::Announcing { .. } | Self::Riding { .. })
    }

    /// Without its particulars.
    pub fn kind(&self) -> ReasonKind {
        match self {
            Self::Announcing { .. } => ReasonKind::Announcing,
            Self::Riding { .. } => ReasonKind::Riding,
            Self::Pending { .. } => ReasonKind::Pending,
            Self::NotWinner { .. } => ReasonKind::NotWinner,
            Self::NoEligibleNode => ReasonKind::NoEligibleNode,
            Self::NoEndpoints => ReasonKind::NoEndpoints,
            Self::NoLocalSubnet => ReasonKind::NoLocalSubnet,
            Self::Draining { .. } => ReasonKind::Draining,
            Self::Excluded { .. } => ReasonKind::Excluded,
            Self::Fenced { .. } => ReasonKind::Fenced,
            Self::HandingOver { .. } => ReasonKind::HandingOver,
            Self::ApplyFailed { .. } => ReasonKind::ApplyFailed,
            Self::Duplicate { .. } => ReasonKind::Duplicate,
            Self::ForeignAddress { .. } => ReasonKind::ForeignAddress,
            Self::Declined { .. } => ReasonKind::Declined,
            Self::AllDeclined => ReasonKind::AllDeclined,
            Self::NotInPool => ReasonKind::NotInPool,
            Self::HidesOwnNetwork { .. } => ReasonKind::HidesOwnNetwork,
            Self::NotSelected => ReasonKind::NotSelected,
            Self::ConfigRejected { .. } => ReasonKind::ConfigRejected,
            Self::OutOfService => ReasonKind::OutOfService,
            Self::Stopping => ReasonKind::Stopping,
            Self::NoService => ReasonKind::NoService,
        }
    }

    /// The reason's name: a metric label, a log field, an API enum.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// The address stays although it should go: nobody else can take it.
    pub fn held(&self) -> bool {
        matches!(self, Self::Draining { held: true } | Self::Excluded { held: true })
    }

    pub fn profile(&self) -> ReasonProfile {
        self.kind().profile(self.held())
    }
}

macro_rules! reason_kinds {
    ($($kind:ident)*) => {
        /// Which reason, whatever its particulars.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ReasonKind {
            $($kind,)*
        }

        impl ReasonKind {
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }
        }
    };
}

reason_kinds! {
    Announcing Riding Pending NotWinner NoEligibleNode NoEndpoints NoLocalSubnet Draining Excluded
    Fenced HandingOver ApplyFailed Duplicate ForeignAddress Declined AllDeclined
    NotInPool HidesOwnNetwork NotSelected ConfigRejected OutOfService Stopping NoService
}

/// How a reason looks to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonTone {
    /// The address is served from here.
    Good,
    /// As it should be, and no more to say.
    Neutral,
    /// It passes, or is meant.
    Warning,
    Bad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemSeverity {
    Warning,
    Critical,
}

/// An address with this reason is a problem of its own, and this is what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonProblem {
    pub severity: ProblemSeverity,
    pub advice: &'static str,
}

/// What else goes with a reason wherever it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonProfile {
    pub tone: ReasonTone,
    /// `None`: nothing is wrong, or it is the node's trouble and is told as that.
    pub problem: Option<ReasonProblem>,
    /// Logged as a warning.
    pub warns: bool,
    /// A remote address with this reason should be here, and is counted as such.
    pub counts: bool,
}

impl ReasonProfile {
    const fn of(tone: ReasonTone) -> Self {
        Self { tone, problem: None, warns: false, counts: false }
    }

    const fn problem(self, severity: ProblemSeverity, advice: &'static str) -> Self {
        Self { problem: Some(ReasonProblem { severity, advice }), ..self }
    }

    const fn warns(self) -> Self {
        Self { warns: true, ..self }
    }

    const fn counts(self) -> Self {
        Self { counts: true, ..self }
    }
}

impl ReasonKind {
    /// The table of all reasons. `held`: see [`Reason::held`].
    pub const fn profile(self, held: bool) -> ReasonProfile {
        use ProblemSeverity::{Critical, Warning};
        let good = ReasonProfile::of(ReasonTone::Good);
        let neutral = ReasonProfile::of(ReasonTone::Neutral);
        let warning = ReasonProfile::of(ReasonTone::Warning);
        let bad = ReasonProfile::of(ReasonTone::Bad);
        match self {
            Self::Announcing => good.counts(),
            // The node says once why the API server is away.
            Self::Riding => warning.warns(),
            Self::Pending => warning.counts(),
            Self::NotWinner => neutral,
            Self::NoEligibleNode => bad.warns().problem(
                Critical,
                "give a node an address in the pool's subnet, let its LBNodeAgent name the interface, or make the pool remote",
            ),
            Self::NoEndpoints => warning.warns().problem(
                Warning,
                "run a ready pod of the Service on a candidate, or set externalTrafficPolicy: Cluster",
            ),
            Self::NoLocalSubnet => {
                bad.problem(Critical, "check the interface: link, carrier, address (`ip -br addr`)")
            }
            Self::Draining if held => {
                warning.problem(Warning, "no other node can take it; `purelbctl drain --force` withdraws it")
            }
            Self::Draining => warning,
            Self::Excluded if held => warning.problem(
                Warning,
                "no other node can take it; give another node the subnet, or remove the label",
            ),
            Self::Excluded => {
                warning.problem(Critical, "every node that could have it is kept off by its label, or drained")
            }
            Self::Fenced => bad.warns(),
            Self::HandingOver => warning,
            Self::ApplyFailed => {
                bad.warns().counts().problem(Critical, "see the daemon's log; it tries again by itself")
            }
            Self::Duplicate => bad.warns().counts().problem(
                Critical,
                "find the other host (`arping`, `ndisc6`) or take the address out of the pool",
            ),
            Self::ForeignAddress => bad.warns().counts().problem(
                Critical,
                "remove the address from the interface, or take it out of the pool",
            ),
            Self::Declined => warning.warns().problem(
                Warning,
                "another node has it; mend the cause, then `purelbctl resync` tries at once",
            ),
            Self::AllDeclined => bad.warns().problem(
                Critical,
                "ask the nodes that have its subnet: `purelbctl explain` there says why each declined",
            ),
            Self::NotInPool => bad.warns().problem(
                Critical,
                "put its range back into a ServiceGroup, or have the Service get another address",
            ),
            Self::HidesOwnNetwork => bad.warns().counts().problem(
                Critical,
                "give the pool a subnet of its own, or set its aggregation to /32 or /128",
            ),
            Self::NotSelected => bad,
            Self::ConfigRejected => bad.warns(),
            Self::OutOfService => bad,
            Self::Stopping => warning,
            Self::NoService => warning,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Announcing { interface } => write!(f, "announcing on {interface}"),
            Self::Riding { interface, since } => write!(
                f,
                "announcing on {interface}; riding since {since}: the API server is away, and nobody else claims it"
            ),
            Self::Pending { missing } => write!(f, "waiting for {missing}"),
            Self::NotWinner { winner } => write!(f, "{winner} is the winner"),
            Self::NoEligibleNode => f.write_str("no live node has a subnet that contains the address"),
            Self::NoEndpoints => f.write_str("no candidate has an endpoint that takes traffic"),
            Self::NoLocalSubnet => f.write_str("no usable interface here has the address's subnet"),
            Self::Draining { held: true } => f.write_str("draining; kept, since no other node can take it"),
            Self::Draining { held: false } => f.write_str("draining"),
            Self::Excluded { held } => {
                f.write_str("the Node's label keeps load balancers off it")?;
                if *held { f.write_str("; kept, since no other node can take it") } else { Ok(()) }
            }
            Self::Fenced { cause } => write!(f, "fenced: {cause}"),
            Self::HandingOver { to } => write!(f, "handing over to {to}"),
            Self::ApplyFailed { error, attempt, retry_at } => {
                write!(f, "the kernel refused (attempt {attempt}, next at {retry_at}): {error}")
            }
            Self::Duplicate { interface, retry_at } => {
                write!(f, "another host on {interface} uses the address (next try at {retry_at})")
            }
            Self::ForeignAddress { interface } => {
                write!(
                    f,
                    "somebody else put the address on {interface}; remove it there or exclude it from the pool"
                )
            }
            Self::Declined { why, to, retry_at } => {
                match to {
                    Some(to) => write!(f, "left to {to}: {why}")?,
                    None => write!(f, "declined, and nobody else can take it: {why}")?,
                }
                retry_at.map_or(Ok(()), |at| write!(f, " (next try at {at})"))
            }
            Self::AllDeclined => f.write_str("every node that could have the address has declined it"),
            Self::NotInPool => f.write_str("no ServiceGroup has the address"),
            Self::HidesOwnNetwork { net, what } => write!(
                f,
                "with {net} on the dummy interface this node would lose {what}; \
                 give the pool another subnet, or a longer aggregation"
            ),
            Self::NotSelected => f.write_str("no LBNodeAgent selects this node"),
            Self::ConfigRejected { object, field, message } => {
                write!(f, "LBNodeAgent {object} is invalid: {field}: {message}")
            }
            Self::OutOfService => f.write_str("the Node is gone or out of service"),
            Self::Stopping => f.write_str("the daemon stops"),
            Self::NoService => f.write_str("no Service has the address"),
        }
    }
}

impl fmt::Display for HiddenNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnAddress { address, interface } => {
                write!(f, "the network of its own address {address} on {interface}")
            }
            Self::Gateway { address } => write!(f, "its default gateway {address}"),
        }
    }
}

impl fmt::Display for PendingCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sources(sources) => {
                f.write_str("the listing of ")?;
                for (i, source) in sources.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{source}")?;
                }
                Ok(())
            }
            Self::Lease => f.write_str("our Lease"),
            Self::Kernel => f.write_str("the kernel"),
            Self::DuplicateDetection => f.write_str("duplicate address detection"),
            Self::Announcement => f.write_str("the first announcement"),
            Self::DummyInterface => f.write_str("the dummy interface"),
            Self::Successor => f.write_str("a node that takes it over"),
        }
    }
}

impl fmt::Display for FenceCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverRenewed => f.write_str("the Lease was never renewed"),
            Self::Expired { last_error: Some(error) } => {
                write!(f, "no renewal within the deadline; the last one failed: {error}")
            }
            Self::Expired { last_error: None } => f.write_str("no renewal within the deadline"),
            Self::Deleted => f.write_str("somebody deleted the Lease"),
            Self::Taken { by } => write!(f, "instance {by} writes this node's Lease"),
            Self::StaleView => f.write_str("renewals succeed but changes no longer reach us"),
        }
    }
}
