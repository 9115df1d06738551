use serde_json::{Value, json};

use super::*;

fn mk_group(pool: &str, status: Value) -> ServiceGroup {
    serde_json::from_value(json!({
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"namespace": "purelb-system", "name": "g", "uid": "u1", "generation": 1},
        "spec": {"local": {"v4pool": {"pool": pool, "subnet": "192.0.2.0/24"}}},
        "status": status,
    }))
    .unwrap()
}

const GOOD: &str = "192.0.2.0/28";
const BAD: &str = "198.51.100.0/28";

fn stale(groups: &mut Groups) -> Vec<StatusWrite> {
    let (specs, problems) = groups.specs();
    let mut book = Allocations::new("purelb-system", "default").unwrap();
    let admission = book.set_groups(specs, problems);
    groups.stale(&book, &admission, &BTreeSet::new(), Timestamp::UNIX_EPOCH)
}

/// What the API server has after the write, unless it knows less than we do.
fn after(write: &StatusWrite, keeps: bool) -> ServiceGroup {
    let mut object = write.object.clone();
    object.status = Some(write.status.clone());
    if !keeps {
        object.status.as_mut().unwrap().last_good = None;
    }
    object
}

#[test]
fn a_bad_group_keeps_its_last_good_self_across_a_restart() {
    let mut first = Groups::new("purelb-system");
    first.seen(mk_group(GOOD, json!({})));
    let writes = stale(&mut first);
    let kept = writes[0].status.last_good.clone().expect("written down");
    // Edited while nobody runs; then the next process starts.
    let edited = mk_group(BAD, json!({"lastGood": kept}));
    let mut second = Groups::new("purelb-system");
    second.seen(edited);
    let (specs, problems) = second.specs();
    assert_eq!((specs.len(), problems.len()), (1, 0), "{problems:?}");
    let writes = stale(&mut second);
    assert_eq!(writes[0].status.last_good.as_deref(), Some(kept.as_str()), "it stays what it was");
    let words = &writes[0].status.conditions[0].message;
    assert!(words.contains("spec.local.v4pool") && words.contains("last good"), "{words}");
}

#[test]
fn what_is_written_down_and_wrong_is_not_used() {
    for kept in ["", "{}", "not json", &serde_json::to_string(&mk_group(BAD, json!({})).spec).unwrap()] {
        let mut groups = Groups::new("purelb-system");
        groups.seen(mk_group(BAD, json!({"lastGood": kept})));
        assert_eq!((groups.specs().0.len(), groups.specs().1.len()), (0, 1), "{kept:?}");
    }
}

#[test]
fn a_server_that_drops_the_field_is_not_written_to_without_end() {
    for keeps in [true, false] {
        let mut groups = Groups::new("purelb-system");
        groups.seen(mk_group(GOOD, json!({})));
        let writes = stale(&mut groups);
        assert_eq!(writes.len(), 1);
        let now = after(&writes[0], keeps);
        groups.written(&writes[0].name, Some(now.clone()));
        groups.seen(now);
        assert!(stale(&mut groups).is_empty(), "keeps: {keeps}");
    }
}
