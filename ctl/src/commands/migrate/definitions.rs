//! The cluster's definitions on the way from v1 to v2.
//!
//! ```text
//!              before         --serve-both      --finish
//!        v1    stored         stored, open      gone
//!        v2    unknown        served            stored
//!              <--------- --rollback
//! ```
//!
//! There is no conversion webhook: between versions the API server changes the
//! apiVersion and drops what the schema at hand does not know. So while both are served
//! v1 stays the stored version, with a schema that keeps every field: a v1 object is read
//! as it was written, and a v2 object loses nothing on its way through. And since nothing
//! is stored as v2 yet, the old definitions can be put back.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::TypeMeta;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::backup::{KINDS, resource};
use crate::client::cluster::{MANIFEST_DIRECTORY, error_cause};
use crate::commands::validate;
use crate::error::{CommandError, CommandResult};
use crate::offline::saved_objects::SavedObjects;

/// How long the API server may take to act on a changed definition.
const SERVE_TIMEOUT: Duration = Duration::from_secs(60);
/// Other API servers of the cluster hear of it a little later than the one that answers us.
const SETTLE_DELAY: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

fn api(client: &Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}

fn failed_call(what: impl std::fmt::Display) -> impl FnOnce(kube::Error) -> CommandError {
    move |e| CommandError::new(what).because(error_cause(&e))
}

fn as_value(crd: &CustomResourceDefinition) -> CommandResult<Value> {
    serde_json::to_value(crd).map_err(|e| CommandError::new("cannot read a definition").because(e))
}

/// One of the cluster's definitions.
async fn get_definition(client: &Client, name: &str) -> CommandResult<Value> {
    let found =
        api(client).get_opt(name).await.map_err(failed_call(format!("cannot read the definition {name}")))?;
    let missing = || {
        let install = format!("kubectl apply --server-side -k {MANIFEST_DIRECTORY}");
        CommandError::new(format!("the cluster has no definition {name}"))
            .next(format!("there is nothing to migrate: install v2 with `{install}`"))
    };
    as_value(&found.ok_or_else(missing)?)
}

/// The definitions as they are, for a backup.
pub async fn read_definitions(client: &Client) -> CommandResult<Vec<Value>> {
    let mut found = Vec::new();
    for shipped in purelb_api::crds::all() {
        let crd = get_definition(client, name(&shipped.crd)).await?;
        found.push(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": crd["metadata"]["name"]}, "spec": crd["spec"],
        }));
    }
    Ok(found)
}

pub fn name(crd: &Value) -> &str {
    crd["metadata"]["name"].as_str().unwrap_or_default()
}

fn version<'a>(crd: &'a Value, name: &str) -> Option<&'a Value> {
    crd["spec"]["versions"].as_array()?.iter().find(|v| v["name"] == name)
}

fn stored_versions(crd: &Value) -> Vec<&str> {
    let list = crd["status"]["storedVersions"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// v1 that keeps every field, with the columns the cluster had for it.
fn open_v1(old: Option<&Value>, storage: bool) -> Value {
    let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let mut version = json!({
        "name": "v1", "served": true, "storage": storage, "schema": open, "deprecated": true,
        "deprecationWarning": "purelb.io/v1 is left to be read until `purelbctl migrate --finish`",
    });
    if let Some(columns) = old.map(|v| &v["additionalPrinterColumns"]).filter(|c| c.is_array()) {
        version["additionalPrinterColumns"] = columns.clone();
    }
    version
}

/// The shipped definition with v1 beside v2; one of them is stored.
fn spec_with_both(shipped: &Value, old: Option<&Value>, stores: &str) -> Value {
    let mut spec = shipped["spec"].clone();
    spec["versions"][0]["storage"] = json!(stores == "v2");
    if let Some(versions) = spec["versions"].as_array_mut() {
        versions.push(open_v1(old, stores == "v1"));
    }
    spec
}

/// Puts a spec in place of the cluster's.
async fn replace_spec(client: &Client, now: &Value, spec: &Value) -> CommandResult<()> {
    let name = name(now);
    let mut wanted = now.clone();
    wanted["spec"] = spec.clone();
    let wanted: CustomResourceDefinition = serde_json::from_value(wanted)
        .map_err(|e| CommandError::new(format!("cannot write the definition {name}")).because(e))?;
    let done = api(client).replace(name, &PostParams::default(), &wanted).await;
    done.map(drop).map_err(failed_call(format!("cannot change the definition {name}")))
}

/// The version's resource as discovery shows it, by plural name.
async fn discover_resource(client: &Client, version: &str, plural: &str) -> Option<Value> {
    let list = client.list_api_group_resources(&format!("purelb.io/{version}")).await.ok()?;
    let found = list.resources.into_iter().find(|r| r.name == plural)?;
    serde_json::to_value(found).ok()
}

async fn wait_until<F, Fut>(what: &str, mut holds: F) -> CommandResult<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let deadline = Instant::now() + SERVE_TIMEOUT;
    while !holds().await {
        if Instant::now() > deadline {
            let next = "the definitions may be changed already; running it again is safe";
            return Err(
                CommandError::new(format!("{what}: not within {} s", SERVE_TIMEOUT.as_secs())).next(next)
            );
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

async fn can_list(client: &Client, version: &str, kind: &str) -> bool {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(version, kind));
    api.list(&ListParams::default().limit(1)).await.is_ok()
}

/// Serves v2 beside v1. Answers with what was done.
pub async fn serve_both(client: &Client) -> CommandResult<Vec<String>> {
    let mut done = Vec::new();
    for (shipped, kind) in purelb_api::crds::all().iter().zip(KINDS) {
        let now = get_definition(client, name(&shipped.crd)).await?;
        let name = name(&now);
        match (version(&now, "v1"), version(&now, "v2")) {
            (None, _) => done.push(format!("{name}: there is no v1; left as it is")),
            (Some(_), Some(_)) => done.push(format!("{name}: serves both already")),
            (old, None) => {
                replace_spec(client, &now, &spec_with_both(&shipped.crd, old, "v1")).await?;
                wait_until(&format!("{name} is served as v2"), || can_list(client, "v2", kind)).await?;
                done.push(format!("{name}: v2 is served beside v1"));
            }
        }
    }
    Ok(done)
}

/// Puts the saved definitions back. Only possible while v1 is the stored version.
pub async fn restore(client: &Client, saved: &[Value]) -> CommandResult<Vec<String>> {
    let mut done = Vec::new();
    for old in saved {
        let now = get_definition(client, name(old)).await?;
        if now["spec"]["versions"] == old["spec"]["versions"] {
            continue;
        }
        replace_spec(client, &now, &old["spec"]).await?;
        done.push(format!("definition {} is as it was", name(old)));
    }
    Ok(done)
}

/// Whether v1 objects can be written: no after `--finish`.
pub async fn knows_v1(client: &Client) -> CommandResult<bool> {
    for shipped in purelb_api::crds::all() {
        if version(&get_definition(client, name(&shipped.crd)).await?, "v1").is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Stores everything as v2 and takes v1 away.
pub async fn finish(client: &Client) -> CommandResult<Vec<String>> {
    let mut done = Vec::new();
    let shipped = purelb_api::crds::all();
    let mut open = Vec::new();
    for (file, kind) in shipped.iter().zip(KINDS) {
        let now = get_definition(client, name(&file.crd)).await?;
        if version(&now, "v1").is_none() && stored_versions(&now) == ["v2"] {
            done.push(format!("{}: is v2 already", name(&now)));
        } else {
            open.push((&file.crd, kind));
        }
    }
    check_nothing_is_lost(client, &open).await?;
    for (crd, kind) in open {
        store_v2(client, crd, kind).await?;
        let count = rewrite_objects(client, kind).await?;
        drop_v1(client, crd, kind).await?;
        done.push(format!("{}: {count} objects are stored as v2, v1 is gone", name(crd)));
    }
    Ok(done)
}

/// What v2 does not know would be dropped: refused, with each object and field.
async fn check_nothing_is_lost(client: &Client, open: &[(&Value, &'static str)]) -> CommandResult<()> {
    let mut saved = SavedObjects::default();
    for (crd, kind) in open {
        let served =
            version(&get_definition(client, name(crd)).await?, "v1").is_some_and(|v| v["served"] == true);
        let ar = resource(if served { "v1" } else { "v2" }, kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ar);
        let list =
            api.list(&ListParams::default()).await.map_err(failed_call(format!("cannot list {kind}s")))?;
        for mut object in list.items {
            object.types = Some(TypeMeta { api_version: "purelb.io/v2".into(), kind: (*kind).into() });
            let value = serde_json::to_value(object)
                .map_err(|e| CommandError::new("cannot read an object").because(e))?;
            saved.add("cluster", value);
        }
    }
    let wrong: Vec<String> = validate::check_each(&saved)
        .into_iter()
        .map(|f| format!("{} {}: {}", f.object, f.field, f.message))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(CommandError::new("there are objects that are not v2, nothing was changed").because(wrong.join("\n")).next(
        "migrate them, or delete them if they are saved: `kubectl delete servicegroups.v1.purelb.io,lbnodeagents.v1.purelb.io -n NAMESPACE NAME`",
    ))
}

async fn store_v2(client: &Client, shipped: &Value, kind: &str) -> CommandResult<()> {
    let now = get_definition(client, name(shipped)).await?;
    if version(&now, "v2").is_some_and(|v| v["storage"] == true) {
        return Ok(());
    }
    let plural = resource("v2", kind).plural;
    let hash = |r: Option<Value>| r.map(|r| r["storageVersionHash"].clone());
    let before = hash(discover_resource(client, "v2", &plural).await);
    replace_spec(client, &now, &spec_with_both(shipped, version(&now, "v1"), "v2")).await?;
    wait_until(&format!("{} is stored as v2", name(shipped)), || async {
        let now = hash(discover_resource(client, "v2", &plural).await);
        now.is_some() && now != before
    })
    .await?;
    sleep(SETTLE_DELAY).await;
    Ok(())
}

/// Writes every object as it is: the server stores it in the version it stores now.
async fn rewrite_objects(client: &Client, kind: &str) -> CommandResult<usize> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource("v2", kind));
    let list = all.list(&ListParams::default()).await.map_err(failed_call(format!("cannot list {kind}s")))?;
    for object in &list.items {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource("v2", kind));
        loop {
            let Some(object) =
                api.get_opt(&name).await.map_err(failed_call(format!("cannot read {kind} {name}")))?
            else {
                break;
            };
            match api.replace(&name, &PostParams::default(), &object).await {
                Ok(_) => break,
                // Somebody wrote it meanwhile, or removed it: look again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(e) => return Err(failed_call(format!("cannot write {kind} {namespace}/{name}"))(e)),
            }
        }
    }
    Ok(list.items.len())
}

/// The definition without v1. If an object turns out to be stored as v1 nevertheless, it
/// could no longer be read: then v1 comes back, and the failure is said.
async fn drop_v1(client: &Client, shipped: &Value, kind: &str) -> CommandResult<()> {
    let name = name(shipped);
    let stored = Patch::Merge(json!({"status": {"storedVersions": ["v2"]}}));
    let marked = api(client).patch_status(name, &PatchParams::default(), &stored).await;
    marked.map_err(failed_call(format!("cannot mark {name} as stored in v2")))?;
    let now = get_definition(client, name).await?;
    replace_spec(client, &now, &shipped["spec"]).await?;
    let plural = resource("v1", kind).plural;
    let what = format!("{name} is no longer served as v1");
    let gone = wait_until(&what, || async { discover_resource(client, "v1", &plural).await.is_none() });
    let read = match gone.await {
        Ok(()) => {
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource("v2", kind));
            all.list(&ListParams::default())
                .await
                .map(drop)
                .map_err(failed_call(format!("cannot list {kind}s as v2")))
        }
        failed => failed,
    };
    let Err(failure) = read else { return Ok(()) };
    let now = get_definition(client, name).await?;
    replace_spec(client, &now, &spec_with_both(shipped, None, "v2")).await?;
    Err(failure.next("v1 is served again; run `purelbctl migrate --finish` once more"))
}

#[cfg(test)]
mod tests;
