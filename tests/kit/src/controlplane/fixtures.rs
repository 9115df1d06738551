//! Small objects for tests: what a cluster would contain.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Node, Service, ServiceStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The class our Services name in tests.
pub const CLASS: &str = "purelb.io/purelbv2";

/// An object from its JSON; a typo in a fixture is a bug of the test.
pub fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("fixtures are written by hand and correct")
}

pub fn node(name: &str) -> Node {
    object(json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}))
}

/// A LoadBalancer Service of our class with one TCP port and no selector.
pub fn service(namespace: &str, name: &str) -> Service {
    object(json!({
        "metadata": {"namespace": namespace, "name": name, "annotations": {}},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": CLASS,
            "ports": [{"name": "tcp", "protocol": "TCP", "port": 80}],
        },
    }))
}

/// Annotations as the allocator leaves them.
pub fn allocated(mut service: Service, group: &str, pool_type: &str) -> Service {
    let ours = [("allocated-by", "PureLB"), ("allocated-from", group), ("pool-type", pool_type)];
    let more = ours.map(|(k, v)| (format!("purelb.io/{k}"), v.to_owned()));
    service.metadata.annotations.get_or_insert_default().extend(BTreeMap::from(more));
    service
}

/// The status the allocator writes.
pub fn status_with(ips: &[IpAddr]) -> ServiceStatus {
    let ingress: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
    object(json!({"loadBalancer": {"ingress": ingress}}))
}

/// A slice with one endpoint per (node, ready, serving).
pub fn endpoint_slice(namespace: &str, service: &str, endpoints: &[(&str, bool, bool)]) -> EndpointSlice {
    let list: Vec<Value> = endpoints
        .iter()
        .enumerate()
        .map(|(i, (node, ready, serving))| {
            json!({
                "addresses": [format!("10.244.0.{}", i + 1)],
                "nodeName": node,
                "conditions": {"ready": ready, "serving": serving, "terminating": serving != ready},
            })
        })
        .collect();
    object(json!({
        "metadata": {
            "namespace": namespace,
            "name": format!("{service}-lab"),
            "labels": {"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "purelb-lab"},
        },
        "addressType": "IPv4",
        "endpoints": list,
        "ports": [{"name": "tcp", "protocol": "TCP", "port": 8080}],
    }))
}

/// Makes the namespace unless it is there.
pub async fn ensure_namespace(client: &Client, name: &str) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    let wanted: Namespace = object(json!({"metadata": {"name": name}}));
    match api.create(&PostParams::default(), &wanted).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(e) => Err(e).with_context(|| format!("creating namespace {name}")),
    }
}

/// Creates a Service and gives it addresses at once, as if it had been allocated.
pub async fn create_with_ingress(client: &Client, service: &Service, ips: &[IpAddr]) -> Result<Service> {
    let namespace = service.namespace().context("a Service without a namespace")?;
    let api: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let name = service.name_any();
    api.create(&PostParams::default(), service).await.with_context(|| format!("creating Service {name}"))?;
    let patch = json!({"status": status_with(ips)});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("status of Service {name}"))
}
