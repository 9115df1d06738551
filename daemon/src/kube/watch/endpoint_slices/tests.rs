use super::*;

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn a_watch_does_while_it_covers_the_needs_and_not_much_more() {
    assert!(still_covers(&names(&["a", "b"]), &names(&["a"])));
    assert!(!still_covers(&names(&["a"]), &names(&["a", "b"])), "b is missing");
    assert!(!still_covers(&names(&["a"]), &names(&[])), "nobody needs it");
    let many: BTreeSet<String> = (0..100).map(|i| i.to_string()).collect();
    assert!(!still_covers(&many, &names(&["1"])), "mostly for nobody");
}

#[test]
fn names_are_selected_while_they_fit_into_a_url() {
    let (covered, _) = watch::channel(None);
    let of = |names| EndpointSliceKind { names: Arc::new(names), covered: covered.clone() }.labels();
    assert_eq!(of(names(&["b", "a"])).as_deref(), Some("kubernetes.io/service-name in (a,b)"));
    assert_eq!(of((0..=MOST_SELECTED_NAMES).map(|i| i.to_string()).collect()), None);
}
