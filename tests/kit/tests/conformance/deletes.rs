//! Deletion: preconditions, finalizers, collections.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::kit::{Ctx, JSON, MERGE, checks, encode, mk_lease, mk_sample, names, version};

checks![
    a_deletion_says_what_it_did,
    a_deleted_service_is_shown_once_more,
    a_deletion_of_nothing_is_not_found,
    a_deletion_may_demand_a_uid,
    a_deletion_may_demand_a_version,
    finalizers_hold_an_object,
    an_object_that_goes_takes_no_new_finalizer,
    a_collection_can_be_deleted,
    a_name_can_be_used_again,
];

async fn a_deletion_says_what_it_did(ctx: Ctx) -> Result<()> {
    let made = ctx.create_lease("a").await?;
    let said = ctx.delete(&format!("{}/a", ctx.leases()), json!({})).await?.is(200)?;
    ensure!(said["kind"] == "Status" && said["status"] == "Success", "{said}");
    ensure!(said["details"]["name"] == "a" && said["details"]["kind"] == "leases", "{said}");
    ensure!(said["details"]["uid"] == made["metadata"]["uid"], "{said}");
    ctx.get(&format!("{}/a", ctx.leases())).await?.is(404)?;
    Ok(())
}

async fn a_deleted_service_is_shown_once_more(ctx: Ctx) -> Result<()> {
    ctx.create_service("a").await?;
    let said = ctx.delete(&format!("{}/a", ctx.services()), json!({})).await?.is(200)?;
    ensure!(said["kind"] == "Service" && said["metadata"]["name"] == "a", "{said}");
    Ok(())
}

async fn a_deletion_of_nothing_is_not_found(ctx: Ctx) -> Result<()> {
    for path in [ctx.leases(), ctx.services(), ctx.samples()] {
        ctx.delete(&format!("{path}/none"), json!({})).await?.refused(404, "NotFound")?;
    }
    Ok(())
}

async fn a_deletion_may_demand_a_uid(ctx: Ctx) -> Result<()> {
    let made = ctx.create_lease("a").await?;
    let path = format!("{}/a", ctx.leases());
    let other = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    let said = ctx.delete(&path, other).await?.refused(409, "Conflict")?;
    ensure!(
        said["message"].as_str().unwrap_or_default().contains("the UID in the precondition (00000000-"),
        "{said}"
    );
    ctx.get(&path).await?.is(200)?;
    ctx.delete(&path, json!({"preconditions": {"uid": made["metadata"]["uid"]}})).await?.is(200)?;
    ctx.get(&path).await?.is(404)?;
    Ok(())
}

async fn a_deletion_may_demand_a_version(ctx: Ctx) -> Result<()> {
    let made = ctx.create_lease("a").await?;
    let path = format!("{}/a", ctx.leases());
    let now = ctx.patch(&path, MERGE, json!({"spec": {"holderIdentity": "two"}})).await?.is(200)?;
    let at = |version: u64| json!({"preconditions": {"resourceVersion": version.to_string()}});
    let said = ctx.delete(&path, at(version(&made)?)).await?.refused(409, "Conflict")?;
    ensure!(
        said["message"].as_str().unwrap_or_default().contains("the ResourceVersion in the precondition"),
        "{said}"
    );
    ctx.delete(&path, at(version(&now)?)).await?.is(200)?;
    Ok(())
}

async fn finalizers_hold_an_object(ctx: Ctx) -> Result<()> {
    let mut sample = mk_sample("a");
    sample["metadata"]["finalizers"] = json!(["purelb.io/one", "purelb.io/two"]);
    let made = ctx.post(&ctx.samples(), sample).await?.is(201)?;
    let path = format!("{}/a", ctx.samples());
    let mut watch = ctx.watch(&ctx.samples(), &format!("&resourceVersion={}", version(&made)?)).await?;
    let going = ctx.delete(&path, json!({})).await?.is(200)?;
    ensure!(going["kind"] == "Sample" && going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    ensure!(going["metadata"]["generation"] == 2, "{going}");
    ensure!(watch.expect("MODIFIED").await?["metadata"]["deletionTimestamp"].is_string());
    // Deleting it again changes nothing.
    let again = ctx.delete(&path, json!({})).await?.is(200)?;
    ensure!(version(&again)? == version(&going)?, "{again}");
    let change = json!({"metadata": {"finalizers": ["purelb.io/two"]}});
    ctx.patch(&path, MERGE, change).await?.is(200)?;
    watch.expect("MODIFIED").await?;
    let change = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    ctx.patch(&path, JSON, change).await?.is(200)?;
    let gone = watch.expect("DELETED").await?;
    ensure!(gone["metadata"]["name"] == "a", "{gone}");
    ctx.get(&path).await?.is(404)?;
    Ok(())
}

async fn an_object_that_goes_takes_no_new_finalizer(ctx: Ctx) -> Result<()> {
    let mut lease = mk_lease("a");
    lease["metadata"]["finalizers"] = json!(["purelb.io/one"]);
    ctx.post(&ctx.leases(), lease).await?.is(201)?;
    let path = format!("{}/a", ctx.leases());
    ctx.delete(&path, json!({})).await?.is(200)?;
    let change = json!({"metadata": {"finalizers": ["purelb.io/one", "purelb.io/two"]}});
    ctx.patch(&path, MERGE, change).await?.refused(422, "Invalid")?;
    ctx.patch(&path, MERGE, json!({"metadata": {"finalizers": null}})).await?.is(200)?;
    ctx.get(&path).await?.is(404)?;
    Ok(())
}

async fn a_collection_can_be_deleted(ctx: Ctx) -> Result<()> {
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut lease = mk_lease(name);
        lease["metadata"]["labels"] = json!({ "l": label });
        ctx.post(&ctx.leases(), lease).await?.is(201)?;
    }
    let path = format!("{}?labelSelector={}", ctx.leases(), encode("l=x"));
    ctx.delete(&path, json!({})).await?.is(200)?;
    ensure!(names(&ctx.get(&ctx.leases()).await?.is(200)?) == ["b"]);
    Ok(())
}

async fn a_name_can_be_used_again(ctx: Ctx) -> Result<()> {
    let first = ctx.create_lease("a").await?;
    let path = format!("{}/a", ctx.leases());
    ctx.delete(&path, json!({})).await?.is(200)?;
    let second = ctx.create_lease("a").await?;
    ensure!(first["metadata"]["uid"] != second["metadata"]["uid"]);
    // What was read of the first one does not write over the second.
    let mut late = first;
    late["spec"]["holderIdentity"] = "late".into();
    ctx.put(&path, late).await?.refused(409, "Conflict")?;
    Ok(())
}
