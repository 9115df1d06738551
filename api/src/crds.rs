//! The CustomResourceDefinitions as files.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{LBNodeAgent, ServiceGroup};

/// A definition and the name of the file it ships in.
#[derive(Clone, Debug)]
pub struct CrdFile {
    pub name: &'static str,
    pub crd: Value,
}

impl CrdFile {
    /// The file's text.
    pub fn yaml(&self) -> String {
        let body = serde_saphyr::to_string(&self.crd).expect("a definition is plain data");
        format!("# Written by `make crds` from the types in api/; edits here are lost.\n{body}")
    }
}

/// All definitions, as shipped.
pub fn all() -> Vec<CrdFile> {
    vec![
        CrdFile { name: "servicegroups.yaml", crd: finish(ServiceGroup::crd()) },
        CrdFile { name: "lbnodeagents.yaml", crd: finish(LBNodeAgent::crd()) },
    ]
}

fn finish(crd: CustomResourceDefinition) -> Value {
    let mut value = serde_json::to_value(crd).expect("a definition is plain data");
    drop_nullable(&mut value);
    value
}

/// `Option` fields come out as nullable. Then `v4pool: null` would be kept and count
/// as given; without it the server drops a null, as if the line were not there.
fn drop_nullable(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("nullable").is_some_and(Value::is_boolean) {
                map.remove("nullable");
            }
            map.values_mut().for_each(drop_nullable);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nullable),
        _ => {}
    }
}
