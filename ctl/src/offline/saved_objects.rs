//! Saved objects: what `kubectl get … -o yaml` (or json) printed, read back.
//!
//! Offline commands work on these alone. A file may hold one object, several
//! documents, Lists, or a JSON array; kinds we do not use are left out.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use purelb_api::lease::LeaseProblem;
use purelb_api::{LBNodeAgent, ServiceGroup, names};
use purelb_core::facts::LeaseFacts;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{CommandError, CommandResult};

/// An object with where it came from, for messages.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcedObject<T> {
    pub file: String,
    pub object: T,
}

#[derive(Clone, Debug, Default)]
pub struct SavedObjects {
    pub leases: Vec<Lease>,
    pub services: Vec<Service>,
    pub nodes: Vec<Node>,
    pub slices: Vec<EndpointSlice>,
    pub groups: Vec<SourcedObject<ServiceGroup>>,
    pub agents: Vec<SourcedObject<LBNodeAgent>>,
    /// v2 objects of ours once more, as they were written: typing mistakes show only there.
    pub raw: Vec<SourcedObject<Value>>,
    /// v1 objects, as they are.
    pub old: Vec<SourcedObject<Value>>,
    /// Objects of our kinds that could not be read, with the reason.
    pub unreadable: Vec<SourcedObject<String>>,
    /// How many other objects there were.
    pub others: usize,
    /// Leases that are not what they should be.
    pub notes: Vec<String>,
}

/// Reads all files; `-` is standard input.
pub fn read_files(files: &[PathBuf]) -> CommandResult<SavedObjects> {
    let mut saved = SavedObjects::default();
    for path in files {
        let name = path.display().to_string();
        for value in parse_documents(&name, &read_text(path)?)? {
            saved.add(&name, value);
        }
    }
    Ok(saved)
}

fn read_text(path: &Path) -> CommandResult<String> {
    let read = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|e| {
        let hint =
            "save objects with `kubectl get leases -n purelb-system -o yaml >FILE`, or give - for stdin";
        CommandError::new(format!("cannot read {}", path.display())).because(e).next(hint)
    })
}

/// All documents of a text, JSON or YAML.
pub fn parse_documents(file: &str, text: &str) -> CommandResult<Vec<Value>> {
    let wrong = |e: &dyn std::fmt::Display| {
        let what = format!("{file} is neither YAML nor JSON");
        CommandError::new(what).because(e).next("give it the output of `kubectl get … -o yaml` or `-o json`")
    };
    let trimmed = text.trim_start();
    if trimmed.starts_with(['{', '[']) {
        // Several JSON objects one after the other are fine, as with kubectl.
        let stream = serde_json::Deserializer::from_str(trimmed).into_iter();
        if let Ok(values) = stream.collect::<Result<Vec<Value>, _>>() {
            return Ok(values);
        }
        // What begins like JSON may still be YAML in flow style.
    }
    // A cluster's worth of Services is far above what suits a configuration file.
    let budget = serde_saphyr::budget! {
        max_events: 50_000_000,
        max_nodes: 20_000_000,
        max_documents: 100_000,
        max_total_scalar_bytes: 1 << 30,
    };
    // A namespace called `n` is no boolean; kubectl agrees.
    let options = serde_saphyr::options! { budget: budget, strict_booleans: true };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|e| wrong(&e))
}

impl SavedObjects {
    pub fn add(&mut self, file: &str, value: Value) {
        match value {
            Value::Array(list) => list.into_iter().for_each(|v| self.add(file, v)),
            Value::Object(ref map) => {
                let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
                let version = map.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
                let is_list = kind.ends_with("List") && map.get("items").is_some_and(Value::is_array);
                if is_list {
                    let (item_kind, item_version) =
                        (kind.trim_end_matches("List").to_owned(), version.to_owned());
                    self.add_items(file, value, &item_kind, &item_version);
                } else {
                    let (kind, version) = (kind.to_owned(), version.to_owned());
                    self.add_object(file, &version, &kind, value);
                }
            }
            Value::Null => {}
            _ => self.others += 1,
        }
    }

    /// Items of a typed list (from the API itself) carry no kind of their own.
    fn add_items(&mut self, file: &str, mut list: Value, kind: &str, version: &str) {
        let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) else { return };
        for mut item in std::mem::take(items) {
            if let Some(map) = item.as_object_mut()
                && !kind.is_empty()
                && !map.contains_key("kind")
            {
                map.insert("kind".into(), kind.into());
                map.insert("apiVersion".into(), version.into());
            }
            self.add(file, item);
        }
    }

    fn add_object(&mut self, file: &str, version: &str, kind: &str, value: Value) {
        match (version, kind) {
            ("coordination.k8s.io/v1", "Lease") => self.read_into(file, kind, value, |s, o| s.leases.push(o)),
            ("v1", "Service") => self.read_into(file, kind, value, |s, o| s.services.push(o)),
            ("v1", "Node") => self.read_into(file, kind, value, |s, o| s.nodes.push(o)),
            ("discovery.k8s.io/v1", "EndpointSlice") => {
                self.read_into(file, kind, value, |s, o| s.slices.push(o));
            }
            ("purelb.io/v2", "ServiceGroup") => {
                self.raw.push(SourcedObject { file: file.to_owned(), object: value.clone() });
                self.read_into(file, kind, value, |s, object| {
                    s.groups.push(SourcedObject { file: file.to_owned(), object });
                });
            }
            ("purelb.io/v2", "LBNodeAgent") => {
                self.raw.push(SourcedObject { file: file.to_owned(), object: value.clone() });
                self.read_into(file, kind, value, |s, object| {
                    s.agents.push(SourcedObject { file: file.to_owned(), object });
                });
            }
            ("purelb.io/v1", "ServiceGroup" | "LBNodeAgent") => {
                self.old.push(SourcedObject { file: file.to_owned(), object: value });
            }
            (v, "ServiceGroup" | "LBNodeAgent") if v.starts_with("purelb.io/") => {
                let object = format!(
                    "{kind} {}: apiVersion {v} is unknown; purelb.io/v2 is current",
                    object_name(&value)
                );
                self.unreadable.push(SourcedObject { file: file.to_owned(), object });
            }
            _ => self.others += 1,
        }
    }

    fn read_into<T: DeserializeOwned>(
        &mut self,
        file: &str,
        kind: &str,
        value: Value,
        put: impl FnOnce(&mut Self, T),
    ) {
        let name = object_name(&value);
        match serde_json::from_value(value) {
            Ok(object) => put(self, object),
            Err(e) => {
                let object = format!("{kind} {name}: {e}");
                self.unreadable.push(SourcedObject { file: file.to_owned(), object });
            }
        }
    }

    /// What the node Leases say. One without a holder counts; one that another node
    /// holds does not, as with the daemons. Of two for one node the later counts.
    pub fn lease_facts(&mut self) -> Vec<LeaseFacts> {
        let mut found = BTreeMap::new();
        for lease in &self.leases {
            let mut lease = lease.clone();
            let Some(node) = names::node_of_lease(&lease.name_any()) else { continue };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref().is_none_or(str::is_empty) {
                spec.holder_identity = Some(node.to_string());
            }
            match purelb_api::lease::facts(&lease) {
                Ok(facts) => drop(found.insert(node, facts)),
                Err(problem @ LeaseProblem::HeldByAnother { .. }) => {
                    self.notes.push(format!("{problem}: left out"));
                }
                Err(LeaseProblem::NotANodes(_)) => {}
            }
        }
        found.into_values().collect()
    }
}

pub fn object_name(value: &Value) -> String {
    let get = |key: &str| value["metadata"][key].as_str();
    match (get("namespace"), get("name")) {
        (Some(ns), Some(name)) => format!("{ns}/{name}"),
        (None, Some(name)) => name.to_owned(),
        _ => "(without a name)".to_owned(),
    }
}

#[cfg(test)]
mod tests;
