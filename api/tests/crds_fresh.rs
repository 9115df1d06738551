//! The shipped definitions are what the types say.

use std::fs;
use std::path::Path;

use purelb_api::crds;

#[test]
fn shipped_definitions_are_fresh_and_complete() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/k8s/crds");
    let list = fs::read_to_string(dir.join("kustomization.yaml")).unwrap();
    for file in crds::all() {
        let path = dir.join(file.name);
        let shipped = fs::read_to_string(&path).unwrap_or_default();
        assert!(shipped == file.yaml(), "{} is stale: run `make crds`", path.display());
        assert!(list.contains(&format!("- {}\n", file.name)), "{} is not in kustomization.yaml", file.name);
    }
}

#[test]
fn the_yaml_says_what_the_definition_says() {
    for file in crds::all() {
        let read: serde_json::Value = serde_saphyr::from_str(&file.yaml()).unwrap();
        assert_eq!(read, file.crd, "{}", file.name);
    }
}
