//! `migrate` on the cluster: reads v1 objects, saves them, writes v2, and back.

use std::path::{Path, PathBuf};

use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Client, Resource, ResourceExt};
use serde_json::Value;

use crate::error::{Failure, Outcome};
use crate::saved::{Origin, documents};

const KINDS: [&str; 2] = ["ServiceGroup", "LBNodeAgent"];

fn resource(version: &str, kind: &str) -> ApiResource {
    let plural = if kind == "ServiceGroup" { "servicegroups" } else { "lbnodeagents" };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("purelb.io", version, kind), plural)
}

/// All v1 objects of the cluster.
pub async fn read_v1(client: &Client) -> Outcome<Vec<Origin<Value>>> {
    let mut found = Vec::new();
    for kind in KINDS {
        let ar = resource("v1", kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ar);
        let list = api.list(&ListParams::default()).await.map_err(|e| {
            let next = "if the cluster no longer serves purelb.io/v1, migrate from a saved file with -f";
            Failure::new(format!("cannot list v1 {kind}s")).because(crate::cluster::cause(&e)).next(next)
        })?;
        for mut object in list.items {
            object.types = Some(TypeMeta { api_version: "purelb.io/v1".into(), kind: kind.into() });
            object.managed_fields_mut().clear();
            let object =
                serde_json::to_value(object).map_err(|e| Failure::new("cannot keep an object").because(e))?;
            found.push(Origin { file: "cluster".into(), object });
        }
    }
    Ok(found)
}

/// Saves the v1 objects; never over an earlier backup.
pub fn save(path: Option<&PathBuf>, old: &[Origin<Value>]) -> Outcome<PathBuf> {
    let name = || format!("purelb-v1-backup-{}.yaml", jiff::Zoned::now().strftime("%Y%m%d-%H%M%S"));
    let path = path.cloned().unwrap_or_else(|| PathBuf::from(name()));
    let objects: Vec<Value> = old.iter().map(|o| o.object.clone()).collect();
    let text = super::yaml(&objects)?;
    let written =
        std::fs::File::create_new(&path).and_then(|mut f| std::io::Write::write_all(&mut f, text.as_bytes()));
    written.map_err(|e| {
        let what = format!("cannot save the v1 objects to {}", path.display());
        Failure::new(what).because(e).next("nothing was changed; give another file with --backup")
    })?;
    Ok(path)
}

/// Writes the objects, each as a whole. A merge would keep v1 fields beside v2 ones.
pub async fn write(client: &Client, objects: &[Value]) -> Outcome<Vec<String>> {
    let mut done = Vec::new();
    for value in objects {
        let name = format!("{} {}", value["kind"].as_str().unwrap_or_default(), crate::saved::name_of(value));
        let result = write_one(client, value).await;
        let what = result.map_err(|e| {
            let so_far = if done.is_empty() { "nothing was written".to_owned() } else { format!("written: {}", done.join(", ")) };
            let next = format!("{so_far}; are the v2 definitions installed (`kubectl apply -k deploy/k8s/crds`)? Running it again is safe");
            Failure::new(format!("cannot write {name}")).because(e).next(next)
        })?;
        done.push(format!("{name} {what}"));
    }
    Ok(done)
}

async fn write_one(client: &Client, value: &Value) -> Result<&'static str, String> {
    let mut object: DynamicObject = serde_json::from_value(value.clone()).map_err(|e| e.to_string())?;
    let types = object.types.clone().ok_or("it has no kind")?;
    let version = types.api_version.rsplit('/').next().unwrap_or_default();
    let ar = resource(version, &types.kind);
    let namespace = object.namespace().unwrap_or_else(|| purelb_api::names::DEFAULT_NAMESPACE.to_owned());
    let meta = object.meta_mut();
    meta.uid = None;
    meta.creation_timestamp = None;
    meta.generation = None;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &ar);
    let name = object.name_any();
    let there = api.get_opt(&name).await.map_err(|e| crate::cluster::cause(&e))?;
    let params = PostParams::default();
    match there {
        Some(there) => {
            object.meta_mut().resource_version = there.resource_version();
            api.replace(&name, &params, &object).await.map_err(|e| crate::cluster::cause(&e))?;
            Ok("replaced")
        }
        None => {
            object.meta_mut().resource_version = None;
            api.create(&params, &object).await.map_err(|e| crate::cluster::cause(&e))?;
            Ok("created")
        }
    }
}

/// The objects of a backup.
pub fn load(path: &Path) -> Outcome<Vec<Value>> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        Failure::new(format!("cannot read the backup {file}"))
            .because(e)
            .next("give the file that --apply named")
    })?;
    let objects = documents(&file, &text)?;
    let good = |o: &Value| o["apiVersion"] == "purelb.io/v1" && KINDS.iter().any(|k| o["kind"] == *k);
    match objects.iter().find(|o| !good(o)) {
        Some(_) => Err(Failure::new(format!("{file} is not a backup of v1 objects"))
            .next("give the file that --apply named")),
        None => Ok(objects),
    }
}
