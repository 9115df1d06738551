use purelbctl::commands::migrate::{AnnounceMode, convert};
use purelbctl::offline::saved_objects::{SavedObjects, parse_documents};
use serde_json::Value;

use super::text;

/// Objects that were read print as JSON and read again as the same.
pub fn saved_documents(data: &[u8]) {
    let Ok(documents) = parse_documents("saved.yaml", text(data)) else { return };
    if documents.iter().all(|document| document.is_object() && !has_fraction(document)) {
        let printed: String = documents.iter().map(ToString::to_string).collect();
        assert_eq!(parse_documents("printed.json", &printed).ok(), Some(documents.clone()));
    }
    let mut saved = SavedObjects::default();
    for document in documents {
        saved.add("saved.yaml", document);
    }
    let _ = saved.lease_facts();
}

/// A fraction may print as its nearest neighbour.
fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(list) => list.iter().any(has_fraction),
        Value::Object(map) => map.values().any(has_fraction),
        _ => false,
    }
}

/// What is converted is of the new version and keeps its kind.
pub fn migrate_convert(data: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(data) else { return };
    for decision in [AnnounceMode::Local, AnnounceMode::Remote] {
        let Ok((new, _)) = convert(&object, decision) else { continue };
        assert_eq!(new["apiVersion"], "purelb.io/v2");
        assert_eq!(new["kind"], object["kind"]);
    }
}
