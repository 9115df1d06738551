use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement { key: key.to_owned(), operator, values: values.iter().map(|v| (*v).to_owned()).collect() }
}

#[test]
fn an_empty_selector_takes_every_node() {
    assert!(Selector::default().is_catch_all());
    assert!(Selector::default().matches(&labels(&[])));
}

#[test]
fn operators_follow_kubernetes() {
    let node = labels(&[("zone", "a"), ("role", "edge")]);
    for (operator, values, expected) in [
        (Operator::In, vec!["a", "b"], true),
        (Operator::In, vec!["b"], false),
        (Operator::NotIn, vec!["b"], true),
        (Operator::NotIn, vec!["a"], false),
        (Operator::Exists, vec![], true),
        (Operator::DoesNotExist, vec![], false),
    ] {
        let selector = Selector {
            match_expressions: vec![requirement("zone", operator, &values)],
            ..Selector::default()
        };
        assert_eq!(selector.matches(&node), expected, "zone {operator:?} {values:?}");
    }
    for (operator, expected) in [
        (Operator::In, false),
        (Operator::NotIn, true),
        (Operator::Exists, false),
        (Operator::DoesNotExist, true),
    ] {
        assert_eq!(requirement("absent", operator, &["x"]).matches(&node), expected, "absent {operator:?}");
    }
}

#[test]
fn labels_and_expressions_must_all_hold() {
    let selector = Selector {
        match_labels: labels(&[("role", "edge")]),
        match_expressions: vec![requirement("zone", Operator::In, &["a"])],
    };
    assert!(selector.matches(&labels(&[("zone", "a"), ("role", "edge")])));
    assert!(!selector.matches(&labels(&[("zone", "a"), ("role", "core")])));
    assert!(!selector.matches(&labels(&[("zone", "b"), ("role", "edge")])));
}
