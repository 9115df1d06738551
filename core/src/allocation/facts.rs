//! What Services ask for and have, and what groups offer: plain values, already read.

use std::collections::BTreeSet;

use crate::facts::PoolType;
use crate::ids::{ObjectKey, Vip};
use crate::pools::{Families, Group, GroupName, SharingTerms};

/// Whom a Service is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceOwner {
    /// A LoadBalancer Service that asks for us.
    Ours,
    /// A LoadBalancer Service that is somebody else's. Never touched; its addresses
    /// are only recorded, so that nobody else is given one of them.
    Foreign,
    /// No LoadBalancer, or no longer.
    NoLoadBalancer,
}

/// The condition on a Service that says what became of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCondition {
    /// It has what it asks for.
    pub holds: bool,
    /// One CamelCase word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// A Service as the allocator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAsk {
    pub key: ObjectKey,
    /// Another one means another Service of the same name.
    pub uid: String,
    /// Creation time in seconds; only its order counts.
    pub created: i64,
    pub whose: ServiceOwner,
    /// It carries our mark (`allocated-by`).
    pub marked: bool,
    /// The addresses its status shows, in its order.
    pub held: Vec<Vip>,
    /// `allocated-from`, `pool-type` and `skip-ipv6-dad` as they are.
    pub from: Option<String>,
    pub pool_type: Option<PoolType>,
    pub skip_ipv6_dad: bool,
    /// `service-group`.
    pub group: Option<String>,
    /// The addresses the user asks for, or what is wrong with them.
    pub explicit: Result<Vec<Vip>, String>,
    /// They come from the deprecated field `spec.loadBalancerIP`.
    pub deprecated_field: bool,
    pub families: Families,
    pub terms: SharingTerms,
    /// `multi-pool`: overrides the group.
    pub multi_pool: Option<bool>,
    pub re_evaluate: bool,
    /// What it was told last.
    pub told: Option<ServiceCondition>,
}

/// Where a group's addresses come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupSource {
    /// Ranges kept here.
    Ranges { group: Group, multi_pool: bool, balance_pools: bool },
    /// Somebody else's book, who has to be asked.
    Provider,
}

/// A group that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    pub name: GroupName,
    /// Creation time in seconds; only its order counts.
    pub created: i64,
    pub announce: PoolType,
    pub skip_ipv6_dad: bool,
    pub source: GroupSource,
    pub namespaces: BTreeSet<String>,
    pub namespace_default: bool,
    pub enforce_namespaces: bool,
}
