use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn agent(spec: Value) -> LBNodeAgent {
    let object = json!({"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent",
        "metadata": {"name": "a", "namespace": "purelb-system"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn good(local: Value) -> AgentConfig {
    facts(&agent(json!({"local": local}))).config.unwrap()
}

#[test]
fn an_empty_object_is_the_default() {
    let read = facts(&agent(json!({})));
    assert_eq!(read.config, Ok(AgentConfig::default()));
    assert!(read.selector.is_catch_all());
    // What the schema fills in says the same as what the code fills in.
    assert_eq!(
        good(json!({"garpConfig": {}, "addressConfig": {"localInterface": {}, "dummyInterface": {}}})),
        AgentConfig::default()
    );
}

#[test]
fn interfaces_by_default_route_pattern_or_list() {
    assert_eq!(
        good(json!({"localInterface": "none", "interfaces": ["eth1", "bond0.100"]})).interfaces.len(),
        2
    );
    assert_eq!(good(json!({"localInterface": "^en.*"})).auto, AutoInterface::Pattern("^en.*".into()));
    assert_eq!(good(json!({"dummyInterface": "lb1"})).dummy.as_str(), "lb1");
}

#[test]
fn both_spellings_of_garp_timing() {
    let ms = |n| Duration::from_millis(n);
    let old = good(json!({"garpConfig": {"count": 5, "intervalMs": 250, "delayMs": 200}})).garp;
    assert_eq!(
        (old.count, old.interval, old.delay, old.enabled, old.verify),
        (5, ms(250), ms(200), true, true)
    );
    let new = good(json!({"garpConfig": {"interval": "1.5s", "initialDelay": "1s500ms"}})).garp;
    assert_eq!((new.interval, new.delay), (ms(1500), ms(1500)));
    let same = good(json!({"garpConfig": {"interval": "0.5s", "intervalMs": 500}})).garp;
    assert_eq!(same.interval, ms(500));
}

#[test]
fn lifetimes() {
    let read = good(json!({"addressConfig": {
        "localInterface": {"validLifetime": 600, "preferredLifetime": 600},
        "dummyInterface": {"validLifetime": 0, "preferredLifetime": 0, "noPrefixRoute": true},
    }}));
    assert_eq!(
        read.local_address,
        AddressOptions { valid: Some(600), preferred: Some(600), no_prefix_route: true }
    );
    assert_eq!(read.dummy_address, AddressOptions { valid: None, preferred: None, no_prefix_route: true });
}

#[test]
fn names_the_field_that_is_wrong() {
    let cases = [
        (json!({"localInterface": "eth["}), "spec.local.localInterface"),
        (json!({"localInterface": "(a{99}){99}{99}"}), "spec.local.localInterface"),
        (json!({"interfaces": ["eth0", "a name"]}), "spec.local.interfaces[1]"),
        (json!({"interfaces": ["kube-lb0"]}), "spec.local.interfaces"),
        (json!({"dummyInterface": "much-too-long-a-name"}), "spec.local.dummyInterface"),
        (json!({"garpConfig": {"count": 11}}), "spec.local.garpConfig.count"),
        (json!({"garpConfig": {"count": -1}}), "spec.local.garpConfig.count"),
        (json!({"garpConfig": {"intervalMs": 99}}), "spec.local.garpConfig.intervalMs"),
        (json!({"garpConfig": {"interval": "6s"}}), "spec.local.garpConfig.interval"),
        (json!({"garpConfig": {"interval": "soon"}}), "spec.local.garpConfig.interval"),
        (json!({"garpConfig": {"interval": "1s", "intervalMs": 500}}), "spec.local.garpConfig.interval"),
        (json!({"garpConfig": {"refresh": "9.9s"}}), "spec.local.garpConfig.refresh"),
        (json!({"garpConfig": {"refresh": "often"}}), "spec.local.garpConfig.refresh"),
        (json!({"candidacy": {"notReadyAfter": "1"}}), "spec.local.candidacy.notReadyAfter"),
        (
            json!({"addressConfig": {"localInterface": {"preferredLifetime": 301}}}),
            "spec.local.addressConfig.localInterface.preferredLifetime",
        ),
        (
            json!({"addressConfig": {"dummyInterface": {"validLifetime": -1}}}),
            "spec.local.addressConfig.dummyInterface.validLifetime",
        ),
    ];
    for (local, field) in cases {
        let problem = facts(&agent(json!({"local": local.clone()}))).config.unwrap_err();
        assert_eq!(problem.field, field, "{local}: {problem:?}");
    }
}

#[test]
fn what_counts_in_elections_and_how_often_to_say_it_again() {
    let read = |local: Value| facts(&agent(json!({"local": local}))).config.unwrap();
    let seconds = |n| Some(Duration::from_secs(n));
    let plain = read(json!({}));
    assert_eq!(plain.candidacy, CandidacyConfig { exclude_label: true, last_after: seconds(60) });
    assert_eq!(read(json!({"candidacy": {}})).candidacy, plain.candidacy);
    let off = read(json!({"candidacy": {"excludeLabel": false, "notReadyAfter": "0"}})).candidacy;
    assert_eq!(off, CandidacyConfig { exclude_label: false, last_after: None });
    assert_eq!(read(json!({"candidacy": {"notReadyAfter": "5m"}})).candidacy.last_after, seconds(300));
    assert_eq!(plain.garp.refresh, None);
    assert_eq!(read(json!({"garpConfig": {"refresh": "300"}})).garp.refresh, seconds(300));
    assert_eq!(read(json!({"garpConfig": {"refresh": "0s"}})).garp.refresh, None);
}

#[test]
fn a_wrong_selector_selects_nothing() {
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let select = |e: Value| facts(&agent(json!({"nodeSelector": {"matchExpressions": [e]}})));
    let right = select(json!({"key": "zone", "operator": "In", "values": ["a"]}));
    assert!(right.selector.matches(&labels) && right.config.is_ok());
    for e in [
        json!({"key": "zone", "operator": "In"}),
        json!({"key": "zone", "operator": "Exists", "values": ["a"]}),
        json!({"key": "zone", "operator": "Like", "values": ["a"]}),
    ] {
        let read = select(e.clone());
        assert!(!read.selector.matches(&labels) && !read.selector.matches(&BTreeMap::new()), "{e}");
        assert!(read.config.unwrap_err().field.starts_with("spec.nodeSelector.matchExpressions[0]"), "{e}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,60}", pattern in ".{0,256}") {
        drop(facts(&agent(json!({"local": {"localInterface": pattern, "garpConfig": {"interval": text}}}))));
    }
}
