//! Restarts over a settled cluster.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use futures::StreamExt;
use kube::api::ListParams;
use purelb_kit::controlplane::fixtures;
use purelb_kit::wait::eventually;
use serde_json::json;

use crate::common::{Cluster, PATIENCE, figure, local};
use crate::plane::{Allocator, own};

const SERVICES: u32 = 5_000;

async fn versions(c: &Cluster) -> Result<BTreeMap<String, String>> {
    let all = c.services("many").list(&ListParams::default()).await?;
    let one = |s: k8s_openapi::api::core::v1::Service| Some((s.metadata.name?, s.metadata.resource_version?));
    Ok(all.items.into_iter().filter_map(one).collect())
}

#[tokio::test]
async fn five_thousand_services_keep_their_addresses() -> Result<()> {
    let (plane, c) = own().await?;
    c.namespace("many").await?;
    c.group("default", local(json!({"v4pool": {"pool": "10.0.0.0/16", "subnet": "10.0.0.0/16"}}))).await?;
    let made: Vec<Result<()>> = futures::stream::iter(0..SERVICES)
        .map(|i| {
            let c = c.clone();
            async move {
                let service = fixtures::service("many", &format!("s{i:05}"));
                let mut service = fixtures::allocated(service, "default", "local");
                // A cluster has fewer node ports than that.
                let spec = service.spec.get_or_insert_default();
                spec.allocate_load_balancer_node_ports = Some(false);
                // Not the lowest ones: an allocator that forgets would pick others.
                let ip = std::net::Ipv4Addr::from(u32::from(std::net::Ipv4Addr::new(10, 0, 100, 1)) + i * 3);
                fixtures::create_with_ingress(&c.client, &service, &[ip.into()]).await.map(drop)
            }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    made.into_iter().collect::<Result<()>>()?;
    let before = versions(&c).await?;
    assert_eq!(before.len(), usize::try_from(SERVICES)?);
    let began = Instant::now();
    let allocator = Allocator::start(&plane, "again", &[]).await?;
    c.group_status("default", "all are counted", |s| s["allocatedIPv4"] == SERVICES).await?;
    let counted = began.elapsed();
    c.service("many/new", &[]).await?;
    c.has("many/new", &["10.0.0.1"]).await?;
    let what = format!("restart with {SERVICES} Services until the group counts all, no Service written");
    figure(&what, "< 5 s", &format!("{} ms", counted.as_millis()));
    let mut after = versions(&c).await?;
    after.remove("new");
    assert_eq!(before, after, "no Service was written");
    let events = eventually("the new Service's event", PATIENCE, || async {
        let events = c.events("many/new").await.map_err(|e| e.to_string())?;
        if events.is_empty() { Err("none".to_owned()) } else { Ok(events) }
    })
    .await?;
    assert_eq!(events.len(), 1);
    allocator.stop().await
}
