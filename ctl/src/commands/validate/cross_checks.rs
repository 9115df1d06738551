//! Objects against each other.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;
use purelb_api::names;
use purelb_api::service_group::{GroupConfig, Source};
use purelb_api::{LBNodeAgent, ServiceGroup};
use purelb_core::facts::{AgentFacts, LeaseFacts, NodeFacts, PoolType};
use purelb_core::pools::{Group, GroupOverlap, Range, Span, admit};

use super::{ConfigFinding, FindingLevel};
use crate::error::did_you_mean;
use crate::offline::saved_objects::SourcedObject;

type Groups<'a> = [(&'a SourcedObject<ServiceGroup>, GroupConfig)];
type Agents<'a> = [(&'a SourcedObject<LBNodeAgent>, AgentFacts)];

fn finding(level: FindingLevel, object: String, field: &str, message: String, file: &str) -> ConfigFinding {
    ConfigFinding { level, object, field: field.to_owned(), message, file: file.to_owned() }
}

fn ranges(config: &GroupConfig) -> &[Range] {
    match &config.source {
        Source::Ranges(ranges) => ranges.group.ranges(),
        Source::Netbox(_) | Source::External(_) => &[],
    }
}

/// Overlaps, two groups of one name, and namespaces that two groups want.
pub fn check_groups(groups: &Groups<'_>, found: &mut Vec<ConfigFinding>) {
    let object = |c: &GroupConfig| format!("ServiceGroup {}", c.key);
    let mut names_seen: BTreeMap<&str, &GroupConfig> = BTreeMap::new();
    let mut once: Vec<&Group> = Vec::new();
    for (origin, config) in groups {
        if let Some(first) = names_seen.insert(config.key.name(), config) {
            let message = if first.key == config.key {
                "is there twice; the later one counts".to_owned()
            } else {
                format!("has the name of ServiceGroup {}; only the install namespace is read", first.key)
            };
            found.push(finding(
                FindingLevel::Warning,
                object(config),
                "metadata.name",
                message,
                &origin.file,
            ));
        } else if let Source::Ranges(ranges) = &config.source {
            once.push(&ranges.group);
        }
    }
    // As the allocator decides it: the older one is in use, then the lower name.
    for (name, overlap) in admit(once) {
        let origin = groups.iter().find(|(_, c)| c.key == *name.key());
        let file = origin.map_or("", |(origin, _)| &origin.file);
        let GroupOverlap { field, with, shared, .. } = &overlap;
        let message = format!("shares {shared} with ServiceGroup {with}: this group is refused");
        found.push(finding(
            FindingLevel::Error,
            format!("ServiceGroup {name}"),
            &format!("{field}.pool"),
            message,
            file,
        ));
    }
    check_namespaces(groups, found);
}

/// A namespace that several groups list needs exactly one default among them.
fn check_namespaces(groups: &Groups<'_>, found: &mut Vec<ConfigFinding>) {
    let mut by_namespace: BTreeMap<&str, Vec<(&SourcedObject<ServiceGroup>, &GroupConfig)>> = BTreeMap::new();
    for (origin, config) in groups {
        for namespace in &config.namespaces {
            by_namespace.entry(namespace).or_default().push((origin, config));
        }
    }
    for (namespace, list) in by_namespace {
        let defaults: Vec<_> = list.iter().filter(|(_, c)| c.namespace_default).collect();
        let names = |l: &[&(&SourcedObject<ServiceGroup>, &GroupConfig)]| {
            l.iter().map(|(_, c)| c.key.name().to_owned()).collect::<Vec<_>>().join(", ")
        };
        let all: Vec<_> = list.iter().collect();
        let (origin, config) = list[0];
        let object = format!("ServiceGroup {}", config.key);
        if defaults.len() > 1 {
            let message = format!("namespace {namespace} has several default groups: {}", names(&defaults));
            found.push(finding(FindingLevel::Error, object, "spec.namespaceDefault", message, &origin.file));
        } else if list.len() > 1 && defaults.is_empty() {
            let message = format!(
                "namespace {namespace} is listed by several groups ({}) and none is its default: set namespaceDefault on one",
                names(&all)
            );
            found.push(finding(FindingLevel::Warning, object, "spec.namespaces", message, &origin.file));
        }
    }
}

/// Local pools that no node can announce. Says nothing without Leases.
pub fn check_reach(groups: &Groups<'_>, leases: &[LeaseFacts], found: &mut Vec<ConfigFinding>) {
    if leases.is_empty() {
        return;
    }
    let subnets: BTreeSet<ipnet::IpNet> = leases.iter().flat_map(|l| l.subnets.iter().copied()).collect();
    for (origin, config) in groups.iter().filter(|(_, c)| c.announce() == PoolType::Local) {
        for range in ranges(config) {
            let span = range.span();
            let touched = subnets.iter().any(|net| Span::of_net(*net).overlaps(&span));
            let message = match (range.served_by(&subnets), touched) {
                (true, _) => continue,
                (false, true) => format!("only a part of {span} lies in a subnet that a node advertises"),
                (false, false) => {
                    format!("no node advertises a subnet that contains {span}: nobody can announce it")
                }
            };
            let object = format!("ServiceGroup {}", config.key);
            found.push(finding(FindingLevel::Warning, object, range.field(), message, &origin.file));
        }
    }
}

/// Selectors that match nothing, and nodes that nothing selects. Says nothing without Nodes.
pub fn check_agents(agents: &Agents<'_>, nodes: &[Node], found: &mut Vec<ConfigFinding>) {
    let object = |a: &AgentFacts| format!("LBNodeAgent {}", a.key);
    let catch_all: Vec<_> =
        agents.iter().filter(|(_, a)| a.config.is_ok() && a.selector.is_catch_all()).collect();
    if let [(_, first), rest @ ..] = catch_all.as_slice() {
        for (origin, agent) in rest {
            let message =
                format!("selects all nodes, as {} does; the one first by name counts", object(first));
            found.push(finding(
                FindingLevel::Warning,
                object(agent),
                "spec.nodeSelector",
                message,
                &origin.file,
            ));
        }
    }
    let nodes: Vec<NodeFacts> = nodes.iter().filter_map(purelb_api::node::facts).collect();
    if nodes.is_empty() {
        return;
    }
    for (origin, agent) in agents.iter().filter(|(_, a)| a.config.is_ok()) {
        if !nodes.iter().any(|n| agent.selector.matches(&n.labels)) {
            let message = format!("matches none of the {} nodes", nodes.len());
            found.push(finding(
                FindingLevel::Warning,
                object(agent),
                "spec.nodeSelector",
                message,
                &origin.file,
            ));
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
        found.push(finding(FindingLevel::Warning, "Nodes".into(), "", message, ""));
    }
}

/// Services that ask for a group there is not.
pub fn check_services(groups: &Groups<'_>, services: &[Service], found: &mut Vec<ConfigFinding>) {
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
        found.push(finding(FindingLevel::Error, object, &field, message, ""));
    }
}
