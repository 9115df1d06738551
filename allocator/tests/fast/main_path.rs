//! One Service, and many.

use anyhow::Result;
use purelb_kit::embedded::Verb;
use serde_json::json;

use crate::common::{PATIENCE, local, settings};
use crate::site::{Running, site};

#[tokio::test]
async fn a_service_gets_its_address_with_three_writes() -> Result<()> {
    let (api, cluster, running) = site().await?;
    cluster
        .group(
            "default",
            local(json!({"v4pool": {"pool": "192.0.2.10-192.0.2.99", "subnet": "192.0.2.0/24"}})),
        )
        .await?;
    running.leads().await?;
    cluster.group_status("default", "accepted", |s| s["conditions"][0]["status"] == "True").await?;
    // The group's own event is not the Service's.
    purelb_kit::wait::eventually("the group's event is written", PATIENCE, || async {
        let all = api.requests();
        if all.keys().any(|k| k.resource == "events") { Ok(()) } else { Err(all) }
    })
    .await?;
    let before = api.requests();
    cluster.service("shop/web", &[]).await?;
    let state = cluster.has("shop/web", &["192.0.2.10"]).await?;
    for (name, value) in [("allocated-by", "PureLB"), ("allocated-from", "default"), ("pool-type", "local")] {
        assert_eq!(state.annotations[&format!("purelb.io/{name}")], value);
    }
    cluster.events_of("shop/web", "AddressAssigned", 1).await?;
    cluster
        .group_status("default", "one in use", |s| s["allocatedIPv4"] == 1 && s["availableIPv4"] == 89)
        .await?;
    let written = |verb: Verb, resource: &str| {
        let count = |all: &std::collections::BTreeMap<purelb_kit::embedded::RequestKey, u64>| {
            let ours = all
                .iter()
                .filter(|(k, _)| k.client == "allocator" && k.verb == verb && k.resource == resource);
            ours.map(|(_, n)| *n).sum::<u64>()
        };
        count(&api.requests()) - count(&before)
    };
    assert_eq!(written(Verb::Patch, "services"), 1);
    assert_eq!(written(Verb::Patch, "services/status"), 1);
    assert_eq!(written(Verb::Create, "events"), 1);
    running.stop().await
}

#[tokio::test]
async fn a_new_replica_takes_over_at_once_after_a_clean_stop() -> Result<()> {
    let (api, cluster, first) = site().await?;
    cluster
        .group("default", local(json!({"v4pool": {"pool": "192.0.2.0/24", "subnet": "192.0.2.0/24"}})))
        .await?;
    for i in 0..20 {
        cluster.service(&format!("shop/s{i}"), &[]).await?;
    }
    for i in 0..20 {
        cluster.has_some(&format!("shop/s{i}")).await?;
    }
    first.stop().await?;
    let version = api.resource_version();
    let began = std::time::Instant::now();
    let second = Running::start(api.client("second")?, settings()).await?;
    second.leads().await?;
    assert!(began.elapsed() < settings().lease_duration, "the Lease was given up: {:?}", began.elapsed());
    cluster.service("shop/more", &[]).await?;
    cluster.has("shop/more", &["192.0.2.21"]).await?;
    let touched = api.requests().into_iter().filter(|(k, _)| k.client == "second" && k.verb == Verb::Patch);
    let touched: Vec<_> = touched.filter(|(k, _)| k.resource.starts_with("services")).collect();
    assert_eq!(
        touched.iter().map(|(_, n)| *n).sum::<u64>(),
        2,
        "nobody else is written: {touched:?} since {version}"
    );
    second.stop().await
}

#[tokio::test]
async fn probes_and_metrics_are_served() -> Result<()> {
    let (_api, cluster, running) = site().await?;
    cluster
        .group(
            "default",
            local(json!({"v4pool": {"pool": "192.0.2.10-192.0.2.11", "subnet": "192.0.2.0/24"}})),
        )
        .await?;
    running.leads().await?;
    let get = |path: &'static str| {
        let url = format!("http://{}{path}", running.address);
        async move {
            let builder = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
            let client = builder.build_http::<http_body_util::Empty<bytes::Bytes>>();
            let answer = client.get(url.parse()?).await?;
            let code = answer.status().as_u16();
            let body = http_body_util::BodyExt::collect(answer.into_body()).await?.to_bytes();
            Ok::<_, anyhow::Error>((code, String::from_utf8_lossy(&body).into_owned()))
        }
    };
    assert_eq!(get("/healthz").await?.0, 200);
    assert_eq!(get("/readyz").await?, (200, "ok: allocating\n".into()));
    cluster.service("shop/a", &[]).await?;
    cluster.has_some("shop/a").await?;
    let line = "purelb_address_pool_addresses_in_use{pool=\"default\"} 1";
    purelb_kit::wait::eventually("the gauge follows", PATIENCE, || async {
        let (_, text) = get("/metrics").await.map_err(|e| e.to_string())?;
        if text.contains(line) { Ok(()) } else { Err(text) }
    })
    .await?;
    running.stop().await
}
