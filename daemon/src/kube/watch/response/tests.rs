use k8s_openapi::api::core::v1::Service;
use proptest::prelude::*;

use super::*;

#[test]
fn one_broken_object_of_a_page_is_told_apart() {
    let text = r#"{"metadata": {"resourceVersion": "7", "continue": ""}, "items": [
        {"metadata": {"name": "good"}}, {"metadata": {"name": "bad", "namespace": "d"}, "spec": []}, 3]}"#;
    let page = ListPage::<Service>::parse(text).unwrap();
    assert_eq!((page.version.as_str(), page.more), ("7", None));
    let names: Vec<String> = page
        .items
        .iter()
        .map(|item| match item {
            RawObject::Object(o) => format!("good {:?}", o.metadata.name.as_deref()),
            RawObject::Broken { meta, .. } => format!("bad {:?}", meta.name.as_deref()),
        })
        .collect();
    assert_eq!(names, [r#"good Some("good")"#, r#"bad Some("bad")"#, "bad None"]);
    assert!(ListPage::<Service>::parse("<html>").is_err());
    assert!(ListPage::<Service>::parse(r#"{"items": null}"#).unwrap().items.is_empty());
}

#[test]
fn every_kind_of_line() {
    let parse = |text: &str| WatchEvent::<Service>::parse(text.as_bytes());
    assert!(matches!(
        parse(r#"{"type": "ADDED", "object": {"metadata": {}}}"#),
        WatchEvent::Set(RawObject::Object(_))
    ));
    let broken = parse(r#"{"object": {"metadata": {"name": "x"}, "spec": 1}, "type": "MODIFIED"}"#);
    assert!(
        matches!(broken, WatchEvent::Set(RawObject::Broken { meta, .. }) if meta.name.as_deref() == Some("x"))
    );
    // A bookmark has no spec, and what was deleted may have any.
    let gone = parse(r#"{"type": "DELETED", "object": {"metadata": {"name": "x"}, "spec": 1}}"#);
    assert!(matches!(gone, WatchEvent::Gone(_)));
    let mark = parse(r#"{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}"#);
    assert!(matches!(mark, WatchEvent::Bookmark(m) if m.resource_version.as_deref() == Some("9")));
    let error = parse(r#"{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}"#);
    assert!(matches!(error, WatchEvent::Error(s) if s.code == 410));
    for garbage in ["", "{}", "[]", r#"{"type": "NEWS", "object": {}}"#, r#"{"type": 1, "object": {}}"#] {
        assert!(matches!(parse(garbage), WatchEvent::Garbage(_)), "{garbage}");
    }
}

proptest! {
    #[test]
    fn no_line_and_no_page_panics(text in any::<String>(), bytes in any::<Vec<u8>>()) {
        let _ = WatchEvent::<Service>::parse(&bytes);
        let _ = WatchEvent::<Service>::parse(text.as_bytes());
        let _ = ListPage::<Service>::parse(&text);
        let event = serde_json::json!({"type": "ADDED", "object": {"metadata": {"name": text}, "spec": {"type": text}}});
        prop_assert!(matches!(WatchEvent::<Service>::parse(event.to_string().as_bytes()), WatchEvent::Set(RawObject::Object(_))));
    }
}
