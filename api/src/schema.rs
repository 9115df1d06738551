//! Pieces of schema that derive macros do not write: rules that depend on the
//! address family, and types of Kubernetes itself.
//!
//! Every list and string has an upper bound: the API server refuses rules whose
//! cost it cannot bound, and a daemon should not have to read a book.

use purelb_core::{Family, durations};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::service_group::AddressPool;

/// Ranges of one family in one group.
pub(crate) const MOST_RANGES: usize = 128;
/// A spec as text: all the ranges there may be, and a good many namespaces.
pub(crate) const LONGEST_SPEC: usize = 128 << 10;
/// Two IPv6 addresses in full and a dash fit.
pub(crate) const LONGEST_POOL: usize = 96;

fn rule(field: &str, rule: &str, message: &str) -> Value {
    let mut value = json!({"rule": rule, "message": message});
    if !field.is_empty() {
        value["fieldPath"] = json!(field);
    }
    value
}

/// A rule about an optional field that holds a duration, `d` in the rule. True where the
/// field is not there, or where its pattern already says what is wrong.
pub(crate) fn duration_within(field: &str, rule: &str) -> String {
    let pattern = durations::PATTERN;
    format!(
        "!has(self.{field}) || !self.{field}.matches('{pattern}') || \
         [duration(self.{field}.matches('^[0-9.]+$') ? self.{field} + 's' : self.{field})].all(d, {rule})"
    )
}

/// Rules of one AddressPool. Each is true when an earlier one already says what is
/// wrong, so that a mistake is reported once, by its own name.
fn pool_rules(family: Family) -> Value {
    let number = match family {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    let bits = family.bits();
    let is_ip = |x: &str| format!("(isIP({x}) && ip({x}).family() == {number})");
    let is_cidr = |x: &str| format!("(isCIDR({x}) && cidr({x}).ip().family() == {number})");
    let ends = "self.pool.split('-')";
    let pool_ok = format!(
        "(self.pool.contains('-') ? {ends}.size() == 2 && {ends}.all(x, {ip_of_end}) : \
         self.pool.contains('/') ? {cidr} : {ip})",
        ip_of_end = is_ip("x.trim()"),
        cidr = is_cidr("self.pool"),
        ip = is_ip("self.pool"),
    );
    let subnet_ok = is_cidr("self.subnet");
    let inside = format!(
        "!({pool_ok} && {subnet_ok}) || (self.pool.contains('-') ? \
         {ends}.all(x, cidr(self.subnet).containsIP(x.trim())) : self.pool.contains('/') ? \
         cidr(self.subnet).containsCIDR(self.pool) : cidr(self.subnet).containsIP(self.pool))"
    );
    let aggregation = format!(
        "self.aggregation == 'default' || (self.aggregation.matches('^/[0-9]{{1,3}}$') && \
         int(self.aggregation.substring(1)) >= 8 && int(self.aggregation.substring(1)) <= {bits})"
    );
    json!([
        rule(".pool", &pool_ok, &format!("pool must be an {family} prefix, a range from-to, or one address")),
        rule(".subnet", &subnet_ok, &format!("subnet must be an {family} prefix such as address/length")),
        rule(".pool", &inside, "pool must lie inside subnet"),
        rule(
            ".aggregation",
            &aggregation,
            &format!("aggregation must be 'default' or a prefix length from /8 to /{bits}")
        ),
    ])
}

fn pool(generator: &mut SchemaGenerator, family: Family) -> Schema {
    let mut schema = generator.subschema_for::<AddressPool>();
    schema.insert("x-kubernetes-validations".into(), pool_rules(family));
    schema
}

fn pools(generator: &mut SchemaGenerator, family: Family) -> Schema {
    let items = pool(generator, family);
    json_schema!({
        "type": "array",
        "items": items,
        "minItems": 1,
        "maxItems": MOST_RANGES,
        "x-kubernetes-list-type": "atomic",
    })
}

pub(crate) fn v4_pool(generator: &mut SchemaGenerator) -> Schema {
    pool(generator, Family::V4)
}

pub(crate) fn v6_pool(generator: &mut SchemaGenerator) -> Schema {
    pool(generator, Family::V6)
}

pub(crate) fn v4_pools(generator: &mut SchemaGenerator) -> Schema {
    pools(generator, Family::V4)
}

pub(crate) fn v6_pools(generator: &mut SchemaGenerator) -> Schema {
    pools(generator, Family::V6)
}

pub(crate) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 1024,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
    })
}

/// The kernel's limit on interface names, and what the kernel refuses in them.
fn interface_name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 15, "pattern": r"^[^\s/]+$"})
}

pub(crate) fn interfaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": interface_name(),
    })
}

pub(crate) fn dummy_interface(_: &mut SchemaGenerator) -> Schema {
    let mut schema = interface_name();
    schema["default"] = json!("kube-lb0");
    Schema::try_from(schema).expect("an object is a schema")
}

/// `metav1.LabelSelector`, with what its own validation demands.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    let values_rule = rule(
        ".values",
        "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 : \
         !has(self.values) || self.values.size() == 0",
        "In and NotIn need values; Exists and DoesNotExist take none",
    );
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "minLength": 1, "maxLength": 317},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {
                            "type": "array",
                            "maxItems": 64,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63},
                        },
                    },
                    "x-kubernetes-validations": [values_rule],
                },
            },
        },
    })
}

/// `metav1.Condition`, one per type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
            },
        },
    })
}
