//! The merge an apply patch does, on objects made by hand.

use serde_json::{Value, json};

use super::super::kinds::{KINDS, Kind};
use super::*;

fn service() -> &'static Kind {
    KINDS.iter().find(|kind| kind.plural == "services").unwrap()
}

fn mk_writer(manager: &str, operation: Operation) -> Writer {
    Writer { manager: manager.into(), operation, subresource: String::new() }
}

fn apply(live: &Value, manager: &str, applied: &Value, force: bool) -> Result<Value, Vec<(String, String)>> {
    let mut owners = Owners::of(live);
    let writer = mk_writer(manager, Operation::Apply);
    let mut merged = owners.apply(service(), &writer, live, applied, force, &json!("t"))?;
    merged["metadata"]["managedFields"] = owners.to_value();
    Ok(merged)
}

#[test]
fn a_field_no_longer_applied_goes_and_those_of_others_stay() {
    let live = json!({"metadata": {"name": "a"}});
    let live =
        apply(&live, "one", &json!({"metadata": {"annotations": {"x": "1", "y": "1"}}}), false).unwrap();
    let live =
        apply(&live, "two", &json!({"metadata": {"annotations": {"z": "1", "y": "1"}}}), false).unwrap();
    let live = apply(&live, "one", &json!({"metadata": {"labels": {"l": "1"}}}), false).unwrap();
    assert_eq!(live["metadata"]["annotations"], json!({"y": "1", "z": "1"}));
    assert_eq!(live["metadata"]["labels"], json!({"l": "1"}));
}

#[test]
fn a_contested_value_is_refused_or_taken_by_force() {
    let live = json!({"metadata": {"name": "a"}});
    let live = apply(&live, "one", &json!({"metadata": {"annotations": {"x": "1"}}}), false).unwrap();
    let other = json!({"metadata": {"annotations": {"x": "2"}}});
    let conflicts = apply(&live, "two", &other, false).unwrap_err();
    assert_eq!(conflicts, [("conflict with \"one\"".into(), ".metadata.annotations.x".into())]);
    let live = apply(&live, "two", &other, true).unwrap();
    let managers = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1, "the loser owns nothing more: {managers:#?}");
    assert_eq!(managers[0]["manager"], "two");
}

#[test]
fn items_of_a_keyed_list_have_owners_of_their_own() {
    let live = json!({"metadata": {"name": "a"}});
    let port = |port: u16, name: &str| json!({"spec": {"ports": [{"port": port, "name": name}]}});
    let live = apply(&live, "one", &port(80, "http"), false).unwrap();
    let live = apply(&live, "two", &port(443, "https"), false).unwrap();
    assert_eq!(live["spec"]["ports"].as_array().unwrap().len(), 2);
    let live = apply(&live, "one", &json!({"spec": {"type": "ClusterIP"}}), false).unwrap();
    assert_eq!(live["spec"]["ports"], json!([{"port": 443, "name": "https"}]));
}

#[test]
fn an_update_takes_what_it_changes() {
    let live = json!({"metadata": {"name": "a"}});
    let live =
        apply(&live, "one", &json!({"metadata": {"annotations": {"x": "1", "y": "1"}}}), false).unwrap();
    let mut new = live.clone();
    new["metadata"]["annotations"]["x"] = "2".into();
    let mut owners = Owners::of(&live);
    owners.updated(service(), &mk_writer("cli", Operation::Update), &live, &new, &json!("t"));
    new["metadata"]["managedFields"] = owners.to_value();
    // Given up by its first owner, "x" stays: it belongs to the other one now.
    let new = apply(&new, "one", &json!({"metadata": {"labels": {"l": "1"}}}), false).unwrap();
    assert_eq!(new["metadata"]["annotations"], json!({"x": "2"}));
}

#[test]
fn members_of_a_set_are_added_and_taken_away_one_by_one() {
    let live = json!({"metadata": {"name": "a", "finalizers": ["theirs"]}});
    let live = apply(&live, "one", &json!({"metadata": {"finalizers": ["ours"]}}), false).unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["theirs", "ours"]));
    let live = apply(&live, "one", &json!({"metadata": {}}), false).unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["theirs"]));
}
