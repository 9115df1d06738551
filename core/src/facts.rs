//! What the outside looks like to the engine: plain values, already parsed.
//!
//! Adapters turn Kubernetes objects and netlink messages into these. A fact says
//! what was seen, never what to do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use crate::config::FencePolicy;
use crate::ids::{Family, IfIndex, IfName, InstanceId, NodeName, ObjectKey, Vip};
pub use crate::rank::Rank;
use crate::segment::HardwareAddr;

/// What a node's Lease said when we saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseFacts {
    pub node: NodeName,
    /// The process that writes it; absent in Leases nobody of ours wrote.
    pub instance: Option<InstanceId>,
    /// `leaseDurationSeconds` as written: may be absurd, see `membership`.
    pub duration_seconds: i64,
    /// The renewal's mark (the text of `renewTime`). It is only ever compared for
    /// equality: another mark means the holder lived to write it. Its value as a
    /// time is the holder's wall clock and says nothing here (R2).
    pub renewal: String,
    pub subnets: BTreeSet<IpNet>,
    /// When the drain began, in the holder's words; absent = not draining.
    pub draining: Option<String>,
    /// What the holder has and has announced. `None`: it does not know handoffs.
    pub announced: Option<BTreeSet<Vip>>,
    /// What the holder cannot put on its interfaces and leaves to the next in line.
    /// `None`: it does not know that others may do so.
    pub declined: Option<BTreeSet<Vip>>,
    /// Where the holder ranks itself. `None`: it does not know ranks.
    pub rank: Option<Rank>,
    /// By which hardware addresses its segments know it. `None`: it does not ask segments.
    pub macs: Option<BTreeSet<HardwareAddr>>,
    pub control_endpoint: Option<String>,
}

/// The `draining` of a Lease whose holder is out by the label on its Node.
pub const EXCLUDED: &str = "excluded";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    pub name: NodeName,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// Tainted `node.kubernetes.io/out-of-service`: an administrator vouches that
    /// the machine is down.
    pub out_of_service: bool,
    /// Labelled `node.kubernetes.io/exclude-from-external-load-balancers`.
    pub excluded: bool,
    /// What the cluster holds against it, if anything.
    pub impaired: Option<NodeImpairment>,
    /// By its own words: somebody to ask on a segment, if they are there.
    pub addresses: BTreeSet<IpAddr>,
}

/// Why the cluster thinks that a node does not serve as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeImpairment {
    NotReady,
    NetworkUnavailable,
}

impl fmt::Display for NodeImpairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "NotReady",
            Self::NetworkUnavailable => "NetworkUnavailable",
        })
    }
}

/// How a pool's addresses reach the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PoolType {
    /// One elected node, on the real interface of a matching subnet.
    Local,
    /// Every node, on the dummy interface, for routing protocols to pick up.
    Remote,
}

/// A LoadBalancer Service that is ours, with the addresses it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFacts {
    pub key: ObjectKey,
    pub vips: BTreeSet<Vip>,
    /// The ServiceGroup the addresses came from, by the Service's own words: whoever may
    /// edit the Service can write it, so it decides nothing that a group can say itself.
    pub group: Option<String>,
    /// `externalTrafficPolicy: Local`.
    pub only_local_endpoints: bool,
    /// `purelb.io/node-affinity: service-endpoints`.
    pub prefer_endpoints: bool,
    /// The announcing slots now on the object.
    pub slots: BTreeMap<Vip, AnnouncingSlot>,
}

/// One entry of an announcing annotation: who says it announces an address, where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AnnouncingSlot {
    pub node: NodeName,
    pub interface: IfName,
}

/// Nodes with an endpoint of a Service that takes traffic: ready, or still serving
/// while terminating. One value per EndpointSlice; a Service may have several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointFacts {
    /// `namespace/name` of the slice.
    pub slice: ObjectKey,
    pub service: ObjectKey,
    pub nodes: BTreeSet<NodeName>,
}

/// The part of a ServiceGroup that a node needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFacts {
    pub name: String,
    /// Creation time in seconds; only its order counts.
    pub created: i64,
    pub pool: PoolType,
    pub ranges: Vec<RangeFacts>,
    /// Somebody else keeps its book of addresses: it has no ranges here.
    pub provided: bool,
    /// Prefix length of what such a book gives; `None` = that of one address.
    pub aggregation: Option<u8>,
    pub skip_ipv6_dad: bool,
    /// `None`: as each daemon is configured.
    pub fence_policy: Option<FencePolicy>,
    /// Outside its ranges, and still held by Services: what the allocator says of it.
    pub retained: BTreeSet<Vip>,
}

impl GroupFacts {
    /// A group of ranges, as it is without any option.
    pub fn of_ranges(name: &str, pool: PoolType, ranges: Vec<RangeFacts>) -> Self {
        Self {
            name: name.to_owned(),
            created: 0,
            pool,
            ranges,
            provided: false,
            aggregation: None,
            skip_ipv6_dad: false,
            fence_policy: None,
            retained: BTreeSet::new(),
        }
    }
}

/// Addresses from `first` to `last`, in a subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeFacts {
    pub subnet: IpNet,
    pub first: IpAddr,
    pub last: IpAddr,
    /// Prefix length to put on the interface; `None` = `default`.
    pub aggregation: Option<u8>,
}

impl RangeFacts {
    /// All of a subnet.
    pub fn whole(subnet: IpNet, aggregation: Option<u8>) -> Self {
        Self { subnet, first: subnet.network(), last: subnet.broadcast(), aggregation }
    }
}

/// One LBNodeAgent object, parsed or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFacts {
    pub key: ObjectKey,
    pub selector: Selector,
    pub config: Result<AgentConfig, ConfigProblem>,
}

/// What is wrong with an object, in words for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigProblem {
    pub object: ObjectKey,
    pub field: String,
    pub message: String,
}

/// How this node takes part: which interfaces, and how addresses are put there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentConfig {
    pub auto: AutoInterface,
    /// Interfaces by exact name, in addition.
    pub interfaces: BTreeSet<IfName>,
    pub dummy: IfName,
    pub candidacy: CandidacyConfig,
    pub garp: GarpConfig,
    /// The segments of this node are asked who is there.
    #[serde(default = "asked")]
    pub detector: bool,
    pub local_address: AddressOptions,
    pub dummy_address: AddressOptions,
}

/// What was written down before there was a choice.
fn asked() -> bool {
    true
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            auto: AutoInterface::DefaultRoute,
            interfaces: BTreeSet::new(),
            dummy: IfName::new("kube-lb0").expect("a valid interface name"),
            candidacy: CandidacyConfig::default(),
            garp: GarpConfig::default(),
            detector: true,
            local_address: AddressOptions { valid: Some(300), preferred: None, no_prefix_route: true },
            dummy_address: AddressOptions { valid: None, preferred: None, no_prefix_route: false },
        }
    }
}

/// What of the Node's state the node heeds in elections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidacyConfig {
    /// The label that keeps load balancers off a node ends its candidacy.
    pub exclude_label: bool,
    /// Impaired for this long, it ranks last. `None`: never.
    pub last_after: Option<Duration>,
}

impl Default for CandidacyConfig {
    fn default() -> Self {
        Self { exclude_label: true, last_after: Some(Duration::from_secs(60)) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AutoInterface {
    /// The interfaces of the IPv4 and IPv6 default routes.
    DefaultRoute,
    /// Every interface whose name the (unanchored) pattern matches.
    Pattern(String),
    None,
}

/// Seconds as the kernel takes them; `None` = for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressOptions {
    pub valid: Option<u32>,
    pub preferred: Option<u32>,
    pub no_prefix_route: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GarpConfig {
    pub enabled: bool,
    pub delay: Duration,
    pub count: u32,
    pub interval: Duration,
    /// Again every so often, for as long as we hold it.
    pub refresh: Option<Duration>,
    /// Check before each repeat that the address is still ours.
    pub verify: bool,
}

impl Default for GarpConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            delay: Duration::ZERO,
            count: 3,
            interval: Duration::from_millis(500),
            refresh: None,
            verify: true,
        }
    }
}

/// A Kubernetes label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Selects everything: the fallback that any specific selector beats.
    pub fn is_catch_all(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            // As in Kubernetes, a missing label satisfies NotIn.
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// A network interface of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFacts {
    pub index: IfIndex,
    pub name: IfName,
    pub loopback: bool,
    /// Administratively up.
    pub up: bool,
    /// The other end is there (`LOWER_UP`).
    pub carrier: bool,
    /// The hardware address that others know our addresses by.
    pub mac: Option<HardwareAddr>,
    /// We made it, this run or an earlier one: for addresses of remote pools.
    pub ours: bool,
}

impl LinkFacts {
    pub fn usable(&self) -> bool {
        self.up && self.carrier && !self.loopback
    }
}

/// An address the kernel shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddrFacts {
    pub index: IfIndex,
    /// The address with its prefix length (not masked).
    pub net: IpNet,
    /// Carries our protocol mark: we put it there (R4).
    pub ours: bool,
    pub link_local: bool,
    pub tentative: bool,
    pub dad_failed: bool,
    pub deprecated: bool,
    pub permanent: bool,
    pub no_prefix_route: bool,
}

impl AddrFacts {
    pub fn vip(&self) -> Vip {
        Vip::new(self.net.addr())
    }
}

/// A default route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DefaultRoute {
    pub family: Family,
    pub metric: u32,
    pub index: IfIndex,
    /// Where it leads; `None`: straight onto the link.
    pub gateway: Option<IpAddr>,
}

#[cfg(test)]
mod tests;
