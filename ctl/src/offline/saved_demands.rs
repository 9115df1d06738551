//! Which addresses the saved Services ask for, and from which nodes.

use k8s_openapi::api::core::v1::Service;
use purelb_api::service::Classes;
use purelb_api::{endpoints, service_group};
use purelb_core::election::Restriction;
use purelb_core::facts::{GroupFacts, ServiceFacts};
use purelb_core::messages::FactsUpdate;
use purelb_core::placement::Demand;
use purelb_core::pools::RangeRules;
use purelb_core::{ObjectKey, Vip};

use crate::offline::saved_objects::SavedObjects;

/// What the saved Services ask for.
#[derive(Debug)]
pub struct SavedDemands {
    demands: purelb_core::placement::Demands,
    /// Without slices nothing is known of endpoints, so they restrict nothing.
    endpoints_known: bool,
}

impl SavedDemands {
    pub fn new(saved: &SavedObjects) -> Self {
        let mut demands = purelb_core::placement::Demands::default();
        demands.update_services(FactsUpdate::All(saved.services.iter().filter_map(service_facts).collect()));
        let groups = saved.groups.iter().filter_map(|g| {
            let config = service_group::parse(&g.object, &RangeRules::default()).ok()?;
            Some(GroupFacts { retained: service_group::retained(&g.object), ..config.facts() })
        });
        demands.update_groups(FactsUpdate::All(groups.collect()));
        demands
            .update_endpoints(FactsUpdate::All(saved.slices.iter().filter_map(endpoints::facts).collect()));
        Self { demands, endpoints_known: !saved.slices.is_empty() }
    }

    pub fn demand(&self, vip: Vip) -> Option<Demand> {
        self.demands.of(vip)
    }

    pub fn service(&self, key: &ObjectKey) -> Option<&ServiceFacts> {
        self.demands.service(key)
    }

    pub fn restriction(&self, vip: Vip) -> Restriction {
        match self.demand(vip) {
            Some(demand) if self.endpoints_known => demand.restriction,
            _ => Restriction::None,
        }
    }
}

/// Regardless of its class: a Service in the files is one the operator asks about.
fn service_facts(service: &Service) -> Option<ServiceFacts> {
    let class = service.spec.as_ref()?.load_balancer_class.clone();
    let classes = Classes { class: class.unwrap_or_default(), default_announcer: true };
    purelb_api::service::facts(service, &classes)
}
