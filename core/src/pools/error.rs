//! Why a range is not one, and why a request got no address.

use thiserror::Error;

use super::admission::GroupOverlap;
use super::group::GroupName;
use super::range::ExclusionReason;
use super::sharing_terms::Port;
use super::span::{Span, SpanError};
use crate::ids::{Family, ObjectKey, Vip};

/// A configured range that cannot be used, with the field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct RangeError {
    pub field: String,
    #[source]
    pub problem: RangeProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RangeProblem {
    #[error(transparent)]
    Span(#[from] SpanError),
    #[error("is {found}, but this field takes {wanted}: move it to the other field")]
    WrongFamily { found: Family, wanted: Family },
    #[error("{pool} is not inside the subnet {subnet}: widen the subnet or move the pool")]
    OutsideSubnet { pool: Span, subnet: ipnet::IpNet },
    #[error("{text:?} is not an aggregation: give \"default\" or a prefix length from /8 to /{max}")]
    BadAggregation { text: String, max: u8 },
    #[error("{pool} has no address a Service can use ({why}): give more addresses")]
    NothingUsable { pool: Span, why: ExclusionReason },
    #[error("{pool} overlaps {other} of the same group: give every address once")]
    OverlapsSibling { pool: Span, other: String },
}

/// Why a request got no address. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocateError {
    #[error("ServiceGroup {group} does not exist: create it or name another one")]
    NoSuchGroup { group: GroupName },
    #[error("ServiceGroup {group} is refused: {overlap}")]
    GroupRefused { group: GroupName, overlap: Box<GroupOverlap> },
    #[error("ServiceGroup {group} has no {family} pool: add one, or ask for the other family")]
    NoRange { group: GroupName, family: Family },
    #[error("no live node serves the subnet of any {family} pool of ServiceGroup {group}")]
    NoEligibleRange { group: GroupName, family: Family },
    #[error(
        "ServiceGroup {group} has no free {family} address (all {size} in use): add a range or free an address"
    )]
    Exhausted { group: GroupName, family: Family, size: u128 },
    #[error("address {ip} is in use by Service {by}: to share it, give both the same allow-shared-ip key")]
    InUse { ip: Vip, by: ObjectKey },
    #[error("port {port} of shared address {ip} is taken by Service {by}: use another port or sharing key")]
    PortTaken { ip: Vip, port: Port, by: ObjectKey },
    #[error(
        "address {ip} is shared with Service {by}, and both have externalTrafficPolicy: Local with different pods: \
         give both the same selector, one of them the policy Cluster, or another sharing key"
    )]
    OtherPods { ip: Vip, by: ObjectKey },
    #[error("address {ip} is not in a pool of ServiceGroup {group}{}", found_hint(.found_in.as_ref()))]
    OutOfPool { ip: Vip, group: GroupName, found_in: Option<GroupName> },
    #[error("address {ip} is {}, but the Service wants {wanted} only", .ip.family())]
    WrongFamily { ip: Vip, wanted: Family },
    #[error("address {ip} is never given to a Service: {why}")]
    Excluded { ip: Vip, why: ExclusionReason },
    #[error("addresses {first} and {second} are of one family: ask for one address per family")]
    TwoOfOneFamily { first: Vip, second: Vip },
}

fn found_hint(found_in: Option<&GroupName>) -> String {
    found_in.map_or_else(String::new, |group| format!(": it belongs to ServiceGroup {group}"))
}

/// What has to happen before asking again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Some Service gives an address or a port back, or a range is added.
    Release,
    /// A node advertising the subnet.
    Node,
    /// The user edits the Service or the group.
    Edit,
}

impl AllocateError {
    pub fn waits_for(&self) -> WaitsFor {
        match self {
            Self::Exhausted { .. } | Self::InUse { .. } | Self::PortTaken { .. } | Self::OtherPods { .. } => {
                WaitsFor::Release
            }
            Self::NoEligibleRange { .. } => WaitsFor::Node,
            Self::NoSuchGroup { .. }
            | Self::GroupRefused { .. }
            | Self::NoRange { .. }
            | Self::OutOfPool { .. }
            | Self::WrongFamily { .. }
            | Self::Excluded { .. }
            | Self::TwoOfOneFamily { .. } => WaitsFor::Edit,
        }
    }

    /// One word out of a fixed list: fit for a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoSuchGroup { .. } => "no_such_group",
            Self::GroupRefused { .. } => "group_refused",
            Self::NoRange { .. } => "no_range",
            Self::NoEligibleRange { .. } => "no_eligible_range",
            Self::Exhausted { .. } => "exhausted",
            Self::InUse { .. } => "in_use",
            Self::PortTaken { .. } => "port_taken",
            Self::OtherPods { .. } => "other_pods",
            Self::OutOfPool { .. } => "out_of_pool",
            Self::WrongFamily { .. } => "wrong_family",
            Self::Excluded { .. } => "excluded",
            Self::TwoOfOneFamily { .. } => "two_of_one_family",
        }
    }
}
