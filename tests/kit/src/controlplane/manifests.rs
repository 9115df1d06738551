//! The shipped manifests, applied without kubectl: what a cluster gets is what the
//! tests run against.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde_json::Value;

use super::ControlPlane;
use crate::wait::eventually;

const FIELD_MANAGER: &str = "purelb-lab";

/// As much of kustomize as the base uses. A key that is not known here is refused:
/// silently ignoring it would test other manifests than users get.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kustomization {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    resources: Vec<String>,
}

/// Where the shipped manifests are in the source tree.
pub fn base_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/k8s")
}

/// Every object of a kustomize directory, in the order it lists them.
pub fn read_kustomization(dir: &Path) -> Result<Vec<Value>> {
    let file = dir.join("kustomization.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let list: Kustomization =
        serde_saphyr::from_str(&text).with_context(|| format!("parsing {}", file.display()))?;
    let mut objects = Vec::new();
    for entry in &list.resources {
        let path = dir.join(entry);
        if path.is_dir() {
            objects.extend(read_kustomization(&path)?);
        } else {
            objects.extend(read_file(&path)?);
        }
    }
    Ok(objects)
}

/// Every object of a YAML file with one or more documents.
pub fn read_file(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("parsing {}", path.display()))?;
    Ok(documents.into_iter().filter(|d| !d.is_null()).collect())
}

/// Applies objects one after the other by server-side apply, and returns once the
/// custom resources among them are served. Answers `Kind namespace/name` of each.
pub async fn apply(client: &Client, objects: &[Value]) -> Result<Vec<String>> {
    let mut known: HashMap<GroupVersionKind, (ApiResource, Scope)> = HashMap::new();
    let mut done = Vec::new();
    for value in objects {
        let object: DynamicObject =
            serde_json::from_value(value.clone()).context("not a Kubernetes object")?;
        let types = object.types.clone().context("an object without apiVersion and kind")?;
        let gvk = GroupVersionKind::try_from(&types)?;
        let (resource, scope) = match known.get(&gvk) {
            Some(found) => found.clone(),
            None => {
                let (resource, caps) = discovery::pinned_kind(client, &gvk)
                    .await
                    .with_context(|| format!("the server does not know {gvk:?}"))?;
                known.insert(gvk.clone(), (resource.clone(), caps.scope.clone()));
                (resource, caps.scope)
            }
        };
        let name = object.name_any();
        let namespace = object.namespace();
        let api: Api<DynamicObject> = match (&scope, &namespace) {
            (Scope::Cluster, None) => Api::all_with(client.clone(), &resource),
            (Scope::Namespaced, Some(ns)) => Api::namespaced_with(client.clone(), ns, &resource),
            (Scope::Cluster, Some(_)) => {
                bail!("{} {name} has no namespace in Kubernetes, but one here", gvk.kind)
            }
            (Scope::Namespaced, None) => bail!("{} {name} names no namespace", gvk.kind),
        };
        let label = format!("{} {}", gvk.kind, namespace.map_or(name.clone(), |ns| format!("{ns}/{name}")));
        let params = PatchParams {
            field_validation: Some(kube::api::ValidationDirective::Strict),
            ..PatchParams::apply(FIELD_MANAGER).force()
        };
        api.patch(&name, &params, &Patch::Apply(value)).await.with_context(|| format!("applying {label}"))?;
        if gvk.kind == "CustomResourceDefinition" {
            wait_served(client, &name).await?;
        }
        done.push(label);
    }
    Ok(done)
}

/// Established is said before the first list works; both are waited for.
async fn wait_served(client: &Client, crd_name: &str) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let what = format!("custom resource {crd_name} is served");
    eventually(&what, Duration::from_secs(30), || async {
        let crd = crds.get(crd_name).await.map_err(|e| e.to_string())?;
        let conditions = crd.status.and_then(|s| s.conditions).unwrap_or_default();
        if !conditions.iter().any(|c| c.type_ == "Established" && c.status == "True") {
            return Err(format!("{conditions:?}"));
        }
        for version in crd.spec.versions.iter().filter(|v| v.served) {
            let names = &crd.spec.names;
            let gvk = GroupVersionKind::gvk(&crd.spec.group, &version.name, &names.kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, &names.plural);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            api.list(&ListParams::default().limit(1)).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    })
    .await
}

impl ControlPlane {
    /// Applies the base of `deploy/k8s`: namespace, CRDs, RBAC and all it lists.
    pub async fn apply_manifests(&self) -> Result<Vec<String>> {
        apply(&self.admin()?, &read_kustomization(&base_dir())?).await
    }
}
