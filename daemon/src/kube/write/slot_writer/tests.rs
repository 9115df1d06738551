use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn entry(v4: &str) -> SeenService {
    let annotations = [(names::ANNOUNCING_IPV4.to_owned(), v4.to_owned())].into();
    let metadata = ObjectMeta {
        annotations: Some(annotations),
        resource_version: Some("7".into()),
        ..ObjectMeta::default()
    };
    SeenService::of(&Service { metadata, ..Service::default() })
}

fn wanted(vips: &[&str]) -> WantedSlots {
    let claim = SlotAction::Claim(IfName::new("eth0").unwrap());
    vips.iter().map(|v| (v.parse().unwrap(), claim.clone())).collect()
}

fn patch(entry: &SeenService, wanted: &WantedSlots) -> Option<Value> {
    super::patch(entry, &NodeName::new("n1").unwrap(), wanted)
}

#[test]
fn a_patch_names_its_version_and_touches_only_the_families_it_is_about() {
    let made = patch(&entry("n2,e,192.0.2.9"), &wanted(&["192.0.2.5"])).unwrap();
    let both = json!({"metadata": {"resourceVersion": "7",
        "annotations": {names::ANNOUNCING_IPV4: "n1,eth0,192.0.2.5 n2,e,192.0.2.9"}}});
    assert_eq!(made, both);
}

#[test]
fn what_is_there_already_is_not_written() {
    assert_eq!(patch(&entry("n1,eth0,192.0.2.5"), &wanted(&["192.0.2.5"])), None);
    assert!(patch(&entry("n1,eth0,192.0.2.5"), &wanted(&["2001:db8::5"])).is_some());
}

#[test]
fn a_slot_is_cleared_of_the_node_that_was_named_and_of_no_other() {
    let clear = |node: &str| -> WantedSlots {
        let change = SlotAction::Clear(NodeName::new(node).unwrap());
        [("192.0.2.5".parse().unwrap(), change)].into()
    };
    let two = entry("n1,eth0,192.0.2.5 n2,e,192.0.2.9");
    let made = patch(&two, &clear("n1")).unwrap();
    assert_eq!(made["metadata"]["annotations"][names::ANNOUNCING_IPV4], "n2,e,192.0.2.9");
    assert_eq!(patch(&two, &clear("n2")), None, "another node announces it by now");
    let last = patch(&entry("n1,eth0,192.0.2.5"), &clear("n1")).unwrap();
    assert_eq!(last["metadata"]["annotations"][names::ANNOUNCING_IPV4], Value::Null);
}
