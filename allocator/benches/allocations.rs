//! Allocations per second on the real API server, beside two bare loops with the same
//! number under way: as many status writes, and the three writes of an allocation with
//! nothing to decide, by the same account.

#![allow(clippy::print_stdout, reason = "figures are what this is for")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use purelb_allocator::Allocator;
use purelb_allocator::kube::patches;
use purelb_allocator::settings::Settings;
use purelb_api::ServiceGroup;
use purelb_kit::controlplane::{ControlPlane, ServiceAccount, fixtures};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const SERVICES: usize = 1_000;
const AT_ONCE: usize = 16;

async fn create(client: &Client, namespace: &str, class: Option<&str>) -> Result<()> {
    fixtures::ensure_namespace(client, namespace).await?;
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    futures::stream::iter(0..SERVICES)
        .map(|i| {
            let mut service = fixtures::service(namespace, &format!("s{i:05}"));
            let spec = service.spec.get_or_insert_default();
            spec.allocate_load_balancer_node_ports = Some(false);
            spec.load_balancer_class = class.map(str::to_owned);
            let api = api.clone();
            async move { api.create(&PostParams::default(), &service).await.map(drop) }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

async fn bare(client: &Client, namespace: &str) -> Result<Duration> {
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let began = Instant::now();
    futures::stream::iter(0..SERVICES)
        .map(|i| {
            let api = api.clone();
            async move {
                let ip = std::net::Ipv4Addr::from(0x0a01_0000 + u32::try_from(i).unwrap_or(0));
                let body = json!({"status": fixtures::status_with(&[ip.into()])});
                let name = format!("s{i:05}");
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(body)).await.map(drop)
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(began.elapsed())
}

/// Annotations, status, event: what the allocator leaves, one Service after the other.
async fn three_writes(client: &Client, namespace: &str) -> Result<Duration> {
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let began = Instant::now();
    futures::stream::iter(0..SERVICES)
        .map(|i| {
            let (api, events) = (api.clone(), events.clone());
            async move {
                let ip = std::net::Ipv4Addr::from(0x0a02_0000 + u32::try_from(i).unwrap_or(0));
                let name = format!("s{i:05}");
                let marks = json!({"metadata": {"annotations": {"purelb.io/allocated-by": "PureLB",
                    "purelb.io/allocated-from": "default", "purelb.io/pool-type": "local"}}});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(marks)).await?;
                let now = jiff::Timestamp::now();
                let told = json!([{"type": "purelb.io/Allocated", "status": "True", "reason": "AddressAssigned",
                    "message": format!("Assigned {ip} from ServiceGroup default"), "lastTransitionTime": now}]);
                let mut status = json!(fixtures::status_with(&[ip.into()]));
                status["conditions"] = told;
                let body = Patch::Merge(json!({ "status": status }));
                let service = api.patch_status(&name, &PatchParams::default(), &body).await?;
                let message = format!("Assigned {ip} from ServiceGroup default");
                let event = patches::event(&service, format!("{name}.1"), "AddressAssigned", false, &message, now);
                events.create(&PostParams::default(), &event).await.map(drop)
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(began.elapsed())
}

/// Until every Service of the namespace shows an address, by one watch.
async fn served(client: &Client, namespace: &str) -> Result<()> {
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let mut have = BTreeSet::new();
    let mut changes = api.watch(&WatchParams::default(), "0").await?.boxed();
    while let Some(change) = changes.try_next().await? {
        if let WatchEvent::Added(service) | WatchEvent::Modified(service) = change {
            if purelb_api::service::addresses(&service).next().is_some() {
                have.insert(service.name_any());
            }
            if have.len() == SERVICES {
                return Ok(());
            }
        }
    }
    anyhow::bail!("the watch ended with {} of {SERVICES}", have.len())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let plane = ControlPlane::start().await?;
    plane.apply_manifests().await?;
    let admin = plane.admin()?;
    // Without a class: nobody's, as long as the setting is off.
    create(&admin, "bare", None).await?;
    create(&admin, "three", None).await?;
    let client = plane.client_for(&ServiceAccount::allocator()).await?;
    let plain = bare(&admin, "bare").await.context("the bare loop")?;
    let three = three_writes(&client, "three").await.context("the loop of three writes")?;
    create(&admin, "bench", Some(fixtures::CLASS)).await?;
    let group: ServiceGroup = fixtures::object(json!({
        "apiVersion": "purelb.io/v2", "kind": "ServiceGroup",
        "metadata": {"name": "default", "namespace": "purelb-system"},
        "spec": {"local": {"v4pool": {"pool": "10.0.0.0/16", "subnet": "10.0.0.0/16"}}},
    }));
    let groups: Api<ServiceGroup> = Api::namespaced(admin.clone(), "purelb-system");
    groups.create(&PostParams::default(), &group).await?;
    let mut settings = Settings::defaults();
    settings.metrics_address = ([127, 0, 0, 1], 0).into();
    settings.writes = AT_ONCE;
    let stop = CancellationToken::new();
    let allocator = Allocator::start(settings, client, &stop).await?;
    let began = Instant::now();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { allocator.run(stop).await }
    });
    served(&admin, "bench").await?;
    let took = began.elapsed();
    stop.cancel();
    running.await??;
    let rate = |took: Duration| f64::from(u32::try_from(SERVICES).unwrap_or(u32::MAX)) / took.as_secs_f64();
    for (what, plain) in
        [("as many status writes", plain), ("the same three writes each, nothing decided or watched", three)]
    {
        println!(
            "figure: allocations/s over {SERVICES} pending Services (3 writes each) | beside a bare loop of {what} | {:.0}/s, bare {:.0}/s, ratio {:.2}",
            rate(took),
            rate(plain),
            rate(took) / rate(plain)
        );
    }
    Ok(())
}
