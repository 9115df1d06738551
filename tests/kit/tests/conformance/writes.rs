//! Create, update and patch.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::kit::{Ctx, JSON, MERGE, checks, mk_lease, mk_sample, mk_service, version};

checks![
    creation_stamps_an_object,
    what_a_client_may_not_set_is_ignored,
    a_second_creation_is_refused,
    names_are_made_up_on_request,
    a_name_is_needed,
    a_name_has_rules,
    a_namespace_has_to_exist,
    a_creation_names_no_version,
    a_body_has_to_fit_its_url,
    a_body_has_to_be_readable,
    an_update_from_an_old_version_conflicts,
    an_update_without_version,
    an_update_of_nothing,
    an_update_of_another_uid_conflicts,
    an_update_under_another_name_is_refused,
    generation_counts_changes_of_the_spec,
    status_and_spec_are_written_apart,
    a_status_write_and_metadata,
    a_merge_patch_merges_and_deletes,
    a_merge_patch_with_an_old_version_conflicts,
    a_json_patch_tests,
    a_strategic_patch_of_a_custom_resource_is_refused,
    a_patch_of_nothing_is_not_found,
    a_dry_run_stores_nothing,
    a_large_annotation_is_kept,
];

async fn creation_stamps_an_object(ctx: Ctx) -> Result<()> {
    let sample = ctx.create_sample("a").await?;
    let metadata = &sample["metadata"];
    ensure!(metadata["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{sample}");
    ensure!(metadata["creationTimestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{sample}");
    ensure!(metadata["namespace"] == ctx.namespace.as_str() && metadata["generation"] == 1, "{sample}");
    ensure!(metadata["managedFields"][0]["manager"] == "conformance", "{sample}");
    ensure!(metadata["managedFields"][0]["operation"] == "Update", "{sample}");
    ensure!(version(&sample)? > 0);
    let lease = ctx.create_lease("a").await?;
    ensure!(lease["metadata"]["generation"].is_null(), "a Lease has no generation: {lease}");
    ensure!(lease["apiVersion"] == "coordination.k8s.io/v1" && lease["kind"] == "Lease", "{lease}");
    let read = ctx.get(&format!("{}/a", ctx.leases())).await?.is(200)?;
    ensure!(read == lease, "{read} is not {lease}");
    Ok(())
}

async fn what_a_client_may_not_set_is_ignored(ctx: Ctx) -> Result<()> {
    let mut sample = mk_sample("a");
    sample["metadata"]["uid"] = "1234".into();
    sample["metadata"]["generation"] = 7.into();
    sample["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    sample["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    let made = ctx.post(&ctx.samples(), sample).await?.is(201)?;
    let metadata = &made["metadata"];
    ensure!(metadata["uid"] != "1234" && metadata["generation"] == 1, "{made}");
    ensure!(metadata["creationTimestamp"] != "2001-01-01T00:00:00Z", "{made}");
    ensure!(metadata["deletionTimestamp"].is_null(), "{made}");
    // Nor later.
    let path = format!("{}/a", ctx.samples());
    let change = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9}});
    let after = ctx.patch(&path, MERGE, change).await?.is(200)?;
    ensure!(after["metadata"]["creationTimestamp"] == metadata["creationTimestamp"], "{after}");
    ensure!(after["metadata"]["generation"] == 1, "{after}");
    Ok(())
}

async fn a_second_creation_is_refused(ctx: Ctx) -> Result<()> {
    ctx.create_lease("a").await?;
    let said = ctx.post(&ctx.leases(), mk_lease("a")).await?.refused(409, "AlreadyExists")?;
    ensure!(said["message"] == "leases.coordination.k8s.io \"a\" already exists", "{said}");
    Ok(())
}

async fn names_are_made_up_on_request(ctx: Ctx) -> Result<()> {
    let mut lease = mk_lease("x");
    lease["metadata"] = json!({"generateName": "some-"});
    let one = ctx.post(&ctx.leases(), lease.clone()).await?.is(201)?;
    let two = ctx.post(&ctx.leases(), lease).await?.is(201)?;
    let name = one["metadata"]["name"].as_str().unwrap_or_default();
    ensure!(
        name.len() == 10 && name.starts_with("some-") && one["metadata"]["name"] != two["metadata"]["name"]
    );
    Ok(())
}

async fn a_name_is_needed(ctx: Ctx) -> Result<()> {
    let mut lease = mk_lease("x");
    lease["metadata"] = json!({});
    let said = ctx.post(&ctx.leases(), lease).await?.refused(422, "Invalid")?;
    ensure!(said["details"]["causes"][0]["field"] == "metadata.name", "{said}");
    Ok(())
}

async fn a_name_has_rules(ctx: Ctx) -> Result<()> {
    for name in ["Upper", "under_score", "-dash"] {
        let said = ctx.post(&ctx.samples(), mk_sample(name)).await?.refused(422, "Invalid")?;
        ensure!(said["details"]["causes"][0]["field"] == "metadata.name", "{said}");
    }
    Ok(())
}

async fn a_namespace_has_to_exist(ctx: Ctx) -> Result<()> {
    let path = "/apis/coordination.k8s.io/v1/namespaces/there-is-none/leases";
    let said = ctx.post(path, mk_lease("a")).await?.refused(404, "NotFound")?;
    ensure!(said["message"] == "namespaces \"there-is-none\" not found", "{said}");
    Ok(())
}

async fn a_creation_names_no_version(ctx: Ctx) -> Result<()> {
    let mut lease = mk_lease("a");
    lease["metadata"]["resourceVersion"] = "5".into();
    let answer = ctx.post(&ctx.leases(), lease).await?;
    ensure!(answer.code >= 400, "{answer:?}");
    let message = answer.body["message"].as_str().unwrap_or_default();
    ensure!(message.contains("resourceVersion should not be set on objects to be created"), "{answer:?}");
    ctx.get(&format!("{}/a", ctx.leases())).await?.is(404)?;
    Ok(())
}

async fn a_body_has_to_fit_its_url(ctx: Ctx) -> Result<()> {
    let mut elsewhere = mk_lease("a");
    elsewhere["metadata"]["namespace"] = "default".into();
    ctx.post(&ctx.leases(), elsewhere).await?.refused(400, "BadRequest")?;
    ctx.post(&ctx.leases(), mk_service("a")).await?.refused(400, "BadRequest")?;
    ctx.post(&ctx.samples(), mk_lease("a")).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn a_body_has_to_be_readable(ctx: Ctx) -> Result<()> {
    let half = b"{\"metadata\": {".to_vec();
    ctx.send(Method::POST, &ctx.leases(), "application/json", half).await?.refused(400, "BadRequest")?;
    let mut lease = mk_lease("a");
    lease["spec"]["leaseDurationSeconds"] = "ten".into();
    ctx.post(&ctx.leases(), lease).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn an_update_from_an_old_version_conflicts(ctx: Ctx) -> Result<()> {
    let first = ctx.create_lease("a").await?;
    let path = format!("{}/a", ctx.leases());
    let mut second = first.clone();
    second["spec"]["holderIdentity"] = "two".into();
    let second = ctx.put(&path, second).await?.is(200)?;
    ensure!(version(&second)? > version(&first)?);
    let mut late = first;
    late["spec"]["holderIdentity"] = "three".into();
    let said = ctx.put(&path, late).await?.refused(409, "Conflict")?;
    let expected = "Operation cannot be fulfilled on leases.coordination.k8s.io \"a\": the object has been \
                    modified; please apply your changes to the latest version and try again";
    ensure!(said["message"] == expected, "{said}");
    ensure!(said["details"]["name"] == "a" && said["details"]["kind"] == "leases", "{said}");
    let now = ctx.get(&path).await?.is(200)?;
    ensure!(now == second, "the refused write left a trace: {now}");
    Ok(())
}

async fn an_update_without_version(ctx: Ctx) -> Result<()> {
    ctx.create_lease("a").await?;
    ctx.create_sample("a").await?;
    ctx.create_service("a").await?;
    let said = ctx.put(&format!("{}/a", ctx.leases()), mk_lease("a")).await?.refused(422, "Invalid")?;
    ensure!(said["details"]["causes"][0]["field"] == "metadata.resourceVersion", "{said}");
    ctx.put(&format!("{}/a", ctx.samples()), mk_sample("a")).await?.refused(422, "Invalid")?;
    // A Service may be replaced blindly.
    let mut service = mk_service("a");
    service["metadata"]["labels"] = json!({"x": "y"});
    let now = ctx.put(&format!("{}/a", ctx.services()), service).await?.is(200)?;
    ensure!(now["metadata"]["labels"]["x"] == "y", "{now}");
    Ok(())
}

async fn an_update_of_nothing(ctx: Ctx) -> Result<()> {
    let mut sample = mk_sample("a");
    sample["metadata"]["resourceVersion"] = "5".into();
    ctx.put(&format!("{}/a", ctx.samples()), sample).await?.refused(404, "NotFound")?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    ctx.put(&format!("{}/a", ctx.secrets()), secret).await?.refused(404, "NotFound")?;
    // Leases and Services come into being by a PUT.
    let lease = ctx.put(&format!("{}/a", ctx.leases()), mk_lease("a")).await?.is(201)?;
    ensure!(lease["spec"]["holderIdentity"] == "one", "{lease}");
    ctx.put(&format!("{}/a", ctx.services()), mk_service("a")).await?.is(201)?;
    Ok(())
}

async fn an_update_of_another_uid_conflicts(ctx: Ctx) -> Result<()> {
    let mut lease = ctx.create_lease("a").await?;
    lease["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let said = ctx.put(&format!("{}/a", ctx.leases()), lease).await?.refused(409, "Conflict")?;
    ensure!(said["message"].as_str().unwrap_or_default().contains("Precondition failed: UID"), "{said}");
    Ok(())
}

async fn an_update_under_another_name_is_refused(ctx: Ctx) -> Result<()> {
    let lease = ctx.create_lease("a").await?;
    ctx.put(&format!("{}/b", ctx.leases()), lease).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn generation_counts_changes_of_the_spec(ctx: Ctx) -> Result<()> {
    ctx.create_sample("a").await?;
    let path = format!("{}/a", ctx.samples());
    for (at, change, expected) in [
        ("", json!({"metadata": {"labels": {"x": "y"}}}), 1),
        ("/status", json!({"status": {"ok": true}}), 1),
        ("", json!({"spec": {"size": 2}}), 2),
        ("", json!({"spec": {"size": 2}}), 2),
        ("", json!({"spec": {"size": 3}}), 3),
    ] {
        let now = ctx.patch(&format!("{path}{at}"), MERGE, change).await?.is(200)?;
        ensure!(now["metadata"]["generation"] == expected, "{now}");
    }
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", ctx.namespace);
    let slice = json!({"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": []});
    let slice = ctx.post(&slices, slice).await?.is(201)?;
    ensure!(slice["metadata"]["generation"] == 1, "{slice}");
    let change = json!({"endpoints": [{"addresses": ["10.0.0.2"]}]});
    let slice = ctx.patch(&format!("{slices}/a"), MERGE, change).await?.is(200)?;
    ensure!(slice["metadata"]["generation"] == 2, "{slice}");
    Ok(())
}

async fn status_and_spec_are_written_apart(ctx: Ctx) -> Result<()> {
    let mut sample = mk_sample("a");
    sample["status"] = json!({"ok": true});
    let made = ctx.post(&ctx.samples(), sample).await?.is(201)?;
    ensure!(made["status"].is_null(), "a status at creation is dropped: {made}");
    let path = format!("{}/a", ctx.samples());
    let both = json!({"spec": {"size": 9}, "status": {"ok": true}});
    let now = ctx.patch(&format!("{path}/status"), MERGE, both.clone()).await?.is(200)?;
    ensure!(now["spec"]["size"] == 1 && now["status"]["ok"] == true, "{now}");
    let both = json!({"spec": {"size": 5}, "status": {"ok": false}});
    let mut now = ctx.patch(&path, MERGE, both).await?.is(200)?;
    ensure!(now["spec"]["size"] == 5 && now["status"]["ok"] == true, "{now}");
    now["spec"]["size"] = 6.into();
    now["status"] = json!({"ok": "replaced"});
    let now = ctx.put(&format!("{path}/status"), now).await?.is(200)?;
    ensure!(now["spec"]["size"] == 5 && now["status"]["ok"] == "replaced", "{now}");
    let read = ctx.get(&format!("{path}/status")).await?.is(200)?;
    ensure!(read == now, "{read}");
    Ok(())
}

async fn a_status_write_and_metadata(ctx: Ctx) -> Result<()> {
    let change = json!({"metadata": {"annotations": {"x": "y"}}, "status": {"conditions": []}});
    ctx.create_sample("a").await?;
    let now = ctx.patch(&format!("{}/a/status", ctx.samples()), MERGE, change.clone()).await?.is(200)?;
    ensure!(now["metadata"]["annotations"].is_null(), "a custom resource's metadata is not status: {now}");
    ctx.create_service("a").await?;
    let now = ctx.patch(&format!("{}/a/status", ctx.services()), MERGE, change).await?.is(200)?;
    ensure!(now["metadata"]["annotations"]["x"] == "y", "a Service's is: {now}");
    Ok(())
}

async fn a_merge_patch_merges_and_deletes(ctx: Ctx) -> Result<()> {
    ctx.create_lease("a").await?;
    let path = format!("{}/a", ctx.leases());
    let change =
        json!({"metadata": {"annotations": {"x": "1", "y": "2"}}, "spec": {"holderIdentity": "two"}});
    ctx.patch(&path, MERGE, change).await?.is(200)?;
    let change = json!({"metadata": {"annotations": {"x": null, "z": "3"}}});
    let now = ctx.patch(&path, MERGE, change).await?.is(200)?;
    ensure!(now["metadata"]["annotations"] == json!({"y": "2", "z": "3"}), "{now}");
    ensure!(now["spec"] == json!({"holderIdentity": "two", "leaseDurationSeconds": 10}), "{now}");
    let now = ctx.patch(&path, MERGE, json!({"metadata": {"annotations": null}})).await?.is(200)?;
    ensure!(now["metadata"]["annotations"].is_null(), "{now}");
    let now = ctx
        .patch(&path, MERGE, json!({"spec": {"renewTime": "2026-01-02T03:04:05.000006Z"}}))
        .await?
        .is(200)?;
    ensure!(now["spec"]["renewTime"] == "2026-01-02T03:04:05.000006Z", "{now}");
    Ok(())
}

async fn a_merge_patch_with_an_old_version_conflicts(ctx: Ctx) -> Result<()> {
    let old = version(&ctx.create_lease("a").await?)?.to_string();
    let path = format!("{}/a", ctx.leases());
    let with = |holder: &str, version: &str| json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder}});
    let now = ctx.patch(&path, MERGE, with("two", &old)).await?.is(200)?;
    ctx.patch(&path, MERGE, with("three", &old)).await?.refused(409, "Conflict")?;
    ctx.patch(&path, MERGE, with("three", &version(&now)?.to_string())).await?.is(200)?;
    let uid = json!({"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}});
    ctx.patch(&path, MERGE, uid).await?.refused(422, "Invalid")?;
    Ok(())
}

async fn a_json_patch_tests(ctx: Ctx) -> Result<()> {
    ctx.create_lease("a").await?;
    let path = format!("{}/a", ctx.leases());
    let change = |was: &str, is: &str| {
        json!([
            {"op": "test", "path": "/spec/holderIdentity", "value": was},
            {"op": "replace", "path": "/spec/holderIdentity", "value": is},
            {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "x"}},
        ])
    };
    let now = ctx.patch(&path, JSON, change("one", "two")).await?.is(200)?;
    ensure!(now["spec"]["holderIdentity"] == "two" && now["metadata"]["annotations"]["a/b"] == "x", "{now}");
    ctx.patch(&path, JSON, change("one", "three")).await?.refused(422, "Invalid")?;
    let gone = json!([{"op": "remove", "path": "/metadata/annotations/a~1b"}]);
    let now = ctx.patch(&path, JSON, gone.clone()).await?.is(200)?;
    ensure!(now["metadata"]["annotations"].is_null() && now["spec"]["holderIdentity"] == "two", "{now}");
    ctx.patch(&path, JSON, gone).await?.refused(422, "Invalid")?;
    Ok(())
}

async fn a_strategic_patch_of_a_custom_resource_is_refused(ctx: Ctx) -> Result<()> {
    ctx.create_sample("a").await?;
    let media = "application/strategic-merge-patch+json";
    let path = format!("{}/a", ctx.samples());
    ctx.patch(&path, media, json!({"spec": {"size": 2}})).await?.refused(415, "UnsupportedMediaType")?;
    Ok(())
}

async fn a_patch_of_nothing_is_not_found(ctx: Ctx) -> Result<()> {
    for (path, change) in [(ctx.leases(), json!({"spec": {}})), (ctx.samples(), json!({"spec": {}}))] {
        ctx.patch(&format!("{path}/none"), MERGE, change).await?.refused(404, "NotFound")?;
    }
    ctx.patch(&format!("{}/none/status", ctx.services()), MERGE, json!({}))
        .await?
        .refused(404, "NotFound")?;
    Ok(())
}

async fn a_dry_run_stores_nothing(ctx: Ctx) -> Result<()> {
    ctx.post(&format!("{}?dryRun=All", ctx.leases()), mk_lease("a")).await?.is(201)?;
    ctx.get(&format!("{}/a", ctx.leases())).await?.is(404)?;
    let made = ctx.create_lease("a").await?;
    let path = format!("{}/a", ctx.leases());
    let change = json!({"spec": {"holderIdentity": "two"}});
    let would = ctx.patch(&format!("{path}?dryRun=All"), MERGE, change).await?.is(200)?;
    ensure!(would["spec"]["holderIdentity"] == "two", "{would}");
    ensure!(ctx.get(&path).await?.is(200)? == made);
    ctx.delete(&path, json!({"dryRun": ["All"]})).await?.is(200)?;
    ctx.get(&path).await?.is(200)?;
    // A body, even an empty one, counts for more than the query.
    ctx.delete(&format!("{path}?dryRun=All"), json!({})).await?.is(200)?;
    ctx.get(&path).await?.is(404)?;
    Ok(())
}

async fn a_large_annotation_is_kept(ctx: Ctx) -> Result<()> {
    let text = "x".repeat(200 * 1024);
    let mut lease = mk_lease("a");
    lease["metadata"]["annotations"] = json!({ "big": text });
    ctx.post(&ctx.leases(), lease).await?.is(201)?;
    let read = ctx.get(&format!("{}/a", ctx.leases())).await?.is(200)?;
    ensure!(read["metadata"]["annotations"]["big"] == Value::String(text));
    Ok(())
}
