use std::time::Duration;

use purelb_core::facts::{AgentConfig, PoolType, Selector};

use super::*;

fn mk_agent(name: &str) -> AgentFacts {
    let key = ObjectKey::of("purelb-system", name).unwrap();
    AgentFacts { key, selector: Selector::default(), config: Ok(AgentConfig::default()) }
}

fn mk_group(name: &str) -> GroupFacts {
    GroupFacts::of_ranges(name, PoolType::Remote, Vec::new())
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let by = tokio::time::Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(tokio::time::Instant::now() < by, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_was_good_survives_and_belongs_to_its_object() {
    let dir = tempfile::tempdir().unwrap();
    let kept = LastGoodConfig::in_directory(dir.path());
    let writer = tokio::spawn(kept.clone().write_changes());
    kept.keep_agent("uid-1", &mk_agent("default"));
    kept.keep_group("uid-2", &mk_group("routed"));
    let again = || LastGoodConfig::in_directory(dir.path());
    until("both are written", || again().group("routed").is_some()).await;
    let key = ObjectKey::of("purelb-system", "default").unwrap();
    assert_eq!(again().agent(&key, "uid-1"), Some(mk_agent("default")));
    assert_eq!(again().agent(&key, "uid-9"), None, "another object of the same name");
    again().forget_group_unless("routed", "uid-2");
    let other = again();
    assert!(other.group("routed").is_some());
    other.forget_group_unless("routed", "uid-9");
    assert!(other.group("routed").is_none());
    kept.retain_agents(|_| false);
    until("what was deleted is forgotten", || again().agent(&key, "uid-1").is_none()).await;
    writer.abort();
}

#[test]
fn a_damaged_file_is_set_aside_and_not_used() {
    let good = encode(&KeptConfig {
        groups: BTreeMap::from([("g".to_owned(), KeptObject { uid: "1".into(), facts: mk_group("g") })]),
        ..KeptConfig::default()
    });
    let changed = |edit: fn(&mut Vec<u8>)| {
        let mut text = good.clone();
        edit(&mut text);
        text
    };
    let body = |text: &str| {
        [format!("{FORMAT_HEADER}{}\n", digest(text.as_bytes())).as_bytes(), text.as_bytes()].concat()
    };
    let cases: [(&str, Vec<u8>); 7] = [
        ("empty", vec![]),
        ("cut off", changed(|t| t.truncate(t.len() - 3))),
        ("one bit", changed(|t| *t.last_mut().unwrap() ^= 1)),
        ("a later version", changed(|t| t[FORMAT_HEADER.len() - 2] = b'2')),
        ("not ours", b"[lease]\nduration = 1\n".to_vec()),
        ("signed nonsense", body("7")),
        ("unknown parts", body("{\"agents\":{},\"nodes\":{}}")),
    ];
    for (what, text) in cases {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LAST_GOOD_FILE), &text).unwrap();
        let kept = LastGoodConfig::in_directory(dir.path());
        assert_eq!(*kept.lock(), KeptConfig::default(), "{what}");
        assert_eq!(fs::read(dir.path().join(DAMAGED_FILE)).unwrap(), text, "{what}");
        assert!(!dir.path().join(LAST_GOOD_FILE).exists(), "{what}");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(LAST_GOOD_FILE), &good).unwrap();
    assert!(LastGoodConfig::in_directory(dir.path()).group("g").is_some());
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let kept = LastGoodConfig::in_directory(&dir.path().join("nowhere"));
    let writer = tokio::spawn(kept.clone().write_changes());
    kept.keep_group("1", &mk_group("g"));
    tokio::task::yield_now().await;
    assert!(kept.group("g").is_some() && !writer.is_finished());
    writer.abort();
}
