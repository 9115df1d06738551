//! What the real server fills in or keeps when an object of a built-in kind is written.

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use super::kinds::Kind;

/// Counters behind cluster addresses. Addresses are never reused: no test lives
/// long enough to use 65,000 of them.
#[derive(Debug, Default)]
pub(crate) struct Given {
    cluster_ips: u16,
}

impl Given {
    fn cluster_ip(&mut self, family: &str) -> String {
        self.cluster_ips = self.cluster_ips.wrapping_add(1).max(1);
        match family {
            "IPv6" => format!("fd00:10:96::{:x}", self.cluster_ips),
            _ => format!("10.96.{}.{}", self.cluster_ips >> 8, self.cluster_ips & 0xff),
        }
    }
}

/// Completes an object about to be stored. `old` is what it replaces.
pub(crate) fn complete(kind: &Kind, given: &mut Given, object: &mut Value, old: Option<&Value>) {
    match kind.qualified().as_str() {
        "services" => service(given, object, old),
        "namespaces" => namespace(object, old),
        "secrets" => secret(object),
        _ => {}
    }
}

fn or_insert(map: &mut Value, key: &str, value: impl FnOnce() -> Value) {
    if map[key].is_null() {
        map[key] = value();
    }
}

fn namespace(object: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        object["status"] = json!({"phase": "Active"});
        let name = object["metadata"]["name"].clone();
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
}

/// `stringData` is write-only: it ends up in `data`.
fn secret(object: &mut Value) {
    or_insert(object, "type", || "Opaque".into());
    let Some(map) = object.as_object_mut() else { return };
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        for (key, text) in plain {
            let bytes = ByteString(text.as_str().unwrap_or_default().as_bytes().to_vec());
            object["data"][key] = json!(bytes);
        }
    }
}

fn service(given: &mut Given, object: &mut Value, old: Option<&Value>) {
    or_insert(object, "status", || json!({}));
    or_insert(&mut object["status"], "loadBalancer", || json!({}));
    let spec = &mut object["spec"];
    or_insert(spec, "type", || "ClusterIP".into());
    or_insert(spec, "sessionAffinity", || "None".into());
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        or_insert(port, "protocol", || "TCP".into());
        let number = port["port"].clone();
        or_insert(port, "targetPort", || number);
    }
    let kind_of = spec["type"].as_str().unwrap_or_default().to_string();
    if kind_of == "ExternalName" {
        return;
    }
    or_insert(spec, "internalTrafficPolicy", || "Cluster".into());
    let was = old.map_or("", |old| old["spec"]["type"].as_str().unwrap_or_default());
    let is_lb = kind_of == "LoadBalancer";
    if is_lb || kind_of == "NodePort" {
        or_insert(spec, "externalTrafficPolicy", || "Cluster".into());
    }
    if is_lb {
        or_insert(spec, "allocateLoadBalancerNodePorts", || true.into());
    } else if was == "LoadBalancer" {
        // What only a LoadBalancer has goes with the type, unless it was sent anew.
        let before = old.map(|old| old["spec"].clone()).unwrap_or_default();
        for only in ["allocateLoadBalancerNodePorts", "loadBalancerClass", "externalTrafficPolicy"] {
            let stays = only == "externalTrafficPolicy" && kind_of == "NodePort";
            if !stays && spec[only] == before[only] {
                remove(spec, only);
            }
        }
        object["status"]["loadBalancer"] = json!({});
    }
    cluster_addresses(given, &mut object["spec"], old);
}

fn cluster_addresses(given: &mut Given, spec: &mut Value, old: Option<&Value>) {
    // A client that never read the addresses does not take them away by a PUT.
    if let Some(old) = old {
        for kept in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            let before = &old["spec"][kept];
            if spec[kept].is_null() && !before.is_null() {
                spec[kept] = before.clone();
            }
        }
    }
    or_insert(spec, "ipFamilyPolicy", || "SingleStack".into());
    let dual = spec["ipFamilyPolicy"] != "SingleStack";
    if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    let families = spec["ipFamilies"].as_array_mut().expect("just made a list");
    if dual && families.len() == 1 {
        let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.into());
    }
    if !dual {
        families.truncate(1);
    }
    let families = families.clone();
    if spec["clusterIP"] == "None" {
        spec["clusterIPs"] = json!(["None"]);
        return;
    }
    let mut addresses = spec["clusterIPs"].as_array().cloned().unwrap_or_default();
    if addresses.is_empty() && spec["clusterIP"].as_str().is_some_and(|ip| !ip.is_empty()) {
        addresses.push(spec["clusterIP"].clone());
    }
    addresses.truncate(families.len());
    for family in &families[addresses.len()..] {
        addresses.push(given.cluster_ip(family.as_str().unwrap_or_default()).into());
    }
    spec["clusterIP"] = addresses[0].clone();
    spec["clusterIPs"] = addresses.into();
}

pub(crate) fn remove(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut().and_then(|map| map.remove(key))
}

/// An Event is one object under two names; these fields differ.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn renamed(map: &Map<String, Value>, names: impl Fn(&str) -> Option<&'static str>) -> Map<String, Value> {
    map.iter().map(|(key, value)| (names(key).unwrap_or(key).to_string(), value.clone())).collect()
}

pub(crate) fn events_from_core(stored: &Value) -> Value {
    let Some(map) = stored.as_object() else {
        return stored.clone();
    };
    let mut shown =
        renamed(map, |key| EVENT_FIELDS.iter().find(|(core, _)| *core == key).map(|(_, events)| *events));
    shown.insert("apiVersion".into(), "events.k8s.io/v1".into());
    Value::Object(shown)
}

pub(crate) fn events_to_core(shown: Value) -> Value {
    let Some(map) = shown.as_object() else {
        return shown;
    };
    let mut stored =
        renamed(map, |key| EVENT_FIELDS.iter().find(|(_, events)| *events == key).map(|(core, _)| *core));
    stored.insert("apiVersion".into(), "v1".into());
    stored.entry("involvedObject").or_insert_with(|| json!({}));
    Value::Object(stored)
}
