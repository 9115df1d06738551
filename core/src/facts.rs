//! What the outside looks like to the engine: plain values, already parsed.
//!
//! Adapters turn Kubernetes objects and netlink messages into these. A fact says
//! what was seen, never what to do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::ids::{Family, IfIndex, IfName, InstanceId, NodeName, ObjectKey, Vip};

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
    pub control_endpoint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    pub name: NodeName,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// Tainted `node.kubernetes.io/out-of-service`: an administrator vouches that
    /// the machine is down.
    pub out_of_service: bool,
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
    pub pool: PoolType,
    /// The ServiceGroup the addresses came from.
    pub group: Option<String>,
    /// `externalTrafficPolicy: Local`.
    pub only_local_endpoints: bool,
    /// `purelb.io/node-affinity: service-endpoints`.
    pub prefer_endpoints: bool,
    pub skip_ipv6_dad: bool,
    /// The announcing slots now on the object.
    pub slots: BTreeMap<Vip, Slot>,
}

/// One entry of an announcing annotation: who says it announces an address, where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot {
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
    pub pool: PoolType,
    pub ranges: Vec<RangeFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeFacts {
    pub subnet: IpNet,
    /// Prefix length to put on the interface; `None` = `default`.
    pub aggregation: Option<u8>,
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
    pub garp: GarpConfig,
    pub local_address: AddressOptions,
    pub dummy_address: AddressOptions,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            auto: AutoInterface::DefaultRoute,
            interfaces: BTreeSet::new(),
            dummy: IfName::new("kube-lb0").expect("a valid interface name"),
            garp: GarpConfig::default(),
            local_address: AddressOptions { valid: Some(300), preferred: None, no_prefix_route: true },
            dummy_address: AddressOptions { valid: None, preferred: None, no_prefix_route: false },
        }
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
}

#[cfg(test)]
mod tests;
