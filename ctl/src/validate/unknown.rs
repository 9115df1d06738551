//! Fields that no definition knows. The API server drops them without a word, so a
//! typing mistake shows only as a setting that does nothing.

use serde_json::{Map, Value};

use super::{Finding, Level};
use crate::error::did_you_mean;
use crate::saved::{Origin, name_of};

pub fn fields(objects: &[Origin<Value>], found: &mut Vec<Finding>) {
    let definitions = purelb_api::crds::all();
    for origin in objects {
        let kind = &origin.object["kind"];
        let Some(definition) = definitions.iter().find(|d| d.crd["spec"]["names"]["kind"] == *kind) else {
            continue;
        };
        let schema =
            &definition.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut wrong = Vec::new();
        walk("spec", &origin.object["spec"], schema, &mut wrong);
        found.extend(wrong.into_iter().map(|(field, message)| Finding {
            level: Level::Error,
            object: format!("{} {}", kind.as_str().unwrap_or_default(), name_of(&origin.object)),
            field,
            message,
            file: origin.file.clone(),
        }));
    }
}

fn walk(at: &str, value: &Value, schema: &Value, wrong: &mut Vec<(String, String)>) {
    match value {
        Value::Array(list) => {
            for (i, item) in list.iter().enumerate() {
                walk(&format!("{at}[{i}]"), item, &schema["items"], wrong);
            }
        }
        Value::Object(map) => {
            // A free map, such as labels to match: any key is fine.
            let Some(known) = schema["properties"].as_object() else { return };
            for (key, value) in map {
                let field = format!("{at}.{key}");
                match known.get(key) {
                    Some(schema) => walk(&field, value, schema, wrong),
                    None => wrong.push((field, unknown(key, known))),
                }
            }
        }
        _ => {}
    }
}

fn unknown(key: &str, known: &Map<String, Value>) -> String {
    match did_you_mean(key, known.keys().map(String::as_str)) {
        Some(near) => format!("there is no such field; did you mean {near}?"),
        None => format!(
            "there is no such field; there are {}",
            known.keys().cloned().collect::<Vec<_>>().join(", ")
        ),
    }
}
