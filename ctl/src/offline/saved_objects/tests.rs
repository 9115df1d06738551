use super::*;

fn taken(text: &str) -> SavedObjects {
    let mut saved = SavedObjects::default();
    for value in parse_documents("test", text).unwrap() {
        saved.add("test", value);
    }
    saved
}

const LEASE: &str = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: purelb-node-a, annotations: {purelb.io/subnets: 10.0.0.0/24}}, spec: {holderIdentity: a}}";

#[test]
fn one_object_a_list_several_documents_and_a_typed_list_are_the_same() {
    let typed = LEASE.replace("apiVersion: coordination.k8s.io/v1, kind: Lease, ", "");
    for text in [
        LEASE.to_owned(),
        format!("apiVersion: v1\nkind: List\nitems:\n- {LEASE}\n"),
        format!("---\n{LEASE}\n---\n---\n# nothing\n"),
        format!("apiVersion: coordination.k8s.io/v1\nkind: LeaseList\nitems: [{typed}]\n"),
    ] {
        let mut saved = taken(&text);
        let facts = saved.lease_facts();
        assert_eq!(facts.len(), 1, "{text}\n{saved:?}");
        assert_eq!((facts[0].node.as_str(), facts[0].subnets.len()), ("a", 1));
        // And the same once more as JSON.
        let values = parse_documents("test", &text).unwrap();
        let json: String = values.iter().filter(|v| !v.is_null()).map(ToString::to_string).collect();
        assert_eq!(taken(&json).lease_facts(), facts);
    }
}

#[test]
fn text_that_looks_like_something_else_stays_text() {
    let mut saved = taken(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: purelb-node-a\n  annotations:\n    purelb.io/draining: \"true\"\n    purelb.io/instance: \"0123\"\nspec: {holderIdentity: a, renewTime: \"2026-01-02T03:04:05.000000Z\"}\n",
    );
    let facts = saved.lease_facts();
    assert_eq!(facts[0].draining.as_deref(), Some("true"));
    assert_eq!(facts[0].instance.as_ref().map(|i| i.as_str()), Some("0123"));
}

#[test]
fn a_holder_may_be_missing_but_not_another() {
    let free = LEASE.replace("{holderIdentity: a}", "{}");
    assert_eq!(taken(&free).lease_facts().len(), 1);
    let mut other = taken(&LEASE.replace("holderIdentity: a", "holderIdentity: b"));
    assert!(other.lease_facts().is_empty());
    assert!(other.notes[0].contains("held by \"b\""), "{:?}", other.notes);
}

#[test]
fn what_is_not_ours_is_counted_and_what_is_wrong_is_named() {
    let saved = taken(
        "kind: Pod\napiVersion: v1\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: n}\nspec: {type: 7}\n",
    );
    assert_eq!(saved.others, 1);
    assert!(saved.unreadable[0].object.starts_with("Service n/s: "), "{:?}", saved.unreadable);
    assert!(
        parse_documents("f", "a: [").unwrap_err().to_string().starts_with("f is neither YAML nor JSON: ")
    );
}

#[test]
fn a_large_cluster_is_no_attack() {
    let one = format!("- {LEASE}\n");
    let text = format!("apiVersion: v1\nkind: List\nitems:\n{}", one.repeat(15_000));
    assert_eq!(taken(&text).leases.len(), 15_000);
}
