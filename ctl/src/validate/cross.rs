//! Objects against each other.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;
use purelb_api::group::{GroupConfig, Pool, Source};
use purelb_api::names;
use purelb_api::{LBNodeAgent, ServiceGroup};
use purelb_core::facts::{AgentFacts, LeaseFacts, NodeFacts, PoolType};

use super::{Finding, Level};
use crate::error::did_you_mean;
use crate::saved::Origin;

type Groups<'a> = [(&'a Origin<ServiceGroup>, GroupConfig)];
type Agents<'a> = [(&'a Origin<LBNodeAgent>, AgentFacts)];

fn finding(level: Level, object: String, field: &str, message: String, file: &str) -> Finding {
    Finding { level, object, field: field.to_owned(), message, file: file.to_owned() }
}

/// Each pool with the path a user finds in the object.
fn pools(object: &ServiceGroup, config: &GroupConfig) -> Vec<(String, Pool)> {
    let Source::Ranges(ranges) = &config.source else { return Vec::new() };
    let (at, set) = match ranges.announce {
        PoolType::Local => ("spec.local", object.spec.local.as_ref()),
        PoolType::Remote => ("spec.remote", object.spec.remote.as_ref()),
    };
    let family = |name: &str, single: bool, list: &[Pool]| -> Vec<(String, Pool)> {
        let path = |i: usize| if single { format!("{at}.{name}") } else { format!("{at}.{name}s[{i}]") };
        list.iter().enumerate().map(|(i, p)| (path(i), p.clone())).collect()
    };
    let v4 = family("v4pool", set.is_some_and(|s| s.v4pool.is_some()), &ranges.v4);
    let v6 = family("v6pool", set.is_some_and(|s| s.v6pool.is_some()), &ranges.v6);
    [v4, v6].concat()
}

/// Overlaps, two groups of one name, and namespaces that two groups want.
pub fn groups(groups: &Groups<'_>, found: &mut Vec<Finding>) {
    let object = |c: &GroupConfig| format!("ServiceGroup {}", c.key);
    let mut names_seen: BTreeMap<&str, &GroupConfig> = BTreeMap::new();
    for (i, (origin, config)) in groups.iter().enumerate() {
        if let Some(first) = names_seen.insert(config.key.name(), config) {
            let message = if first.key == config.key {
                "is there twice; the later one counts".to_owned()
            } else {
                format!("has the name of ServiceGroup {}; only the install namespace is read", first.key)
            };
            found.push(finding(Level::Warning, object(config), "metadata.name", message, &origin.file));
            continue;
        }
        for (other_origin, other) in groups.iter().take(i).filter(|(_, o)| o.key != config.key) {
            // The older one is in use; without times the name decides, as in the allocator.
            let age = |o: &Origin<ServiceGroup>| o.object.creation_timestamp().map(|t| t.0);
            let older = (age(other_origin), &other.key) <= (age(origin), &config.key);
            let (refused_origin, refused, kept_origin, kept) = if older {
                (*origin, config, *other_origin, other)
            } else {
                (*other_origin, other, *origin, config)
            };
            for (field, pool) in pools(&refused_origin.object, refused) {
                for (_, with) in
                    pools(&kept_origin.object, kept).iter().filter(|(_, p)| p.range.overlaps(pool.range))
                {
                    let message = format!(
                        "{} overlaps {} of {}: this group is refused",
                        pool.range,
                        with.range,
                        object(kept)
                    );
                    found.push(finding(
                        Level::Error,
                        object(refused),
                        &format!("{field}.pool"),
                        message,
                        &refused_origin.file,
                    ));
                }
            }
        }
    }
    namespaces(groups, found);
}

/// A namespace that several groups list needs exactly one default among them.
fn namespaces(groups: &Groups<'_>, found: &mut Vec<Finding>) {
    let mut by_namespace: BTreeMap<&str, Vec<(&Origin<ServiceGroup>, &GroupConfig)>> = BTreeMap::new();
    for (origin, config) in groups {
        for namespace in &config.namespaces {
            by_namespace.entry(namespace).or_default().push((origin, config));
        }
    }
    for (namespace, list) in by_namespace {
        let defaults: Vec<_> = list.iter().filter(|(_, c)| c.namespace_default).collect();
        let names = |l: &[&(&Origin<ServiceGroup>, &GroupConfig)]| {
            l.iter().map(|(_, c)| c.key.name().to_owned()).collect::<Vec<_>>().join(", ")
        };
        let all: Vec<_> = list.iter().collect();
        let (origin, config) = list[0];
        let object = format!("ServiceGroup {}", config.key);
        if defaults.len() > 1 {
            let message = format!("namespace {namespace} has several default groups: {}", names(&defaults));
            found.push(finding(Level::Error, object, "spec.namespaceDefault", message, &origin.file));
        } else if list.len() > 1 && defaults.is_empty() {
            let message = format!(
                "namespace {namespace} is listed by several groups ({}) and none is its default: set namespaceDefault on one",
                names(&all)
            );
            found.push(finding(Level::Warning, object, "spec.namespaces", message, &origin.file));
        }
    }
}

/// Local pools that no node can announce. Says nothing without Leases.
pub fn reach(groups: &Groups<'_>, leases: &[LeaseFacts], found: &mut Vec<Finding>) {
    if leases.is_empty() {
        return;
    }
    let subnets: BTreeSet<ipnet::IpNet> = leases.iter().flat_map(|l| l.subnets.iter().copied()).collect();
    for (origin, config) in groups.iter().filter(|(_, c)| c.announce() == PoolType::Local) {
        for (field, pool) in pools(&origin.object, config) {
            let covered = subnets.iter().any(|net| pool.range.lies_in(*net));
            let touched = subnets
                .iter()
                .any(|net| net.contains(&pool.range.first().ip()) || net.contains(&pool.range.last().ip()));
            let message = match (covered, touched) {
                (true, _) => continue,
                (false, true) => {
                    format!("only a part of {} lies in a subnet that a node advertises", pool.range)
                }
                (false, false) => format!(
                    "no node advertises a subnet that contains {}: nobody can announce it",
                    pool.range
                ),
            };
            let object = format!("ServiceGroup {}", config.key);
            found.push(finding(Level::Warning, object, &field, message, &origin.file));
        }
    }
}

/// Selectors that match nothing, and nodes that nothing selects. Says nothing without Nodes.
pub fn agents(agents: &Agents<'_>, nodes: &[Node], found: &mut Vec<Finding>) {
    let object = |a: &AgentFacts| format!("LBNodeAgent {}", a.key);
    let catch_all: Vec<_> =
        agents.iter().filter(|(_, a)| a.config.is_ok() && a.selector.is_catch_all()).collect();
    if let [(_, first), rest @ ..] = catch_all.as_slice() {
        for (origin, agent) in rest {
            let message =
                format!("selects all nodes, as {} does; the one first by name counts", object(first));
            found.push(finding(Level::Warning, object(agent), "spec.nodeSelector", message, &origin.file));
        }
    }
    let nodes: Vec<NodeFacts> = nodes.iter().filter_map(purelb_api::node::facts).collect();
    if nodes.is_empty() {
        return;
    }
    for (origin, agent) in agents.iter().filter(|(_, a)| a.config.is_ok()) {
        if !nodes.iter().any(|n| agent.selector.matches(&n.labels)) {
            let message = format!("matches none of the {} nodes", nodes.len());
            found.push(finding(Level::Warning, object(agent), "spec.nodeSelector", message, &origin.file));
        }
    }
    let unselected: Vec<&str> = nodes
        .iter()
        .filter(|n| !agents.iter().any(|(_, a)| a.selector.matches(&n.labels)))
        .map(|n| n.name.as_str())
        .collect();
    if !unselected.is_empty() && !agents.is_empty() {
        let message =
            format!("selected by no LBNodeAgent, so they announce nothing: {}", unselected.join(", "));
        found.push(finding(Level::Warning, "Nodes".into(), "", message, ""));
    }
}

/// Services that ask for a group there is not.
pub fn services(groups: &Groups<'_>, services: &[Service], found: &mut Vec<Finding>) {
    if groups.is_empty() {
        return;
    }
    let known: Vec<&str> = groups.iter().map(|(_, c)| c.key.name()).collect();
    for service in services {
        let Some(wanted) = service.annotations().get(names::SERVICE_GROUP) else { continue };
        if known.contains(&wanted.as_str()) {
            continue;
        }
        let near = did_you_mean(wanted, known.iter().copied()).map(|n| format!("; did you mean {n}?"));
        let message = format!("there is no ServiceGroup {wanted}{}", near.unwrap_or_default());
        let object = format!("Service {}/{}", service.namespace().unwrap_or_default(), service.name_any());
        let field = format!("metadata.annotations[{}]", names::SERVICE_GROUP);
        found.push(finding(Level::Error, object, &field, message, ""));
    }
}
