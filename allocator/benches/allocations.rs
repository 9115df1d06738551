//! Allocations per second on the real API server, beside a bare loop of the same
//! number of status writes with the same number under way.

#![allow(clippy::print_stdout, reason = "figures are what this is for")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use purelb_allocator::Allocator;
use purelb_allocator::config::Settings;
use purelb_api::ServiceGroup;
use purelb_kit::controlplane::{ControlPlane, ServiceAccount, fixtures};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const SERVICES: usize = 1_000;
const AT_ONCE: usize = 16;

async fn create(client: &Client, namespace: &str) -> Result<()> {
    fixtures::ensure_namespace(client, namespace).await?;
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    futures::stream::iter(0..SERVICES)
        .map(|i| {
            let mut service = fixtures::service(namespace, &format!("s{i:05}"));
            service.spec.get_or_insert_default().allocate_load_balancer_node_ports = Some(false);
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
    create(&admin, "bare").await?;
    let plain = bare(&admin, "bare").await.context("the bare loop")?;
    create(&admin, "bench").await?;
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
    let client = plane.client_for(&ServiceAccount::allocator()).await?;
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
    println!(
        "figure: allocations/s over {SERVICES} pending Services (3 writes each) | beside a bare loop of as many status writes | {:.0}/s, bare {:.0}/s, ratio {:.2}",
        rate(took),
        rate(plain),
        rate(took) / rate(plain)
    );
    Ok(())
}
