//! Names that others rely on: annotations, labels, the Lease's name.

use purelb_core::{Family, NodeName};

/// Where purelb is installed unless told otherwise.
pub const DEFAULT_NAMESPACE: &str = "purelb-system";
/// The load-balancer class that is ours unless told otherwise.
pub const DEFAULT_CLASS: &str = "purelb.io/purelbv2";
/// The group used when nothing else names one.
pub const DEFAULT_GROUP: &str = "default";

/// The Lease's annotations.
pub const SUBNETS: &str = "purelb.io/subnets";
pub const INSTANCE: &str = "purelb.io/instance";
pub const DRAINING: &str = "purelb.io/draining";
pub const ANNOUNCED: &str = "purelb.io/announced";
pub const DECLINED: &str = "purelb.io/declined";
pub const RANK: &str = "purelb.io/rank";
pub const HARDWARE_ADDRESSES: &str = "purelb.io/hardware-addresses";
pub const CONTROL_ENDPOINT: &str = "purelb.io/control-endpoint";

/// On Services, by users.
pub const SERVICE_GROUP: &str = "purelb.io/service-group";
pub const ADDRESSES: &str = "purelb.io/addresses";
pub const ALLOW_SHARED_IP: &str = "purelb.io/allow-shared-ip";
pub const ALLOW_LOCAL: &str = "purelb.io/allow-local";
pub const MULTI_POOL: &str = "purelb.io/multi-pool";
pub const RE_EVALUATE: &str = "purelb.io/re-evaluate";
pub const NODE_AFFINITY: &str = "purelb.io/node-affinity";
/// The one value [`NODE_AFFINITY`] knows.
pub const AFFINITY_SERVICE_ENDPOINTS: &str = "service-endpoints";

/// On Services, by the allocator.
pub const ALLOCATED_BY: &str = "purelb.io/allocated-by";
/// The value of [`ALLOCATED_BY`] on Services that are ours.
pub const BRAND: &str = "PureLB";
pub const ALLOCATED_FROM: &str = "purelb.io/allocated-from";
pub const POOL_TYPE: &str = "purelb.io/pool-type";
pub const POOL_TYPE_LOCAL: &str = "local";
pub const POOL_TYPE_REMOTE: &str = "remote";
pub const SKIP_IPV6_DAD: &str = "purelb.io/skip-ipv6-dad";
/// On Services without an address when a new leader of the allocators took over.
pub const TAKEN_OVER: &str = "purelb.io/taken-over-by";

/// On Services, by the daemons.
pub const ANNOUNCING_IPV4: &str = "purelb.io/announcing-IPv4";
pub const ANNOUNCING_IPV6: &str = "purelb.io/announcing-IPv6";

/// On ServiceGroups and LBNodeAgents that `purelbctl migrate` made: namespace and name of
/// the v1 object.
pub const MIGRATED_FROM: &str = "purelb.io/migrated-from";

/// The slot annotation for addresses of this family.
pub fn announcing(family: Family) -> &'static str {
    match family {
        Family::V4 => ANNOUNCING_IPV4,
        Family::V6 => ANNOUNCING_IPV6,
    }
}

/// Labels of the Lease, by which watches are filtered.
pub const LABEL_NAME: (&str, &str) = ("app.kubernetes.io/name", "purelb");
pub const LABEL_COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "lbnodeagent");
/// Selects the node Leases in a list or watch.
pub const LEASE_SELECTOR: &str = "app.kubernetes.io/name=purelb,app.kubernetes.io/component=lbnodeagent";

const LEASE_PREFIX: &str = "purelb-node-";

pub fn lease_name(node: &NodeName) -> String {
    format!("{LEASE_PREFIX}{node}")
}

/// The node a Lease of this name belongs to, if it is one of ours.
pub fn node_of_lease(name: &str) -> Option<NodeName> {
    NodeName::new(name.strip_prefix(LEASE_PREFIX)?).ok()
}

/// An administrator vouches that the machine is down.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Asks load balancers to leave the node alone.
pub const LABEL_EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
