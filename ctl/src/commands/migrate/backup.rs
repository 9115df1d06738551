//! `migrate` on the cluster: reads v1 objects, saves them, writes v2, and back.

use std::path::{Path, PathBuf};

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Client, Resource, ResourceExt};
use serde_json::Value;

use super::{MIGRATED_FROM, definitions};
use crate::error::{CommandError, CommandResult};
use crate::offline::saved_objects::{SourcedObject, parse_documents};

/// In the order of the shipped definitions.
pub(super) const KINDS: [&str; 2] = ["ServiceGroup", "LBNodeAgent"];

pub(super) fn resource(version: &str, kind: &str) -> ApiResource {
    let plural = if kind == "ServiceGroup" { "servicegroups" } else { "lbnodeagents" };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("purelb.io", version, kind), plural)
}

/// All v1 objects of the cluster. Where v2 is served as well, what was migrated already
/// shows there, too; it carries a mark and is left out.
pub async fn read_v1(client: &Client) -> CommandResult<Vec<SourcedObject<Value>>> {
    let mut found = Vec::new();
    for kind in KINDS {
        let ar = resource("v1", kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ar);
        let list = api.list(&ListParams::default()).await.map_err(|e| {
            let next = "if the cluster no longer serves purelb.io/v1, migrate from a saved file with -f";
            CommandError::new(format!("cannot list v1 {kind}s"))
                .because(crate::client::cluster::error_cause(&e))
                .next(next)
        })?;
        for mut object in list.items {
            if object.annotations().contains_key(MIGRATED_FROM) {
                continue;
            }
            object.types = Some(TypeMeta { api_version: "purelb.io/v1".into(), kind: kind.into() });
            object.managed_fields_mut().clear();
            let object = serde_json::to_value(object)
                .map_err(|e| CommandError::new("cannot keep an object").because(e))?;
            found.push(SourcedObject { file: "cluster".into(), object });
        }
    }
    Ok(found)
}

/// Saves the v1 objects, and the definitions they were made for; never over an earlier
/// backup.
pub fn save_backup(
    path: Option<&PathBuf>,
    definitions: &[Value],
    old: &[SourcedObject<Value>],
) -> CommandResult<PathBuf> {
    let name = || format!("purelb-v1-backup-{}.yaml", jiff::Zoned::now().strftime("%Y%m%d-%H%M%S"));
    let path = path.cloned().unwrap_or_else(|| PathBuf::from(name()));
    let objects = definitions.iter().chain(old.iter().map(|o| &o.object));
    let text = super::render_yaml(&objects.cloned().collect::<Vec<_>>())?;
    let written =
        std::fs::File::create_new(&path).and_then(|mut f| std::io::Write::write_all(&mut f, text.as_bytes()));
    written.map_err(|e| {
        let what = format!("cannot save the v1 objects to {}", path.display());
        CommandError::new(what).because(e).next("nothing was changed; give another file with --backup")
    })?;
    Ok(path)
}

/// Writes the objects, each as a whole. A merge would keep v1 fields beside v2 ones.
pub async fn write_objects(client: &Client, objects: &[Value]) -> CommandResult<Vec<String>> {
    let mut done = Vec::new();
    for value in objects {
        let name = format!(
            "{} {}",
            value["kind"].as_str().unwrap_or_default(),
            crate::offline::saved_objects::object_name(value)
        );
        let result = write_object(client, value).await;
        let what = result.map_err(|e| {
            let so_far = if done.is_empty() { "nothing was written".to_owned() } else { format!("written: {}", done.join(", ")) };
            let next = format!("{so_far}; is v2 served (`purelbctl migrate --serve-both`), and is the namespace there? Running it again is safe");
            CommandError::new(format!("cannot write {name}")).because(e).next(next)
        })?;
        done.push(format!("{name} {what}"));
    }
    Ok(done)
}

async fn write_object(client: &Client, value: &Value) -> Result<&'static str, String> {
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
    let there = api.get_opt(&name).await.map_err(|e| crate::client::cluster::error_cause(&e))?;
    let params = PostParams::default();
    match there {
        Some(there) => {
            object.meta_mut().resource_version = there.resource_version();
            api.replace(&name, &params, &object)
                .await
                .map_err(|e| crate::client::cluster::error_cause(&e))?;
            Ok("replaced")
        }
        None => {
            object.meta_mut().resource_version = None;
            api.create(&params, &object).await.map_err(|e| crate::client::cluster::error_cause(&e))?;
            Ok("created")
        }
    }
}

/// What a backup holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MigrationBackup {
    pub definitions: Vec<Value>,
    pub objects: Vec<Value>,
}

pub fn load_backup(path: &Path) -> CommandResult<MigrationBackup> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        CommandError::new(format!("cannot read the backup {file}"))
            .because(e)
            .next("give the file that --serve-both or --apply named")
    })?;
    let mut backup = MigrationBackup::default();
    for document in parse_documents(&file, &text)? {
        let ours = document["apiVersion"] == "purelb.io/v1" && KINDS.iter().any(|k| document["kind"] == *k);
        if ours {
            backup.objects.push(document);
        } else if document["kind"] == "CustomResourceDefinition" {
            backup.definitions.push(document);
        } else {
            return Err(CommandError::new(format!("{file} is not a backup of v1 objects"))
                .next("give the file that --serve-both or --apply named"));
        }
    }
    Ok(backup)
}

/// Everything as the backup has it: the v1 objects, without what was made from them in
/// another namespace, and the definitions.
pub async fn rollback(client: &Client, backup: &MigrationBackup) -> CommandResult<Vec<String>> {
    if !definitions::knows_v1(client).await? {
        return Err(CommandError::new("v1 is gone: `purelbctl migrate --finish` was the last step").next(
            "to go back nevertheless, delete the definitions and with them all groups, install the old ones, and apply the backup",
        ));
    }
    let mut done = write_objects(client, &backup.objects).await?;
    for kind in KINDS {
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource("v1", kind));
        let list = all.list(&ListParams::default()).await;
        let list = list.map_err(|e| {
            CommandError::new(format!("cannot list {kind}s")).because(crate::client::cluster::error_cause(&e))
        })?;
        for object in list.items {
            let at = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
            let from = object.annotations().get(MIGRATED_FROM);
            let copied = backup.objects.iter().any(|old| {
                old["kind"] == kind
                    && from.is_some_and(|f| *f == crate::offline::saved_objects::object_name(old) && *f != at)
            });
            if copied {
                let namespace = object.namespace().unwrap_or_default();
                let api: Api<DynamicObject> =
                    Api::namespaced_with(client.clone(), &namespace, &resource("v1", kind));
                let gone = api.delete(&object.name_any(), &DeleteParams::default()).await;
                gone.map_err(|e| {
                    CommandError::new(format!("cannot delete {kind} {at}"))
                        .because(crate::client::cluster::error_cause(&e))
                })?;
                done.push(format!("{kind} {at} deleted"));
            }
        }
    }
    done.extend(definitions::restore(client, &backup.definitions).await?);
    Ok(done)
}
