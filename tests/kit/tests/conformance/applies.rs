//! Server-side apply: who owns which field.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::kit::{APPLY, Answer, Ctx, GROUP, MERGE, checks, version};

checks![
    an_apply_creates,
    an_apply_again_changes_nothing,
    fields_no_longer_applied_go,
    a_field_two_managers_apply_stays_with_the_other,
    anothers_field_is_a_conflict,
    force_takes_the_field,
    an_update_takes_the_field,
    an_update_and_an_apply_of_one_name_are_two_managers,
    an_apply_needs_a_manager,
    only_an_apply_may_force,
    an_apply_has_to_name_its_kind,
    an_apply_without_our_managed_fields,
    an_apply_at_an_old_version_conflicts,
    an_applied_status_is_apart,
    conditions_have_owners_of_their_own,
    an_ingress_list_has_one_owner,
    ports_are_merged_by_number,
    a_status_of_nothing_is_not_applied,
];

async fn apply(ctx: &Ctx, path: &str, manager: &str, body: Value) -> Result<Answer> {
    ctx.patch(&format!("{path}?fieldManager={manager}"), APPLY, body).await
}

fn lease(annotations: Value, holder: Option<&str>) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "a", "annotations": annotations},
    });
    if let Some(holder) = holder {
        lease["spec"] = json!({ "holderIdentity": holder });
    }
    lease
}

/// The entry of a manager in `managedFields`.
fn entry<'a>(object: &'a Value, manager: &str, operation: &str) -> Option<&'a Value> {
    let mut entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.find(|entry| entry["manager"] == manager && entry["operation"] == operation)
}

async fn an_apply_creates(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    let made = apply(&ctx, &path, "one", lease(json!({"x": "1"}), Some("n"))).await?.is(201)?;
    ensure!(made["spec"]["holderIdentity"] == "n" && made["metadata"]["annotations"]["x"] == "1", "{made}");
    let fields = entry(&made, "one", "Apply").map(|entry| entry["fieldsV1"].clone());
    let expected = json!({
        "f:metadata": {"f:annotations": {"f:x": {}}}, "f:spec": {"f:holderIdentity": {}},
    });
    ensure!(fields == Some(expected), "{made}");
    Ok(())
}

async fn an_apply_again_changes_nothing(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    let body = lease(json!({"x": "1"}), Some("n"));
    let made = apply(&ctx, &path, "one", body.clone()).await?.is(201)?;
    let again = apply(&ctx, &path, "one", body).await?.is(200)?;
    ensure!(version(&again)? == version(&made)?, "{again}");
    Ok(())
}

async fn fields_no_longer_applied_go(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    ctx.create_lease("a").await?;
    apply(&ctx, &path, "one", lease(json!({"x": "1", "y": "1"}), None)).await?.is(200)?;
    ctx.patch(&path, MERGE, json!({"metadata": {"annotations": {"theirs": "1"}}})).await?.is(200)?;
    let now = apply(&ctx, &path, "one", lease(json!({"y": "2"}), None)).await?.is(200)?;
    ensure!(now["metadata"]["annotations"] == json!({"y": "2", "theirs": "1"}), "{now}");
    let mut nothing = lease(json!({}), None);
    nothing["metadata"] = json!({"name": "a"});
    let now = apply(&ctx, &path, "one", nothing).await?.is(200)?;
    ensure!(now["metadata"]["annotations"] == json!({"theirs": "1"}), "{now}");
    ensure!(now["spec"]["holderIdentity"] == "one", "{now}");
    Ok(())
}

async fn a_field_two_managers_apply_stays_with_the_other(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    apply(&ctx, &path, "one", lease(json!({"x": "1", "y": "1"}), None)).await?.is(201)?;
    apply(&ctx, &path, "two", lease(json!({"x": "1"}), None)).await?.is(200)?;
    let now = apply(&ctx, &path, "one", lease(json!({"y": "1"}), None)).await?.is(200)?;
    ensure!(now["metadata"]["annotations"] == json!({"x": "1", "y": "1"}), "{now}");
    Ok(())
}

async fn anothers_field_is_a_conflict(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    let made = apply(&ctx, &path, "one", lease(json!({"x": "1"}), Some("n"))).await?.is(201)?;
    let said = apply(&ctx, &path, "two", lease(json!({"x": "2"}), None)).await?.refused(409, "Conflict")?;
    let cause = &said["details"]["causes"][0];
    ensure!(
        cause["reason"] == "FieldManagerConflict" && cause["field"] == ".metadata.annotations.x",
        "{said}"
    );
    ensure!(cause["message"] == "conflict with \"one\"", "{said}");
    let message = said["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("Apply failed with 1 conflict: conflict with \"one\""), "{said}");
    ensure!(ctx.get(&path).await?.is(200)? == made);
    let two = lease(json!({"x": "2"}), Some("m"));
    let said = apply(&ctx, &path, "two", two).await?.refused(409, "Conflict")?;
    ensure!(said["details"]["causes"].as_array().map(Vec::len) == Some(2), "{said}");
    Ok(())
}

async fn force_takes_the_field(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    apply(&ctx, &path, "one", lease(json!({"x": "1", "y": "1"}), None)).await?.is(201)?;
    let now = apply(&ctx, &path, "two&force=true", lease(json!({"x": "2"}), None)).await?.is(200)?;
    ensure!(now["metadata"]["annotations"] == json!({"x": "2", "y": "1"}), "{now}");
    let left = entry(&now, "one", "Apply").map(|entry| entry["fieldsV1"].clone());
    ensure!(left == Some(json!({"f:metadata": {"f:annotations": {"f:y": {}}}})), "{now}");
    apply(&ctx, &path, "one", lease(json!({"x": "1", "y": "1"}), None)).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn an_update_takes_the_field(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    apply(&ctx, &path, "one", lease(json!({"x": "1"}), None)).await?.is(201)?;
    let change = json!({"metadata": {"annotations": {"x": "2"}}});
    ctx.patch(&format!("{path}?fieldManager=cli"), MERGE, change).await?.is(200)?;
    let said = apply(&ctx, &path, "one", lease(json!({"x": "1"}), None)).await?.refused(409, "Conflict")?;
    let message = said["details"]["causes"][0]["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("conflict with \"cli\" using coordination.k8s.io/v1"), "{said}");
    // The same value is no conflict: both own it.
    apply(&ctx, &path, "one", lease(json!({"x": "2"}), None)).await?.is(200)?;
    Ok(())
}

async fn an_update_and_an_apply_of_one_name_are_two_managers(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    let body = lease(json!({"x": "1"}), Some("n"));
    ctx.post(&format!("{}?fieldManager=one", ctx.leases()), body).await?.is(201)?;
    let change = lease(json!({"x": "2"}), None);
    apply(&ctx, &path, "one", change.clone()).await?.refused(409, "Conflict")?;
    let now = apply(&ctx, &path, "one&force=true", change).await?.is(200)?;
    ensure!(entry(&now, "one", "Apply").is_some() && entry(&now, "one", "Update").is_some(), "{now}");
    Ok(())
}

async fn an_apply_needs_a_manager(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    let said = ctx.patch(&path, APPLY, lease(json!({}), None)).await?.refused(422, "Invalid")?;
    ensure!(said["details"]["causes"][0]["field"] == "fieldManager", "{said}");
    Ok(())
}

async fn only_an_apply_may_force(ctx: Ctx) -> Result<()> {
    ctx.create_lease("a").await?;
    let path = format!("{}/a?force=true", ctx.leases());
    ctx.patch(&path, MERGE, json!({})).await?.refused(422, "Invalid")?;
    Ok(())
}

async fn an_apply_has_to_name_its_kind(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    let nameless = json!({"metadata": {"name": "a"}});
    apply(&ctx, &path, "one", nameless).await?.refused(400, "BadRequest")?;
    let mut other = lease(json!({}), None);
    other["metadata"]["name"] = "b".into();
    apply(&ctx, &path, "one", other).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn an_apply_without_our_managed_fields(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    let made = ctx.create_lease("a").await?;
    apply(&ctx, &path, "one", made).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn an_apply_at_an_old_version_conflicts(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.leases());
    let made = apply(&ctx, &path, "one", lease(json!({"x": "1"}), None)).await?.is(201)?;
    apply(&ctx, &path, "one", lease(json!({"x": "2"}), None)).await?.is(200)?;
    let mut late = lease(json!({"x": "3"}), None);
    late["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    apply(&ctx, &path, "one", late).await?.refused(409, "Conflict")?;
    // Where there is nothing, a version is no condition.
    let mut absent = lease(json!({}), None);
    absent["metadata"] = json!({"name": "b", "resourceVersion": "5"});
    apply(&ctx, &format!("{}/b", ctx.leases()), "one", absent).await?.is(201)?;
    Ok(())
}

fn sample(part: Value) -> Value {
    let mut sample =
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Sample", "metadata": {"name": "a"}});
    for (field, value) in part.as_object().into_iter().flatten() {
        sample[field] = value.clone();
    }
    sample
}

async fn an_applied_status_is_apart(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.samples());
    let body = sample(json!({"spec": {"size": 1}, "status": {"ok": false}}));
    let made = apply(&ctx, &path, "one", body).await?.is(201)?;
    ensure!(made["status"].is_null(), "{made}");
    let body = sample(json!({"status": {"ok": true}}));
    let now = apply(&ctx, &format!("{path}/status"), "one", body).await?.is(200)?;
    ensure!(now["status"]["ok"] == true && now["spec"]["size"] == 1, "{now}");
    let entries = now["metadata"]["managedFields"].as_array().map(Vec::len);
    ensure!(entries == Some(2), "one entry for the object, one for status: {now}");
    let now = apply(&ctx, &path, "one", sample(json!({"spec": {"size": 2}}))).await?.is(200)?;
    ensure!(now["status"]["ok"] == true, "{now}");
    Ok(())
}

async fn conditions_have_owners_of_their_own(ctx: Ctx) -> Result<()> {
    ctx.create_sample("a").await?;
    let path = format!("{}/a/status", ctx.samples());
    let condition = |kind: &str, status: &str| {
        sample(json!({"status": {"conditions": [{"type": kind, "status": status}]}}))
    };
    apply(&ctx, &path, "one", condition("Ready", "True")).await?.is(200)?;
    let now = apply(&ctx, &path, "two", condition("Accepted", "True")).await?.is(200)?;
    ensure!(now["status"]["conditions"].as_array().map(Vec::len) == Some(2), "{now}");
    let now = apply(&ctx, &path, "one", condition("Ready", "False")).await?.is(200)?;
    ensure!(now["status"]["conditions"][0] == json!({"type": "Ready", "status": "False"}), "{now}");
    apply(&ctx, &path, "two", condition("Ready", "True")).await?.refused(409, "Conflict")?;
    let now = apply(&ctx, &path, "one", sample(json!({"status": {}}))).await?.is(200)?;
    ensure!(now["status"]["conditions"] == json!([{"type": "Accepted", "status": "True"}]), "{now}");
    Ok(())
}

fn service(part: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}});
    for (field, value) in part.as_object().into_iter().flatten() {
        service[field] = value.clone();
    }
    service
}

async fn an_ingress_list_has_one_owner(ctx: Ctx) -> Result<()> {
    ctx.create_service("a").await?;
    let path = format!("{}/a/status", ctx.services());
    let ingress = |ips: &[&str]| {
        let entries = ips.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect::<Vec<_>>();
        service(json!({"status": {"loadBalancer": {"ingress": entries}}}))
    };
    apply(&ctx, &path, "one", ingress(&["192.0.2.1", "192.0.2.2"])).await?.is(200)?;
    let now = apply(&ctx, &path, "one", ingress(&["192.0.2.3"])).await?.is(200)?;
    let expected = json!([{"ip": "192.0.2.3", "ipMode": "VIP"}]);
    ensure!(now["status"]["loadBalancer"]["ingress"] == expected, "{now}");
    apply(&ctx, &path, "two", ingress(&["192.0.2.9"])).await?.refused(409, "Conflict")?;
    let now = apply(&ctx, &path, "one", service(json!({"status": {}}))).await?.is(200)?;
    ensure!(now["status"] == json!({"loadBalancer": {}}), "{now}");
    Ok(())
}

async fn ports_are_merged_by_number(ctx: Ctx) -> Result<()> {
    let path = format!("{}/a", ctx.services());
    let ports = |ports: Value| service(json!({"spec": {"ports": ports}}));
    let http = json!([{"port": 80, "name": "http"}]);
    apply(&ctx, &path, "one", ports(http)).await?.is(201)?;
    let now = apply(&ctx, &path, "two", ports(json!([{"port": 443, "name": "https"}]))).await?.is(200)?;
    ensure!(now["spec"]["ports"].as_array().map(Vec::len) == Some(2), "{now}");
    let now = apply(&ctx, &path, "one", ports(json!([{"port": 8080, "name": "http"}]))).await?.is(200)?;
    let mut numbers = now["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| port["port"].to_string())
        .collect::<Vec<_>>();
    numbers.sort();
    ensure!(numbers == ["443", "8080"], "{now}");
    Ok(())
}

async fn a_status_of_nothing_is_not_applied(ctx: Ctx) -> Result<()> {
    let body = sample(json!({"status": {"ok": true}}));
    apply(&ctx, &format!("{}/a/status", ctx.samples()), "one", body).await?.refused(404, "NotFound")?;
    Ok(())
}
