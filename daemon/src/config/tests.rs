use std::fs;
use std::path::Path;

use super::*;

const SAMPLE: &str = include_str!("../../../packaging/etc/purelbd.toml");

fn mk_sources(dir: &Path, main: &str) -> Sources {
    let file = dir.join("purelbd.toml");
    fs::write(&file, main).unwrap();
    let flags = vec![("node.name".to_owned(), "node-1".to_owned())];
    Sources { file: Some(file), environment: Vec::new(), flags }
}

fn error(dir: &Path, main: &str) -> String {
    load(&mk_sources(dir, main)).unwrap_err().to_string()
}

/// The sample with every key's line set.
fn uncommented() -> String {
    let is_key = |line: &&str| {
        let word = line.strip_prefix('#').and_then(|l| l.split_once(" = ")).map(|(key, _)| key);
        word.is_some_and(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    };
    SAMPLE.lines().map(|l| if is_key(&l) { &l[1..] } else { l }).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_as_shipped_is_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let mut sources = mk_sources(dir.path(), SAMPLE);
    sources.flags.clear();
    assert_eq!(load(&sources).unwrap().config, Config::default());
}

#[test]
fn the_sample_names_every_key_with_its_default() {
    let text = uncommented();
    let table: serde_json::Value = ::config::Config::builder()
        .add_source(::config::File::from_str(&text, ::config::FileFormat::Toml))
        .build()
        .and_then(::config::Config::try_deserialize)
        .unwrap();
    let mut named = Vec::new();
    for (section, content) in table.as_object().unwrap() {
        named.extend(content.as_object().unwrap().keys().map(|key| format!("{section}.{key}")));
    }
    named.sort();
    let mut known = keys();
    known.sort();
    assert_eq!(named, known);
    // All at once they are a good configuration, and the defaults save one example.
    let dir = tempfile::tempdir().unwrap();
    let text = text.replace("advertise = \"\"", "advertise = \"node-1:7473\"");
    let mut config = load(&mk_sources(dir.path(), &text)).unwrap().config;
    config.control.listen = None;
    config.control.advertise = String::new();
    config.node.name = String::new();
    assert_eq!(config.origins.len(), known.len(), "each was said in the file or by a flag");
    config.origins.clear();
    assert_eq!(config, Config::default());
}

#[test]
fn later_words_win() {
    let dir = tempfile::tempdir().unwrap();
    let mut sources = mk_sources(
        dir.path(),
        "[lease]\nduration = \"20s\"\nrenew_deadline = \"15s\"\n[log]\nlevel = \"warn\"",
    );
    let drop_ins = dir.path().join("purelbd.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::write(drop_ins.join("20-b.toml"), "[lease]\nduration = \"40s\"").unwrap();
    fs::write(drop_ins.join("10-a.toml"), "[lease]\nduration = \"30s\"\n[metrics]\nenabled = false").unwrap();
    fs::write(drop_ins.join("notes.txt"), "not a setting").unwrap();
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.config.lease.duration, Duration::from_secs(40));
    assert_eq!(loaded.config.lease.renew_deadline, Duration::from_secs(15));
    assert!(!loaded.config.metrics.enabled);
    assert_eq!(loaded.files.len(), 3);
    let from = |key: &str| loaded.config.origins.get(key).map(String::as_str);
    assert_eq!(from("lease.duration"), drop_ins.join("20-b.toml").to_str());
    assert_eq!(from("metrics.enabled"), drop_ins.join("10-a.toml").to_str());
    assert_eq!(from("log.level"), loaded.files[0].to_str());
    for (name, value) in [
        ("PURELB_LEASE_DURATION", "30s"),
        ("PURELB_RENEW_DEADLINE", "12s"),
        ("PURELB_RETRY_PERIOD", "1s"),
        ("DEFAULT_ANNOUNCER", "SomebodyElse"),
        ("PURELB_NETWORK_SHADOW_INTERFACES", "a0, b0"),
        ("PURELB_METRICS_ENABLED", "true"),
        ("PURELB_LESE_DURATION", "1s"),
        ("HOME", "/nowhere"),
    ] {
        sources.environment.push((name.to_owned(), value.to_owned()));
    }
    sources.flags.push(("log.level".to_owned(), "debug".to_owned()));
    let loaded = load(&sources).unwrap();
    let config = loaded.config;
    assert_eq!(config.lease.duration, Duration::from_secs(30));
    assert_eq!(config.lease.renew_deadline, Duration::from_secs(12));
    assert_eq!(config.lease.retry_period, Duration::from_secs(1));
    assert!(!config.services.default_announcer && config.metrics.enabled);
    let names: Vec<&str> = config.network.shadow_interfaces.iter().map(IfName::as_str).collect();
    assert_eq!(names, ["a0", "b0"]);
    assert_eq!(config.log.level, "debug");
    // And where each came from is known.
    let from = |key: &str| config.origins.get(key).map(String::as_str);
    assert_eq!(from("log.level"), Some("the command line"));
    assert_eq!(from("lease.duration"), Some("environment variable PURELB_LEASE_DURATION"));
    assert_eq!(from("lease.renew_deadline"), Some("environment variable PURELB_RENEW_DEADLINE"));
    assert_eq!(from("control.socket"), None, "built in");
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings[0].contains("PURELB_LESE_DURATION"));
}

#[test]
fn every_mistake_names_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = error(dir.path(), "[lease]\nduraton = \"20s\"");
    assert!(unknown.contains("purelbd.toml") && unknown.contains("lease.duraton"), "{unknown}");
    let section = error(dir.path(), "[leases]\nduration = \"20s\"");
    assert!(section.contains("leases"), "{section}");
    let level = error(dir.path(), "duration = \"20s\"");
    assert!(level.contains("did you mean lease.duration?"), "{level}");
    let kind = error(dir.path(), "[lease]\nduration = \"soon\"");
    assert!(kind.contains("soon") && kind.contains("10s") && kind.contains("purelbd.toml"), "{kind}");
    let syntax = error(dir.path(), "[lease\n");
    assert!(syntax.contains("purelbd.toml"), "{syntax}");
    let relation = error(dir.path(), "[lease]\nduration = \"8s\"");
    assert!(relation.contains("renew deadline"), "{relation}");
    let long = error(dir.path(), "[handoff]\ndeadline = \"10s\"");
    assert!(long.contains("handoff.deadline"), "{long}");
    let tcp = error(dir.path(), "[control]\nlisten = \"0.0.0.0:7473\"");
    assert!(tcp.contains("control.advertise"), "{tcp}");
    let tls = error(dir.path(), "[control]\nlisten = \"192.0.2.1:7473\"\nkey = \"\"");
    assert!(tls.contains("control.key"), "{tls}");
    let token = error(dir.path(), "[kubernetes]\ntoken_file = \"/t\"");
    assert!(token.contains("kubernetes.servers"), "{token}");
    let mut sources = mk_sources(dir.path(), "");
    sources.flags.push(("log.levle".to_owned(), "info".to_owned()));
    let flag = load(&sources).unwrap_err().to_string();
    assert!(flag.contains("command line") && flag.contains("log.levle"), "{flag}");
    sources = Sources { file: Some(dir.path().join("missing.toml")), ..Sources::default() };
    let missing = load(&sources).unwrap_err().to_string();
    assert!(missing.contains("missing.toml"), "{missing}");
}

/// Half of the lease duration at most: fast timers need no other setting beside them.
#[test]
fn fast_timers_alone_are_enough_and_bare_seconds_are_durations() {
    let dir = tempfile::tempdir().unwrap();
    for text in [
        "[lease]\nduration = \"5s\"\nrenew_deadline = \"3s\"\nretry_period = \"1s\"",
        "[lease]\nduration = \"5\"\nrenew_deadline = \"3\"\nretry_period = \"1\"",
        "[lease]\nduration = 5\nrenew_deadline = 3\nretry_period = 1",
        "[lease]\nduration = 5.0\nrenew_deadline = 3.0\nretry_period = 1.0",
    ] {
        let config = load(&mk_sources(dir.path(), text)).unwrap().config;
        let engine = config.engine(InstanceId::new("x").unwrap(), None).unwrap();
        assert_eq!(engine.timers.duration, Duration::from_secs(5), "{text}");
        assert_eq!(engine.timers.retry_period, Duration::from_secs(1), "{text}");
        assert_eq!(engine.handoff.deadline, Duration::from_millis(2500), "{text}");
    }
    let mut sources = mk_sources(dir.path(), "[handoff]\ndeadline = \"auto\"");
    assert_eq!(
        load(&sources).unwrap().config.handoff.times(Duration::from_secs(10)).deadline,
        Duration::from_secs(5)
    );
    for (name, value) in [("DURATION", "5"), ("RENEW_DEADLINE", "3"), ("RETRY_PERIOD", "1")] {
        sources.environment.push((format!("PURELB_LEASE_{name}"), value.to_owned()));
    }
    sources.flags.push(("handoff.deadline".to_owned(), "1.5".to_owned()));
    let config = load(&sources).unwrap().config;
    assert_eq!(config.lease.duration, Duration::from_secs(5));
    assert_eq!(config.handoff.times(config.lease.duration).deadline, Duration::from_millis(1500));
    let wrong = error(dir.path(), "[handoff]\ndeadline = \"soon\"");
    assert!(wrong.contains("soon") && wrong.contains("auto"), "{wrong}");
}

#[test]
fn the_engine_hears_what_was_set() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[lease]\nduration = \"12s\"\n[handoff]\nlinger = \"100ms\"\n[network]\nkernel_fence = false";
    let config = load(&mk_sources(dir.path(), text)).unwrap().config;
    let engine = config.engine(InstanceId::new("x").unwrap(), Some("then".into())).unwrap();
    assert_eq!(engine.node.as_str(), "node-1");
    assert_eq!(engine.timers.duration, Duration::from_secs(12));
    assert_eq!(engine.handoff.linger, Duration::from_millis(100));
    assert!(!engine.kernel_fence);
    assert_eq!(engine.draining.as_deref(), Some("then"));
}

#[test]
fn what_the_detector_cannot_do_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let detector = |lines: &str| load(&mk_sources(dir.path(), &format!("[detector]\n{lines}")));
    assert!(!detector("").unwrap().config.detector.enabled, "it is off unless asked for");
    let config = detector("enabled = true\ninterval = \"200ms\"\nmisses = 4").unwrap().config;
    let engine = config.engine(InstanceId::new("one").unwrap(), None).unwrap();
    assert_eq!((engine.detector.interval, engine.detector.misses), (Duration::from_millis(200), 4));
    assert!(engine.detector.enabled);
    let words = |lines| detector(lines).unwrap_err().to_string();
    assert!(words("interval = \"20ms\"").contains("from 50ms to 10s"), "{}", words("interval = \"20ms\""));
    assert!(words("misses = 1").contains("from 2 to 20"));
    let slow = words("enabled = true\ninterval = \"1s\"\nmisses = 10");
    assert!(slow.contains("lease duration 10s") && slow.contains("detector.enabled"), "{slow}");
    assert!(!detector("interval = \"1s\"\nmisses = 10\nenabled = false").unwrap().config.detector.enabled);
}
