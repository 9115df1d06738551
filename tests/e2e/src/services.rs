//! Services with addresses, as the allocator would leave them.

use std::net::IpAddr;

use anyhow::{Context, Result};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Event, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use purelb_api::ServiceGroup;
use purelb_core::Mono;
use purelb_kit::controlplane::fixtures::{allocated, endpoint_slice, service, status_with};
use purelb_kit::lab::now;
use serde_json::json;

use crate::cluster::Cluster;

/// An address; a typo is a bug of the test.
pub fn vip(text: &str) -> IpAddr {
    text.parse().expect("an address written by hand")
}

/// A Service to be.
#[derive(Clone, Debug)]
pub struct Wish {
    name: String,
    vips: Vec<IpAddr>,
    pool: &'static str,
    only_local: bool,
    skip_dad: bool,
}

impl Wish {
    pub fn new(name: &str, vips: impl IntoIterator<Item = IpAddr>) -> Self {
        let vips = vips.into_iter().collect();
        Self { name: name.to_owned(), vips, pool: "local", only_local: false, skip_dad: true }
    }

    pub fn remote(mut self) -> Self {
        self.pool = "remote";
        self
    }

    /// `externalTrafficPolicy: Local`.
    pub fn only_local_endpoints(mut self) -> Self {
        self.only_local = true;
        self
    }

    /// IPv6 addresses go through duplicate address detection.
    pub fn with_dad(mut self) -> Self {
        self.skip_dad = false;
        self
    }
}

impl Cluster<'_> {
    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates the Service and gives it its addresses; answers when the status was sent
    /// and when the server had confirmed it.
    pub async fn serve(&self, wish: Wish) -> Result<(Mono, Mono)> {
        let group = self.group_for(&wish).await?;
        let mut object = allocated(service(&self.namespace, &wish.name), &group, wish.pool);
        let spec = object.spec.as_mut().context("a Service has a spec")?;
        spec.load_balancer_class = Some(self.class.clone());
        if wish.only_local {
            spec.external_traffic_policy = Some("Local".to_owned());
        }
        if wish.vips.iter().any(IpAddr::is_ipv6) {
            spec.ip_family_policy = Some("PreferDualStack".to_owned());
        }
        if wish.skip_dad {
            object.annotations_mut().insert("purelb.io/skip-ipv6-dad".to_owned(), "true".to_owned());
        }
        let services = self.services();
        services.create(&kube::api::PostParams::default(), &object).await.context("creating a Service")?;
        let patch = json!({"status": status_with(&wish.vips)});
        let sent = now();
        services
            .patch_status(&wish.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("the Service's status")?;
        Ok((sent, now()))
    }

    /// The group its addresses belong to, with just these, unless the test made one.
    async fn group_for(&self, wish: &Wish) -> Result<String> {
        let of_test: Api<ServiceGroup> = Api::namespaced(self.client.clone(), &self.namespace);
        if of_test.get_opt("default").await?.is_some() {
            return Ok("default".to_owned());
        }
        let one = |ip: &IpAddr| json!({"pool": ip, "subnet": IpNet::from(*ip), "aggregation": "default"});
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = wish.vips.iter().partition(|ip| ip.is_ipv4());
        let mut pools = json!({"skipIPv6DAD": wish.skip_dad});
        for (field, addresses) in [("v4pools", v4), ("v6pools", v6)] {
            if !addresses.is_empty() {
                pools[field] = addresses.iter().map(one).collect();
            }
        }
        let name = format!("of-{}", wish.name);
        self.group(&name, json!({wish.pool: pools})).await?;
        Ok(name)
    }

    pub async fn remove_service(&self, name: &str) -> Result<()> {
        self.services().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The Service's endpoints: lab node, ready, serving.
    pub async fn endpoints(&self, name: &str, endpoints: &[(&str, bool, bool)]) -> Result<()> {
        let named: Vec<(String, bool, bool)> =
            endpoints.iter().map(|(n, ready, serving)| (self.node_name(n), *ready, *serving)).collect();
        let listed: Vec<(&str, bool, bool)> = named.iter().map(|(n, r, s)| (n.as_str(), *r, *s)).collect();
        let slice = endpoint_slice(&self.namespace, name, &listed);
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut wanted = serde_json::to_value(&slice)?;
        wanted["apiVersion"] = json!("discovery.k8s.io/v1");
        wanted["kind"] = json!("EndpointSlice");
        let params = PatchParams::apply("purelb-e2e").force();
        slices.patch(&slice.name_any(), &params, &Patch::Apply(wanted)).await?;
        Ok(())
    }

    /// The announcing slots on a Service, as `node,interface,ip`.
    pub async fn slots(&self, name: &str) -> Result<Vec<String>> {
        let service = self.services().get(name).await?;
        let both = ["purelb.io/announcing-IPv4", "purelb.io/announcing-IPv6"];
        let texts = both.iter().filter_map(|key| service.annotations().get(*key));
        Ok(texts.flat_map(|text| text.split_whitespace().map(str::to_owned)).collect())
    }

    /// Reasons and messages of the events about a Service.
    pub async fn events(&self, name: &str) -> Result<Vec<(String, String)>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let about = format!("involvedObject.kind=Service,involvedObject.name={name}");
        let list = events.list(&ListParams::default().fields(&about)).await?;
        Ok(list.into_iter().map(|e| (e.reason.unwrap_or_default(), e.message.unwrap_or_default())).collect())
    }
}
