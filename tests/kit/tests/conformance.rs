//! One suite of checks over two servers: the embedded API and the real kube-apiserver.
//!
//! A check that passes on one and fails on the other is a bug of the embedded server.
//! Every check works in a Namespace of its own, so all run at once and beside others.

#[path = "conformance/applies.rs"]
mod applies;
#[path = "conformance/builtins.rs"]
mod builtins;
#[path = "conformance/deletes.rs"]
mod deletes;
#[path = "conformance/kit.rs"]
mod kit;
#[path = "conformance/reads.rs"]
mod reads;
#[path = "conformance/watches.rs"]
mod watches;
#[path = "conformance/writes.rs"]
mod writes;

use std::time::Instant;

use anyhow::{Result, ensure};
use futures::{StreamExt, stream};
use kube::config::{KubeConfigOptions, Kubeconfig};
use purelb_kit::controlplane::{ControlPlane, manifests};
use purelb_kit::embedded::{EmbeddedApi, Kind};
use purelb_kit::faults::Proxy;
use serde_json::json;

use kit::{Check, Ctx};

/// Checks under way at once: enough to hide the watches that wait for a timeout.
const AT_ONCE: usize = 12;

async fn run(server: &str, client: kube::Client) -> Result<()> {
    let began = Instant::now();
    let checks =
        [reads::CHECKS, watches::CHECKS, writes::CHECKS, builtins::CHECKS, deletes::CHECKS, applies::CHECKS]
            .concat();
    let outcomes = stream::iter(&checks)
        .map(|Check { name, run }| {
            let client = client.clone();
            async move {
                let outcome = match Ctx::new(client, name).await {
                    Ok(ctx) => run(ctx).await,
                    Err(error) => Err(error.context("make a Namespace for the check")),
                };
                (*name, outcome)
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let failed = outcomes
        .iter()
        .filter_map(|(name, outcome)| outcome.as_ref().err().map(|error| format!("{name}: {error:#}")))
        .collect::<Vec<_>>();
    let took = began.elapsed();
    eprintln!("{server}: {} of {} checks passed in {took:.1?}", checks.len() - failed.len(), checks.len());
    ensure!(failed.is_empty(), "{server} differs:\n{}", failed.join("\n"));
    Ok(())
}

async fn start_embedded() -> Result<EmbeddedApi> {
    let samples = Kind::custom(kit::GROUP, "v1", "samples", "Sample");
    EmbeddedApi::builder().kind(samples).start().await
}

#[tokio::test]
async fn the_embedded_server_conforms() -> Result<()> {
    let api = start_embedded().await?;
    run("embedded API", api.client("conformance")?).await
}

/// A proxy that injects nothing changes nothing.
#[tokio::test]
async fn the_embedded_server_conforms_behind_a_fault_proxy() -> Result<()> {
    let api = start_embedded().await?;
    let proxy = Proxy::before(&api).start().await?;
    run("embedded API behind a proxy", proxy.client("conformance")?).await
}

#[tokio::test]
async fn the_real_server_conforms() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let file = Kubeconfig::read_from(plane.admin_kubeconfig(&plane.url())?)?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    // A client that retries 504 by itself would hide one answer and make the suite slow.
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static("conformance")));
    let client = kube::Client::try_from(config)?;
    manifests::apply(&client, &[sample_crd()]).await?;
    run(&format!("kube-apiserver {}", plane.version()), client).await
}

/// The kind the checks on custom resources use.
fn sample_crd() -> serde_json::Value {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let conditions = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {"type": "object", "required": ["type"], "x-kubernetes-preserve-unknown-fields": true,
                  "properties": {"type": {"type": "string"}}},
    });
    let mut status = free.clone();
    status["properties"] = json!({ "conditions": conditions });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("samples.{}", kit::GROUP)},
        "spec": {
            "group": kit::GROUP,
            "scope": "Namespaced",
            "names": {"plural": "samples", "singular": "sample", "kind": "Sample", "listKind": "SampleList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": status}}},
            }],
        },
    })
}
