use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn entry(v4: &str) -> Entry {
    let annotations = [(names::ANNOUNCING_IPV4.to_owned(), v4.to_owned())].into();
    let metadata = ObjectMeta {
        annotations: Some(annotations),
        resource_version: Some("7".into()),
        ..ObjectMeta::default()
    };
    Entry::of(&Service { metadata, ..Service::default() })
}

fn wanted(vips: &[&str]) -> Wanted {
    let slot = Slot { node: NodeName::new("n1").unwrap(), interface: IfName::new("eth0").unwrap() };
    vips.iter().map(|v| (v.parse().unwrap(), slot.clone())).collect()
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
