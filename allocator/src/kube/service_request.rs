//! From Kubernetes objects to what `purelb_core::allocation` decides on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use purelb_api::service::{self, Classes};
use purelb_api::service_group::{GroupConfig, Source};
use purelb_api::{addresses, names};
use purelb_core::allocation::{GroupSource, GroupSpec, ServiceAsk, ServiceCondition, ServiceOwner};
use purelb_core::facts::PoolType;
use purelb_core::pools::{Families, GroupName, PodSet, Port, Protocol, SharingKey, SharingTerms};
use purelb_core::{Family, ObjectKey, Vip};

/// The condition on a Service that says what became of its request.
pub const ALLOCATED: &str = "purelb.io/Allocated";

/// A Service, or None for one without a usable name.
pub fn service(object: &Service, classes: &Classes) -> Option<ServiceAsk> {
    let get = |key: &str| object.annotations().get(key).map(String::as_str);
    let key = ObjectKey::of(&object.namespace()?, &object.name_any()).ok()?;
    let marked = get(names::ALLOCATED_BY) == Some(names::BRAND);
    let held: Vec<Vip> = service::addresses(object).collect();
    let (explicit, deprecated_field) = explicit(object, get(names::ADDRESSES));
    Some(ServiceAsk {
        terms: terms(object, &key, get(names::ALLOW_SHARED_IP)),
        key,
        uid: object.uid().unwrap_or_default(),
        created: object.creation_timestamp().map_or(0, |t| t.0.as_second()),
        whose: whose(object, classes, marked, !held.is_empty()),
        marked,
        held,
        from: get(names::ALLOCATED_FROM).map(str::to_owned),
        pool_type: get(names::POOL_TYPE).and_then(|text| match text {
            names::POOL_TYPE_LOCAL => Some(PoolType::Local),
            names::POOL_TYPE_REMOTE => Some(PoolType::Remote),
            _ => None,
        }),
        skip_ipv6_dad: get(names::SKIP_IPV6_DAD) == Some("true"),
        group: get(names::SERVICE_GROUP).filter(|t| !t.trim().is_empty()).map(str::to_owned),
        explicit,
        deprecated_field,
        families: families(object),
        multi_pool: get(names::MULTI_POOL).and_then(|text| text.trim().parse().ok()),
        re_evaluate: get(names::RE_EVALUATE) == Some("true"),
        told: told(object),
    })
}

fn whose(object: &Service, classes: &Classes, marked: bool, holds: bool) -> ServiceOwner {
    let spec = object.spec.as_ref();
    if spec.and_then(|s| s.type_.as_deref()) != Some("LoadBalancer") {
        return ServiceOwner::NoLoadBalancer;
    }
    if !classes.wants(object) {
        return ServiceOwner::Foreign;
    }
    let names_us = spec.and_then(|s| s.load_balancer_class.as_deref()).is_some();
    // Without a class, an address without our mark is somebody else's work.
    let taken = holds && !marked && !names_us;
    // One that is about to go needs nothing more; what it has stays till it is gone.
    let leaving = object.metadata.deletion_timestamp.is_some() && !holds;
    if taken || leaving { ServiceOwner::Foreign } else { ServiceOwner::Ours }
}

/// The annotation, else the deprecated field.
fn explicit(object: &Service, annotation: Option<&str>) -> (Result<Vec<Vip>, String>, bool) {
    if let Some(text) = annotation.filter(|t| !t.trim().is_empty()) {
        return (addresses::parse(text).map_err(|e| e.to_string()), false);
    }
    let field = object.spec.as_ref().and_then(|s| s.load_balancer_ip.as_deref());
    match field.map(str::trim).filter(|t| !t.is_empty()) {
        None => (Ok(Vec::new()), false),
        Some(text) => {
            let clipped: String = text.chars().take(64).collect();
            let ip = text.parse::<Vip>().map(|ip| vec![ip]);
            (ip.map_err(|_| format!("spec.loadBalancerIP: {clipped:?} is not an IP address")), true)
        }
    }
}

/// The API server has settled `ipFamilies`; where it names one family only, the
/// cluster or the policy has no use for the other.
fn families(object: &Service) -> Families {
    let spec = object.spec.as_ref();
    let read = |text: &String| if text == "IPv6" { Family::V6 } else { Family::V4 };
    let listed: Vec<Family> =
        spec.and_then(|s| s.ip_families.as_ref()).into_iter().flatten().map(read).collect();
    let first = listed.first().copied().unwrap_or(Family::V4);
    let require = spec.and_then(|s| s.ip_family_policy.as_deref()) == Some("RequireDualStack");
    match (listed.len() > 1, require) {
        (false, _) => Families::One(first),
        (true, true) => Families::Both { first },
        (true, false) => Families::Either { first },
    }
}

fn terms(object: &Service, service: &ObjectKey, key: Option<&str>) -> SharingTerms {
    let spec = object.spec.as_ref();
    let ports = spec.and_then(|s| s.ports.as_ref()).into_iter().flatten();
    let local = spec.filter(|s| s.external_traffic_policy.as_deref() == Some("Local"));
    let pods = local.map(|s| PodSet::of(service, s.selector.as_ref().unwrap_or(&BTreeMap::new())));
    let read = |port: &k8s_openapi::api::core::v1::ServicePort| {
        let protocol = match port.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => Protocol::Tcp,
        };
        Some(Port::new(protocol, u16::try_from(port.port).ok()?))
    };
    SharingTerms { sharing: key.and_then(SharingKey::new), ports: ports.filter_map(read).collect(), pods }
}

fn told(object: &Service) -> Option<ServiceCondition> {
    let conditions = object.status.as_ref()?.conditions.as_ref()?;
    let ours = conditions.iter().find(|c| c.type_ == ALLOCATED)?;
    Some(ServiceCondition {
        holds: ours.status == "True",
        reason: ours.reason.clone(),
        message: ours.message.clone(),
    })
}

/// A group that was understood.
pub fn group(config: &GroupConfig, created: Option<Timestamp>) -> GroupSpec {
    let (source, skip_ipv6_dad) = match &config.source {
        Source::Ranges(ranges) => (
            GroupSource::Ranges {
                group: ranges.group.clone(),
                multi_pool: ranges.multi_pool,
                balance_pools: ranges.balance_pools,
            },
            ranges.skip_ipv6_dad,
        ),
        Source::Netbox(_) | Source::External(_) => (GroupSource::Provider, false),
    };
    GroupSpec {
        name: GroupName::from(config.key.clone()),
        created: created.map_or(0, Timestamp::as_second),
        announce: config.announce(),
        skip_ipv6_dad,
        source,
        namespaces: config.namespaces.clone(),
        namespace_default: config.namespace_default,
        enforce_namespaces: config.enforce_namespaces,
    }
}

#[cfg(test)]
mod tests;
