//! Services: which are ours, and what a node needs to know of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use purelb_core::facts::{AnnouncingSlot, ServiceFacts};
use purelb_core::{Family, ObjectKey, Vip};

use crate::{names, slots};

/// Which Services are for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// The load-balancer class that names us.
    pub class: String,
    /// Services that name no class are ours, too.
    pub default_announcer: bool,
}

impl Default for Classes {
    fn default() -> Self {
        Self { class: names::DEFAULT_CLASS.to_owned(), default_announcer: true }
    }
}

/// What the environment variable `DEFAULT_ANNOUNCER` says about Services that name no
/// class, the same in every program: they are ours if it names us.
pub fn names_us(default_announcer: &str) -> bool {
    default_announcer.trim().eq_ignore_ascii_case(names::BRAND)
}

impl Classes {
    /// A LoadBalancer Service that asks for us.
    pub fn wants(&self, service: &Service) -> bool {
        let Some(spec) = &service.spec else { return false };
        if spec.type_.as_deref() != Some("LoadBalancer") {
            return false;
        }
        match spec.load_balancer_class.as_deref() {
            Some(class) => class == self.class,
            None => self.default_announcer,
        }
    }
}

/// What a node needs of a Service that is ours and was given addresses by us;
/// `None` for all others, which are never touched.
pub fn facts(service: &Service, classes: &Classes) -> Option<ServiceFacts> {
    let annotations = service.annotations();
    let get = |key: &str| annotations.get(key).map(String::as_str);
    if !classes.wants(service) || get(names::ALLOCATED_BY) != Some(names::BRAND) {
        return None;
    }
    let key = ObjectKey::of(&service.namespace()?, &service.name_any()).ok()?;
    let spec = service.spec.as_ref()?;
    Some(ServiceFacts {
        key,
        vips: addresses(service).collect(),
        group: get(names::ALLOCATED_FROM).map(str::to_owned),
        only_local_endpoints: spec.external_traffic_policy.as_deref() == Some("Local"),
        prefer_endpoints: get(names::NODE_AFFINITY) == Some(names::AFFINITY_SERVICE_ENDPOINTS),
        slots: announcing(annotations),
    })
}

/// The addresses in the status.
pub fn addresses(service: &Service) -> impl Iterator<Item = Vip> + '_ {
    let balancer = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    let entries = balancer.and_then(|b| b.ingress.as_ref()).into_iter().flatten();
    entries.filter_map(|i| i.ip.as_deref()?.parse().ok())
}

fn announcing(annotations: &BTreeMap<String, String>) -> BTreeMap<Vip, AnnouncingSlot> {
    let of = |family| annotations.get(names::announcing(family)).map(|t| slots::decode(t, family));
    [Family::V4, Family::V6].into_iter().filter_map(of).flatten().collect()
}

#[cfg(test)]
mod tests;
