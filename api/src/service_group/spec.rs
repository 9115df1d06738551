//! ServiceGroup: where Services get their addresses from.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::schema;

/// Where addresses come from (exactly one of local, remote, netbox, external), and
/// which namespaces may use them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "purelb.io",
    version = "v2",
    kind = "ServiceGroup",
    plural = "servicegroups",
    shortname = "sg",
    shortname = "sgs",
    namespaced,
    status = "ServiceGroupStatus",
    derive = "PartialEq",
    doc = "A pool of addresses for Services of type LoadBalancer. Read only from the namespace purelb is installed in.",
    printcolumn(name = "Announce", type_ = "string", json_path = ".status.announce"),
    printcolumn(name = "IPAM", type_ = "string", json_path = ".status.ipam"),
    printcolumn(name = "Allocated-V4", type_ = "integer", json_path = ".status.allocatedIPv4"),
    printcolumn(name = "Allocated-V6", type_ = "integer", json_path = ".status.allocatedIPv6"),
    printcolumn(name = "Addresses", type_ = "string", json_path = ".status.addresses", priority = 1),
    printcolumn(name = "Available-V4", type_ = "integer", json_path = ".status.availableIPv4", priority = 1),
    printcolumn(name = "Available-V6", type_ = "integer", json_path = ".status.availableIPv6", priority = 1),
    printcolumn(name = "Namespaces", type_ = "string", json_path = ".spec.namespaces", priority = 1),
    printcolumn(name = "Enforced", type_ = "boolean", json_path = ".spec.enforceNamespaces", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("[has(self.local), has(self.remote), has(self.netbox), has(self.external)].filter(x, x).size() == 1")
        .message("give exactly one of local, remote, netbox and external"),
    validation = Rule::new("!self.namespaceDefault || (has(self.namespaces) && self.namespaces.size() > 0)")
        .message("namespaceDefault needs a non-empty list of namespaces")
        .field_path(".namespaceDefault"),
    validation = Rule::new("!self.enforceNamespaces || (has(self.namespaces) && self.namespaces.size() > 0)")
        .message("enforceNamespaces needs a non-empty list of namespaces")
        .field_path(".enforceNamespaces"),
    validation = Rule::new("!has(self.remote) || !has(self.remote.fencePolicy)")
        .message("fencePolicy is for local pools: a remote address is not fenced")
        .field_path(".remote.fencePolicy")
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceGroupSpec {
    /// Addresses of subnets the nodes are in: one elected node announces each, on the
    /// interface of the matching subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<PoolSet>,
    /// Addresses outside the nodes' subnets: on every node's dummy interface, for
    /// routing protocols to pick up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<PoolSet>,
    /// Addresses kept by a NetBox; announced like remote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netbox: Option<NetboxSource>,
    /// Addresses kept by a provider of the operator's own, over gRPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalSource>,
    /// A Service of these namespaces that names no group uses this one.
    #[schemars(schema_with = "schema::namespaces")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Among several groups that list a namespace, the one its Services use.
    #[serde(default)]
    pub namespace_default: bool,
    /// Makes the list a boundary: only these namespaces use the group, and they use
    /// no other.
    #[serde(default)]
    pub enforce_namespaces: bool,
}

/// Ranges of addresses. One range per family by v4pool and v6pool, or several by
/// v4pools and v6pools.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(
    validation = Rule::new("has(self.v4pool) || has(self.v4pools) || has(self.v6pool) || has(self.v6pools)")
        .message("give at least one of v4pool, v4pools, v6pool and v6pools"),
    validation = Rule::new("!(has(self.v4pool) && has(self.v4pools))")
        .message("v4pool and v4pools exclude each other")
        .field_path(".v4pool"),
    validation = Rule::new("!(has(self.v6pool) && has(self.v6pools))")
        .message("v6pool and v6pools exclude each other")
        .field_path(".v6pool"),
    validation = Rule::new("!(self.multiPool && self.balancePools)")
        .message("multiPool and balancePools exclude each other")
        .field_path(".multiPool")
)]
#[serde(rename_all = "camelCase")]
pub struct PoolSet {
    /// The one IPv4 range.
    #[schemars(schema_with = "schema::v4_pool")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4pool: Option<AddressPool>,
    /// The one IPv6 range.
    #[schemars(schema_with = "schema::v6_pool")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6pool: Option<AddressPool>,
    /// IPv4 ranges, used in this order.
    #[schemars(schema_with = "schema::v4_pools")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub v4pools: Vec<AddressPool>,
    /// IPv6 ranges, used in this order.
    #[schemars(schema_with = "schema::v6_pools")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub v6pools: Vec<AddressPool>,
    /// Put IPv6 addresses on interfaces without duplicate address detection.
    #[serde(rename = "skipIPv6DAD", default)]
    pub skip_ipv6_dad: bool,
    /// What the node that has an address does with it while the API server is away: Strict
    /// withdraws it at the renew deadline, Ride keeps it while nobody else claims it. Without
    /// it, as the daemons are configured. Only for local pools.
    #[schemars(extend("enum" = ["Ride", "Strict"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence_policy: Option<String>,
    /// Give each Service one address of every range that some node can announce.
    #[serde(default)]
    pub multi_pool: bool,
    /// Take each address from the range with the fewest in use.
    #[serde(default)]
    pub balance_pools: bool,
}

/// One range of addresses and the subnet it belongs to.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPool {
    /// A prefix (192.0.2.0/28), a range (192.0.2.10-192.0.2.20), or one address.
    #[schemars(length(min = 2, max = schema::LONGEST_POOL))]
    pub pool: String,
    /// The subnet that contains the pool.
    #[schemars(length(min = 3, max = 64))]
    pub subnet: String,
    /// Prefix length of the address on the interface: `default` for the subnet's, or
    /// `/n`.
    #[schemars(length(min = 2, max = 8))]
    #[serde(default = "default_aggregation")]
    pub aggregation: String,
}

impl ServiceGroup {
    /// What [`ServiceGroupStatus::last_good`] is to say of the present spec. `None`: it is
    /// longer than any spec of use.
    pub fn spec_text(&self) -> Option<String> {
        serde_json::to_string(&self.spec).ok().filter(|text| text.len() <= schema::LONGEST_SPEC)
    }

    /// The object as it was when it was last right, if its status knows.
    pub fn last_good(&self) -> Option<Self> {
        let text = self.status.as_ref()?.last_good.as_deref()?;
        Some(Self { spec: serde_json::from_str(text).ok()?, ..self.clone() })
    }
}

pub(crate) fn default_aggregation() -> String {
    "default".to_owned()
}

/// A NetBox that keeps the addresses.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("isURL(self.url) && url(self.url).getScheme() in ['http', 'https'] && url(self.url).getHost() != ''")
        .message("url must be an http or https address")
        .field_path(".url"),
    validation = Rule::new("self.aggregation == 'default' || (self.aggregation.matches('^/[0-9]{1,3}$') && int(self.aggregation.substring(1)) >= 8 && int(self.aggregation.substring(1)) <= 128)")
        .message("aggregation must be 'default' or a prefix length from /8 to /128")
        .field_path(".aggregation")
)]
pub struct NetboxSource {
    /// Address of the NetBox, such as https://netbox.example.com/
    #[schemars(length(min = 8, max = 2048))]
    pub url: String,
    /// Tenant whose addresses are ours.
    #[schemars(length(min = 1, max = 256))]
    pub tenant: String,
    /// Prefix length of the address on the dummy interface: `default` or `/n`. Up to /32 it is
    /// that of IPv4 addresses, from /33 on that of IPv6 addresses.
    #[schemars(length(min = 2, max = 8))]
    #[serde(default = "default_aggregation")]
    pub aggregation: String,
    /// Where the API token is; without it the allocator's environment variable
    /// NETBOX_USER_TOKEN is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret: Option<SecretKey>,
}

/// A key of a Secret in the namespace purelb is installed in.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in it.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default = "default_token_key")]
    pub key: String,
}

fn default_token_key() -> String {
    "token".to_owned()
}

/// A provider that keeps the addresses, asked over a unix socket.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalSource {
    /// The provider's name, shown as IPAM.
    #[schemars(length(min = 1, max = 63))]
    pub provider: String,
    /// Where it listens.
    #[schemars(length(min = 2, max = 107), regex(pattern = "^/"))]
    #[serde(default = "default_socket")]
    pub socket: String,
    /// How its addresses are announced.
    #[schemars(extend("enum" = ["local", "remote"]))]
    #[serde(default = "default_announce")]
    pub announce: String,
}

fn default_socket() -> String {
    "/var/run/purelb/ipam.sock".to_owned()
}

fn default_announce() -> String {
    "local".to_owned()
}

/// What the allocator reports.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceGroupStatus {
    /// Namespaces whose Services use this group by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_namespaces: Vec<String>,
    /// Local or Remote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce: Option<String>,
    /// Who keeps the addresses: Cluster, or the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<String>,
    /// The ranges in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Addresses that Services keep although no range of the group has them any more:
    /// nodes go on serving these, and no others, outside the ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retained: Vec<String>,
    /// IPv4 addresses given to Services.
    #[serde(rename = "allocatedIPv4", default, skip_serializing_if = "Option::is_none")]
    pub allocated_ipv4: Option<i64>,
    /// IPv6 addresses given to Services.
    #[serde(rename = "allocatedIPv6", default, skip_serializing_if = "Option::is_none")]
    pub allocated_ipv6: Option<i64>,
    /// IPv4 addresses left; absent if unknown.
    #[serde(rename = "availableIPv4", default, skip_serializing_if = "Option::is_none")]
    pub available_ipv4: Option<i64>,
    /// IPv6 addresses left, at most 2^63-1; absent if unknown.
    #[serde(rename = "availableIPv6", default, skip_serializing_if = "Option::is_none")]
    pub available_ipv6: Option<i64>,
    /// The spec as it was when it was last right, as JSON. In use while the present one
    /// is wrong, also by an allocator that starts then.
    #[schemars(length(max = schema::LONGEST_SPEC))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good: Option<String>,
    /// Whether the group is in use, and why not.
    #[schemars(schema_with = "schema::conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
