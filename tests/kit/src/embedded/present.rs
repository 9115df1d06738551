//! The form an answer takes: the object, only its metadata, or a table for a terminal.

use serde_json::{Value, json};

use super::kinds::Kind;

/// What the client's `Accept` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Metadata,
    Table,
}

impl Form {
    pub(crate) fn asked(accept: &str) -> Form {
        let wants = |what: &str| accept.split(';').any(|part| part.trim().starts_with(what));
        if wants("as=Table") {
            Form::Table
        } else if wants("as=PartialObjectMetadata") {
            Form::Metadata
        } else {
            Form::Object
        }
    }

    pub(crate) fn object(self, kind: &Kind, object: Value) -> Value {
        match self {
            Form::Object => object,
            Form::Metadata => only_metadata(&object),
            Form::Table => table(kind, &json!({}), std::slice::from_ref(&object)),
        }
    }

    pub(crate) fn list(self, kind: &Kind, mut list: Value) -> Value {
        match self {
            Form::Object => list,
            Form::Metadata => {
                list["kind"] = "PartialObjectMetadataList".into();
                list["apiVersion"] = "meta.k8s.io/v1".into();
                for item in list["items"].as_array_mut().into_iter().flatten() {
                    *item = only_metadata(item);
                }
                list
            }
            Form::Table => {
                table(kind, &list["metadata"], list["items"].as_array().map_or(&[], Vec::as_slice))
            }
        }
    }
}

fn only_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}

fn table(kind: &Kind, metadata: &Value, objects: &[Value]) -> Value {
    let column =
        |name: &str| json!({"name": name, "type": "string", "format": "", "description": "", "priority": 0});
    let mut columns = vec![column("Name")];
    columns[0]["format"] = "name".into();
    columns.extend(kind.columns.iter().map(|of| column(of.title)));
    columns.push(column("Age"));
    let rows = objects.iter().map(|object| {
        let mut cells = vec![object["metadata"]["name"].clone()];
        cells.extend(kind.columns.iter().map(|of| cell(object, of.path).into()));
        cells.push(age(object).into());
        json!({"cells": cells, "object": only_metadata(object)})
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows.collect::<Vec<_>>(),
    })
}

fn cell(object: &Value, path: &str) -> String {
    fn gather(value: &Value, path: &[&str], found: &mut Vec<String>) {
        match (value, path) {
            (Value::Array(items), _) => items.iter().for_each(|item| gather(item, path, found)),
            (Value::Null, _) => {}
            (value, [first, rest @ ..]) => gather(&value[*first], rest, found),
            (Value::String(text), []) => found.push(text.clone()),
            (other, []) => found.push(other.to_string()),
        }
    }
    let mut found = Vec::new();
    gather(object, &path.split('.').collect::<Vec<_>>(), &mut found);
    if found.is_empty() { "<none>".to_string() } else { found.join(",") }
}

fn age(object: &Value) -> String {
    let born = object["metadata"]["creationTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let seconds = born.map_or(0, |born| jiff::Timestamp::now().as_second() - born.as_second());
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
