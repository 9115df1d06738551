use super::*;

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn a_watch_does_while_it_covers_the_needs_and_not_much_more() {
    assert!(suits(&names(&["a", "b"]), &names(&["a"])));
    assert!(!suits(&names(&["a"]), &names(&["a", "b"])), "b is missing");
    assert!(!suits(&names(&["a"]), &names(&[])), "nobody needs it");
    let many: BTreeSet<String> = (0..100).map(|i| i.to_string()).collect();
    assert!(!suits(&many, &names(&["1"])), "mostly for nobody");
}

#[test]
fn names_are_selected_while_they_fit_into_a_url() {
    let (covered, _) = watch::channel(None);
    let of = |names| Slices { names: Arc::new(names), covered: covered.clone() }.labels();
    assert_eq!(of(names(&["b", "a"])).as_deref(), Some("kubernetes.io/service-name in (a,b)"));
    assert_eq!(of((0..=MOST_SELECTED).map(|i| i.to_string()).collect()), None);
}
