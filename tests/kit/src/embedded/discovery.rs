//! What lets `kubectl` find its way: versions, groups and resources.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::kinds::Kind;

/// The answer to a path outside the resources, if there is one.
pub(crate) fn answer(kinds: &[Kind], path: &str) -> Option<Value> {
    let segments = path.split('/').filter(|segment| !segment.is_empty()).collect::<Vec<_>>();
    match segments.as_slice() {
        ["version"] => Some(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0-embedded", "gitCommit": "", "gitTreeState": "",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux",
        })),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        ["apis"] => {
            let mut names =
                kinds.iter().map(|kind| kind.group).filter(|group| !group.is_empty()).collect::<Vec<_>>();
            names.sort_unstable();
            names.dedup();
            let groups = names.iter().map(|name| group(kinds, name)).collect::<Vec<_>>();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => kinds.iter().any(|kind| kind.group == *name).then(|| group(kinds, name)),
        ["api", version] => resources(kinds, "", version),
        ["apis", group, version] => resources(kinds, group, version),
        ["openapi", "v3"] => {
            let paths = group_paths(kinds).into_iter().map(|path| {
                let url = json!({ "serverRelativeURL": format!("/openapi/v3/{path}") });
                (path, url)
            });
            Some(json!({ "paths": paths.collect::<Map<_, _>>() }))
        }
        ["openapi", "v3", rest @ ..] => {
            let path = rest.join("/");
            group_paths(kinds).contains(&path).then(|| operations(kinds, &path))
        }
        _ => None,
    }
}

/// `api/v1`, `apis/coordination.k8s.io/v1`.
fn group_path(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", kind.api_version())
}

fn group_paths(kinds: &[Kind]) -> BTreeSet<String> {
    kinds.iter().map(group_path).collect()
}

/// As much of a schema as `kubectl` needs to leave validation to the server: without it,
/// `kubectl create -f` and `kubectl apply` give up before they send anything.
fn operations(kinds: &[Kind], path: &str) -> Value {
    let parameters = json!([
        {"name": "dryRun", "in": "query", "schema": {"type": "string"}},
        {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
    ]);
    let paths = kinds.iter().filter(|kind| group_path(kind) == path).map(|kind| {
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let of = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let patch = json!({"x-kubernetes-group-version-kind": of, "parameters": parameters, "responses": {}});
        (format!("/{path}{scope}/{}/{{name}}", kind.plural), json!({ "patch": patch }))
    });
    json!({
        "openapi": "3.0.0", "info": {"title": "embedded", "version": "1"},
        "paths": paths.collect::<Map<_, _>>(), "components": {"schemas": {}},
    })
}

fn group(kinds: &[Kind], name: &str) -> Value {
    let mut versions =
        kinds.iter().filter(|kind| kind.group == name).map(|kind| kind.version).collect::<Vec<_>>();
    versions.sort_unstable();
    versions.dedup();
    let versions = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect::<Vec<_>>();
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name,
        "preferredVersion": versions.last(), "versions": versions,
    })
}

fn resources(kinds: &[Kind], group: &str, version: &str) -> Option<Value> {
    let of_group = kinds.iter().filter(|kind| kind.group == group && kind.version == version);
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let mut found = Vec::new();
    let mut group_version = None;
    for kind in of_group {
        group_version = Some(kind.api_version());
        found.push(json!({
            "name": kind.plural, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": verbs, "shortNames": kind.short,
        }));
        if kind.status {
            found.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    let group_version = group_version?;
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": found,
    }))
}
