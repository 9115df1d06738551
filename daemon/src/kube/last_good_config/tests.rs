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

/// Also one that is whole, and has parts that we do not know.
#[test]
fn a_damaged_file_is_set_aside_and_not_used() {
    let file = |dir: &Path| CheckedFile::new(dir.join(LAST_GOOD_FILE), FILE_FORMAT, LARGEST_FILE, "it");
    let unknown = BTreeMap::from([("agents", BTreeMap::<String, u8>::new()), ("nodes", BTreeMap::new())]);
    let dir = tempfile::tempdir().unwrap();
    let unknown = file(dir.path()).encode(&unknown).unwrap();
    for text in [unknown.as_slice(), b"", b"purelb-last-good 2 00\n{}"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(LAST_GOOD_FILE), text).unwrap();
        let kept = LastGoodConfig::in_directory(dir.path());
        assert_eq!(*kept.lock(), KeptConfig::default());
        assert_eq!(std::fs::read(dir.path().join("last-good.damaged")).unwrap(), text);
        assert!(!dir.path().join(LAST_GOOD_FILE).exists());
    }
    let good = KeptConfig {
        groups: BTreeMap::from([("g".to_owned(), KeptObject { uid: "1".into(), facts: mk_group("g") })]),
        ..KeptConfig::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path());
    file.write(&file.encode(&good).unwrap()).unwrap();
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
