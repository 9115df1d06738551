//! Fields that no definition knows. The API server drops them without a word, so a
//! typing mistake shows only as a setting that does nothing.

use serde_json::{Map, Value};

use super::{ConfigFinding, FindingLevel};
use crate::error::did_you_mean;
use crate::offline::saved_objects::{SourcedObject, object_name};

pub fn check_fields(objects: &[SourcedObject<Value>], found: &mut Vec<ConfigFinding>) {
    let definitions = purelb_api::crds::all();
    for origin in objects {
        let kind = &origin.object["kind"];
        let Some(definition) = definitions.iter().find(|d| d.crd["spec"]["names"]["kind"] == *kind) else {
            continue;
        };
        let schema =
            &definition.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut wrong = Vec::new();
        check_value("spec", &origin.object["spec"], schema, &mut wrong);
        found.extend(wrong.into_iter().map(|(field, message)| ConfigFinding {
            level: FindingLevel::Error,
            object: format!("{} {}", kind.as_str().unwrap_or_default(), object_name(&origin.object)),
            field,
            message,
            file: origin.file.clone(),
        }));
    }
}

fn check_value(at: &str, value: &Value, schema: &Value, wrong: &mut Vec<(String, String)>) {
    match value {
        Value::Array(list) => {
            for (i, item) in list.iter().enumerate() {
                check_value(&format!("{at}[{i}]"), item, &schema["items"], wrong);
            }
        }
        Value::Object(map) => {
            // A free map, such as labels to match: any key is fine.
            let Some(known) = schema["properties"].as_object() else { return };
            for (key, value) in map {
                let field = format!("{at}.{key}");
                match known.get(key) {
                    Some(schema) => check_value(&field, value, schema, wrong),
                    None => wrong.push((field, unknown_field(key, known))),
                }
            }
        }
        _ => {}
    }
}

fn unknown_field(key: &str, known: &Map<String, Value>) -> String {
    match did_you_mean(key, known.keys().map(String::as_str)) {
        Some(near) => format!("there is no such field; did you mean {near}?"),
        None => format!(
            "there is no such field; there are {}",
            known.keys().cloned().collect::<Vec<_>>().join(", ")
        ),
    }
}
