use serde_json::json;

use super::*;

fn group(spec: &Value) -> Value {
    json!({"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": {"name": "g", "namespace": "n"}, "spec": spec})
}

fn spec(old: &Value, decision: AnnounceMode) -> Value {
    convert(old, decision).unwrap().0["spec"].clone()
}

#[test]
fn the_decision_is_where_the_pool_goes() {
    let old = group(&json!({"local": {"subnet": "10.0.0.0/24", "pool": "10.0.0.5", "aggregation": ""}}));
    let pool = json!({"subnet": "10.0.0.0/24", "pool": "10.0.0.5"});
    assert_eq!(spec(&old, AnnounceMode::Local), json!({"local": {"v4pool": pool}}));
    assert_eq!(spec(&old, AnnounceMode::Remote), json!({"remote": {"v4pool": pool}}));
    let six = group(&json!({"local": {"subnet": "fd00::/64", "pool": "fd00::5"}}));
    assert_eq!(
        spec(&six, AnnounceMode::Local),
        json!({"local": {"v6pool": {"subnet": "fd00::/64", "pool": "fd00::5"}}})
    );
}

#[test]
fn what_cannot_be_kept_is_refused_with_its_field() {
    let unknown =
        group(&json!({"local": {"v4pool": {"subnet": "10.0.0.0/24", "pool": "10.0.0.5"}, "colour": 1}}));
    assert!(
        convert(&unknown, AnnounceMode::Local)
            .unwrap_err()
            .starts_with("ServiceGroup n/g: spec.local.colour ")
    );
    let outside = group(&json!({"local": {"v4pool": {"subnet": "10.0.0.0/24", "pool": "10.1.0.5"}}}));
    assert!(convert(&outside, AnnounceMode::Remote).unwrap_err().contains("spec.remote.v4pool.pool: "));
}

#[test]
fn node_agents_keep_what_they_said() {
    let old = json!({"apiVersion": "purelb.io/v1", "kind": "LBNodeAgent", "metadata": {"name": "d"},
        "spec": {"local": {"localint": "eth.*", "extlbint": "lb1", "sendgarp": true, "interfaces": ["eth9"]}}});
    let (new, notes) = convert(&old, AnnounceMode::Local).unwrap();
    let local = json!({"localInterface": "eth.*", "dummyInterface": "lb1", "garpConfig": {"enabled": true}, "interfaces": ["eth9"]});
    assert_eq!(new["spec"]["local"], local);
    assert!(notes.is_empty());
}

fn agent(local: &Value) -> Result<(Value, Vec<String>), String> {
    let old = json!({"apiVersion": "purelb.io/v1", "kind": "LBNodeAgent", "metadata": {"name": "d"}, "spec": {"local": local}});
    convert(&old, AnnounceMode::Local).map(|(new, notes)| (new["spec"]["local"].clone(), notes))
}

#[test]
fn the_newer_settings_of_v1_are_carried_over() {
    let garp = json!({"enabled": true, "count": 5, "interval": "1.5s", "initialDelay": "100ms", "verifyBeforeSend": false});
    let addresses = json!({
        "localInterface": {"validLifetime": 120, "preferredLifetime": 0, "noPrefixRoute": true},
        "dummyInterface": {"validLifetime": 0, "preferredLifetime": null},
    });
    let (new, notes) =
        agent(&json!({"sendgarp": false, "garpConfig": garp, "addressConfig": addresses})).unwrap();
    let garp = json!({"enabled": true, "count": 5, "interval": "1500ms", "initialDelay": "100ms", "verifyBeforeSend": false});
    assert_eq!(new["garpConfig"], garp, "and it counts over sendgarp");
    // 0 says "never" in v1 and "at once" in v2: left out, it is never.
    assert_eq!(new["addressConfig"]["localInterface"], json!({"validLifetime": 120, "noPrefixRoute": true}));
    assert_eq!(new["addressConfig"]["dummyInterface"], json!({"validLifetime": 0}));
    assert_eq!(notes, Vec::<String>::new());
    let (_, notes) = agent(&json!({"addressConfig": {"localInterface": {"validLifetime": 0}}})).unwrap();
    assert!(notes[0].contains("validLifetime: 0 is kept"), "{notes:?}");
    for (wrong, field) in [
        (json!({"garpConfig": {"colour": 1}}), "spec.local.garpConfig.colour "),
        (json!({"garpConfig": {"interval": "soon"}}), "spec.local.garpConfig.interval: "),
        (json!({"garpConfig": {"interval": "1m"}}), "spec.local.garpConfig.interval: "),
        (json!({"addressConfig": {"elsewhere": {}}}), "spec.local.addressConfig.elsewhere "),
        (json!({"addressConfig": {"localInterface": {"colour": 1}}}), "addressConfig.localInterface.colour "),
    ] {
        let said = agent(&wrong).unwrap_err();
        assert!(said.contains(field), "{said}");
    }
}
