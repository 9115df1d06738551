use super::*;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The patterns still find what they look for: one that finds nothing would let
/// everything pass.
#[test]
fn names_are_found_in_the_sources() {
    let annotations = annotations().unwrap();
    assert!(annotations.is_superset(&set(&[
        "purelb.io/addresses",
        "purelb.io/announcing-IPv6",
        "purelb.io/drained-nodes"
    ])));
    assert!(!annotations.contains("purelb.io/purelbv2"));
    let events = events().unwrap();
    for event in [
        "AddressAssigned",
        "ReleaseFailed",
        "NoEligibleNodes",
        "ConfigError",
        "Parsed",
        "ParseFailed",
        "ServiceGroupOutOfScope",
    ] {
        assert!(events.contains(event), "{event} in {events:?}");
    }
    let refusals = refusals().unwrap();
    assert!(refusals.is_superset(&set(&[
        "Exhausted",
        "NoSuchGroup",
        "GroupClosed",
        "ProviderGaveHeld",
        "BadAddresses"
    ])));
    assert!(reasons().contains(purelb_core::Reason::NoEndpoints.name()));
}

#[test]
fn what_is_missing_or_unknown_is_said() {
    let page = Page::new("a.md", "### `One`\n| `A` | x |\n| `C` | y |\n| other | z |\n");
    assert_eq!(headed(&page, &set(&["One", "Two"])), ["a.md: there is no heading Two"]);
    assert_eq!(
        listed(&page, &set(&["A", "B"]), "[A-Z]"),
        ["a.md: no row about B", "a.md: C is not in the code"]
    );
}

#[test]
fn names_in_sentences_are_looked_up() {
    let good = "`lease.duration` `purelb.io/draining` `purelb.io/v2` `kube.rs`\n";
    assert_eq!(named(&Page::new("a.md", good)).unwrap(), Vec::<String>::new());
    let bad = Page::new("a.md", "`lease.durations`\n`purelb.io/drain`: yes\n");
    assert_eq!(
        named(&bad).unwrap(),
        ["a.md:1: there is no setting lease.durations", "a.md:2: there is no annotation purelb.io/drain"]
    );
}
