//! LBNodeAgent: how nodes take part.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use purelb_core::durations;
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::schema;

/// Which nodes it is for, and which of their interfaces take part.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "purelb.io",
    version = "v2",
    kind = "LBNodeAgent",
    plural = "lbnodeagents",
    shortname = "lbna",
    shortname = "lbnas",
    namespaced,
    status = "LBNodeAgentStatus",
    derive = "PartialEq",
    doc = "How the nodes it selects take part in announcing addresses. Read only from the namespace purelb is installed in.",
    printcolumn(name = "LocalInterface", type_ = "string", json_path = ".spec.local.localInterface"),
    printcolumn(name = "Interfaces", type_ = "string", json_path = ".spec.local.interfaces"),
    printcolumn(name = "DummyInterface", type_ = "string", json_path = ".spec.local.dummyInterface"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct LBNodeAgentSpec {
    /// The nodes it is for; without it, all that no other object selects.
    #[schemars(schema_with = "schema::label_selector")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    #[serde(default)]
    pub local: LocalSpec,
}

/// Interfaces, announcements and address lifetimes.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalSpec {
    /// `default`: the interfaces of the default routes; `none`: only those listed; or
    /// a regular expression over interface names (not anchored).
    #[schemars(length(min = 1, max = 256))]
    // A wrong expression makes the evaluation fail, which refuses the object and
    // quotes what is wrong with it; both branches are true on purpose.
    #[x_kube(validation = Rule::new("'eth0'.matches(self) ? true : true")
        .message("localInterface must be 'default', 'none' or a regular expression"))]
    #[serde(default = "default_interface")]
    pub local_interface: String,
    /// More interfaces, by exact name.
    #[schemars(schema_with = "schema::interfaces")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Where addresses of remote pools go.
    #[schemars(schema_with = "schema::dummy_interface")]
    #[serde(default = "default_dummy")]
    pub dummy_interface: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidacy: Option<CandidacySpec>,
    /// Ask the segments of these interfaces who is there: a node that died is replaced as soon as
    /// nobody answers for it, and not only when its Lease has run out.
    #[serde(default = "yes")]
    pub detector: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub garp_config: Option<GarpSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_config: Option<AddressConfigSpec>,
}

impl Default for LocalSpec {
    fn default() -> Self {
        Self {
            local_interface: default_interface(),
            interfaces: Vec::new(),
            dummy_interface: default_dummy(),
            candidacy: None,
            detector: true,
            garp_config: None,
            address_config: None,
        }
    }
}

fn default_interface() -> String {
    "default".to_owned()
}

fn default_dummy() -> String {
    "kube-lb0".to_owned()
}

/// What of the Node's state counts in elections.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[x_kube(
    validation = Rule::new(schema::duration_within("notReadyAfter", "d == duration('0s') || (d >= duration('10s') && d <= duration('24h'))"))
        .message("notReadyAfter must be 0 (never) or from 10s to 24h")
        .field_path(".notReadyAfter")
)]
#[serde(rename_all = "camelCase")]
pub struct CandidacySpec {
    /// A Node labelled node.kubernetes.io/exclude-from-external-load-balancers takes part
    /// in no election.
    #[serde(default = "yes")]
    pub exclude_label: bool,
    /// A Node that is NotReady or NetworkUnavailable for this long ranks behind all others:
    /// 0 (never) or from 10s to 24h (60s).
    #[schemars(length(min = 1, max = 16), regex(pattern = durations::PATTERN))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready_after: Option<String>,
}

impl Default for CandidacySpec {
    fn default() -> Self {
        Self { exclude_label: true, not_ready_after: None }
    }
}

/// Gratuitous ARP and unsolicited neighbour advertisements.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[x_kube(
    validation = Rule::new(schema::duration_within("interval", "d >= duration('100ms') && d <= duration('5s')"))
        .message("interval must be from 100ms to 5s")
        .field_path(".interval"),
    validation = Rule::new(schema::duration_within("initialDelay", "d <= duration('5s')"))
        .message("initialDelay must be at most 5s")
        .field_path(".initialDelay"),
    validation = Rule::new(schema::duration_within("refresh", "d == duration('0s') || (d >= duration('10s') && d <= duration('24h'))"))
        .message("refresh must be 0 (off) or from 10s to 24h")
        .field_path(".refresh"),
    validation = Rule::new(schema::duration_within("interval", "!has(self.intervalMs) || d.getMilliseconds() == self.intervalMs"))
        .message("interval and intervalMs say different things; give one of them")
        .field_path(".interval"),
    validation = Rule::new(schema::duration_within("initialDelay", "!has(self.delayMs) || d.getMilliseconds() == self.delayMs"))
        .message("initialDelay and delayMs say different things; give one of them")
        .field_path(".initialDelay")
)]
#[serde(rename_all = "camelCase")]
pub struct GarpSpec {
    /// Whether they are sent.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How many.
    #[schemars(range(min = 1, max = 10))]
    #[serde(default = "default_count")]
    pub count: i64,
    /// Milliseconds between two of them (500).
    #[schemars(range(min = 100, max = 5000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<i64>,
    /// Milliseconds before the first, after the kernel shows the address (0).
    #[schemars(range(min = 0, max = 5000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<i64>,
    /// The same as intervalMs, as a duration: 500ms, 1.5s; a number alone is seconds.
    #[schemars(length(min = 1, max = 16), regex(pattern = durations::PATTERN))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// The same as delayMs, as a duration.
    #[schemars(length(min = 1, max = 16), regex(pattern = durations::PATTERN))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_delay: Option<String>,
    /// Announce again every so often for as long as the address is held, for switches
    /// and routers that forget: 0 (off) or from 10s to 24h.
    #[schemars(length(min = 1, max = 16), regex(pattern = durations::PATTERN))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<String>,
    /// Check before each that the address is still on the interface.
    #[serde(default = "yes")]
    pub verify_before_send: bool,
}

impl Default for GarpSpec {
    fn default() -> Self {
        Self {
            enabled: true,
            count: default_count(),
            interval_ms: None,
            delay_ms: None,
            interval: None,
            initial_delay: None,
            refresh: None,
            verify_before_send: true,
        }
    }
}

fn yes() -> bool {
    true
}

fn default_count() -> i64 {
    3
}

/// How addresses are put on interfaces.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressConfigSpec {
    /// On real interfaces, for local pools.
    #[schemars(schema_with = "on_local_interface")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_interface: Option<AddressSpec>,
    /// On the dummy interface, for remote pools.
    #[schemars(schema_with = "on_dummy_interface")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dummy_interface: Option<AddressSpec>,
}

/// Lifetimes in seconds and flags of an address.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(
    validation = Rule::new("!has(self.preferredLifetime) || self.validLifetime == 0 || self.preferredLifetime <= self.validLifetime")
        .message("preferredLifetime may not be longer than validLifetime")
        .field_path(".preferredLifetime")
)]
#[serde(rename_all = "camelCase")]
pub struct AddressSpec {
    /// Seconds until the kernel removes the address unless renewed; 0 = never.
    #[schemars(range(min = 0, max = 2147483647))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_lifetime: Option<i64>,
    /// Seconds until the kernel stops preferring it as a source.
    #[schemars(range(min = 0, max = 2147483647))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_lifetime: Option<i64>,
    /// Add no route for the prefix with the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_prefix_route: Option<bool>,
}

fn with_defaults(generator: &mut SchemaGenerator, valid: i64, no_prefix_route: bool) -> Schema {
    let mut schema = generator.subschema_for::<AddressSpec>();
    if let Some(properties) = schema.get_mut("properties") {
        properties["validLifetime"]["default"] = json!(valid);
        properties["noPrefixRoute"]["default"] = json!(no_prefix_route);
    }
    schema
}

fn on_local_interface(generator: &mut SchemaGenerator) -> Schema {
    with_defaults(generator, 300, true)
}

fn on_dummy_interface(generator: &mut SchemaGenerator) -> Schema {
    with_defaults(generator, 0, false)
}

/// What the daemons report.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LBNodeAgentStatus {
    /// Whether the object is in use, and why not.
    #[schemars(schema_with = "schema::conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
