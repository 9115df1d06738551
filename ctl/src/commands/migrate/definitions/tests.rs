use super::*;

fn shipped() -> Value {
    purelb_api::crds::all().remove(0).crd
}

#[test]
fn one_version_is_stored_and_v1_keeps_every_field() {
    let columns = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let old = json!({"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns});
    for (stores, other) in [("v1", "v2"), ("v2", "v1")] {
        let crd = json!({"spec": spec_with_both(&shipped(), Some(&old), stores)});
        assert_eq!(version(&crd, stores).unwrap()["storage"], true);
        assert_eq!(version(&crd, other).unwrap()["storage"], false);
        let v1 = version(&crd, "v1").unwrap();
        assert_eq!(v1["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"], true);
        assert_eq!(v1["additionalPrinterColumns"], columns);
        assert!(version(&crd, "v2").unwrap()["served"] == true && v1["served"] == true);
    }
}
