use purelb_core::allocation::AllocationTally;
use serde_json::json;

use super::*;

fn mk(annotations: Value) -> Service {
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "a", "resourceVersion": "7", "annotations": annotations},
        "status": {"conditions": [{"type": "Theirs", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
    }))
    .unwrap()
}

#[test]
fn annotations_name_the_version_and_nothing_but_annotations() {
    let change = Change {
        marks: Some(ServiceMarks::Set { group: "g".into(), pool: PoolType::Remote, skip_ipv6_dad: false }),
        evaluated: true,
        ..Change::default()
    };
    let service = mk(json!({"purelb.io/re-evaluate": "true"}));
    let expected = json!({"metadata": {"resourceVersion": "7", "annotations": {
        "purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "g",
        "purelb.io/pool-type": "remote", "purelb.io/re-evaluate": null,
    }}});
    assert_eq!(annotations(&service, &change), Some(expected));
    let clear = Change { marks: Some(ServiceMarks::Clear), ..Change::default() };
    assert_eq!(annotations(&mk(json!({})), &clear), None, "nothing to take off");
}

#[test]
fn status_keeps_the_conditions_of_others() {
    let change = Change {
        ingress: Some(vec!["192.0.2.1".parse().unwrap()]),
        told: Some(ServiceCondition { holds: true, reason: "AddressAssigned".into(), message: "m".into() }),
        tally: AllocationTally::default(),
        ..Change::default()
    };
    let patch = status(&mk(json!({})), &change, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(patch["status"]["loadBalancer"]["ingress"], json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]));
    let types: Vec<&str> =
        patch["status"]["conditions"].as_array().unwrap().iter().filter_map(|c| c["type"].as_str()).collect();
    assert_eq!(types, ["Theirs", ALLOCATED]);
    let nothing = Change::default();
    assert_eq!(status(&mk(json!({})), &nothing, Timestamp::UNIX_EPOCH), None);
}
