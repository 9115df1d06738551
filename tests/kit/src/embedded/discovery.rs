//! What lets `kubectl` find its way: versions, groups and resources.

use serde_json::{Value, json};

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
        _ => None,
    }
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
