use serde_json::json;

use super::*;

fn group(spec: &Value) -> Value {
    json!({"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": {"name": "g", "namespace": "n"}, "spec": spec})
}

fn spec(old: &Value, decision: Announce) -> Value {
    convert(old, decision).unwrap().0["spec"].clone()
}

#[test]
fn the_decision_is_where_the_pool_goes() {
    let old = group(&json!({"local": {"subnet": "10.0.0.0/24", "pool": "10.0.0.5", "aggregation": ""}}));
    let pool = json!({"subnet": "10.0.0.0/24", "pool": "10.0.0.5"});
    assert_eq!(spec(&old, Announce::Local), json!({"local": {"v4pool": pool}}));
    assert_eq!(spec(&old, Announce::Remote), json!({"remote": {"v4pool": pool}}));
    let six = group(&json!({"local": {"subnet": "fd00::/64", "pool": "fd00::5"}}));
    assert_eq!(
        spec(&six, Announce::Local),
        json!({"local": {"v6pool": {"subnet": "fd00::/64", "pool": "fd00::5"}}})
    );
}

#[test]
fn what_cannot_be_kept_is_refused_with_its_field() {
    let unknown =
        group(&json!({"local": {"v4pool": {"subnet": "10.0.0.0/24", "pool": "10.0.0.5"}, "colour": 1}}));
    assert!(
        convert(&unknown, Announce::Local).unwrap_err().starts_with("ServiceGroup n/g: spec.local.colour ")
    );
    let outside = group(&json!({"local": {"v4pool": {"subnet": "10.0.0.0/24", "pool": "10.1.0.5"}}}));
    assert!(convert(&outside, Announce::Remote).unwrap_err().contains("spec.remote.v4pool.pool: "));
}

#[test]
fn node_agents_keep_what_they_said() {
    let old = json!({"apiVersion": "purelb.io/v1", "kind": "LBNodeAgent", "metadata": {"name": "d"},
        "spec": {"local": {"localint": "eth.*", "extlbint": "lb1", "sendgarp": true, "interfaces": ["eth9"]}}});
    let (new, notes) = convert(&old, Announce::Local).unwrap();
    let local = json!({"localInterface": "eth.*", "dummyInterface": "lb1", "garpConfig": {"enabled": true}, "interfaces": ["eth9"]});
    assert_eq!(new["spec"]["local"], local);
    assert!(notes.is_empty());
}
