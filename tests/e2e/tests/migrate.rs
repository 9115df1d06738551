//! From v1 to v2 on a real API server, and back.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use purelb_e2e::{Answer, Running, own_plane};
use purelb_kit::wait::eventually;
use serde_json::json;

const WITHIN: Duration = Duration::from_secs(30);

/// The cluster serves v1 as well, as one does in the middle of a move.
async fn serve_v1(client: &kube::Client) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in ["servicegroups.purelb.io", "lbnodeagents.purelb.io"] {
        let anything =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        // Stored as v1: what v2 does not know would otherwise be dropped on the way in.
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": anything});
        let patch: json_patch::Patch = serde_json::from_value(json!([
            {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
            {"op": "add", "path": "/spec/versions/-", "value": version},
        ]))?;
        crds.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn groups_move_to_v2_and_back() -> Result<()> {
    let plane = own_plane().await?;
    let client = plane.admin()?;
    serve_v1(&client).await?;
    let kind = |version: &str| {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("purelb.io", version, "ServiceGroup"),
            "servicegroups",
        )
    };
    let old: Api<DynamicObject> = Api::namespaced_with(client.clone(), "purelb-system", &kind("v1"));
    let new: Api<DynamicObject> = Api::namespaced_with(client.clone(), "purelb-system", &kind("v2"));
    let group: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "purelb.io/v1", "kind": "ServiceGroup",
        "metadata": {"name": "default", "namespace": "purelb-system"},
        "spec": {"local": {"subnet": "192.0.2.0/24", "pool": "192.0.2.100-192.0.2.110", "aggregation": "default"}},
    }))?;
    eventually("v1 is served", WITHIN, || async {
        match old.create(&PostParams::default(), &group).await {
            Ok(_) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    })
    .await?;

    let directory = plane.dir().join("migrate");
    std::fs::create_dir_all(&directory)?;
    let kubeconfig = plane.admin_kubeconfig(&plane.url())?;
    let (config, backup) = (text(&kubeconfig)?, directory.join("backup.yaml"));
    let backup = text(&backup)?;
    let run = async |words: &str| -> Result<Answer> {
        let mut all = vec!["--kubeconfig", config.as_str()];
        all.extend(words.split_whitespace());
        Running::start(&all, &[])?.finish(WITHIN).await
    };

    let shown = run("migrate --remote").await?;
    assert!(shown.code == 0 && shown.out.contains("remote:"), "{shown:?}");
    let untouched = new.get("default").await?;
    assert!(untouched.data["spec"]["remote"].is_null(), "nothing is written without --apply: {untouched:?}");
    let undecided = run("migrate --apply").await?;
    assert!(undecided.code == 1 && undecided.err.contains("purelb-system/default"), "{undecided:?}");

    let applied = run(&format!("migrate --remote --apply --backup {backup}")).await?;
    assert_eq!(applied.code, 0, "{applied:?}");
    let now = new.get("default").await?;
    let pool = json!({"v4pool": {"subnet": "192.0.2.0/24", "pool": "192.0.2.100-192.0.2.110", "aggregation": "default"}});
    assert_eq!(now.data["spec"]["remote"]["v4pool"], pool["v4pool"], "{now:?}");
    assert!(now.data["spec"]["local"].is_null(), "as a whole, not merged: {now:?}");
    let saved = std::fs::read_to_string(&backup)?;
    assert!(saved.contains("192.0.2.100-192.0.2.110") && saved.contains("purelb.io/v1"), "{saved}");
    let twice = run(&format!("migrate -f {backup} --remote --apply --backup {backup}")).await?;
    assert!(
        twice.code == 1 && twice.err.contains("nothing was changed"),
        "a backup is never overwritten: {twice:?}"
    );

    let back = run(&format!("migrate --rollback {backup}")).await?;
    assert_eq!(back.code, 0, "{back:?}");
    let again = old.get("default").await?;
    assert_eq!(again.data["spec"], group.data["spec"]);
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).context("a path in UTF-8")
}
