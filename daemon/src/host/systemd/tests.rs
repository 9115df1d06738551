use std::cell::RefCell;
use std::rc::Rc;

use purelb_core::config::EngineConfig;
use purelb_core::{Engine, InstanceId, NodeName};

use super::*;

#[derive(Clone, Default)]
struct Heard(Rc<RefCell<Vec<String>>>);

impl Heard {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

impl ServiceManager for Heard {
    fn notify(&mut self, words: &[(&str, &str)]) {
        let words: Vec<String> = words.iter().map(|(k, v)| format!("{k}={v}")).collect();
        self.0.borrow_mut().push(words.join("\n"));
    }
}

fn mk_snapshot() -> Snapshot {
    let config = EngineConfig::new(NodeName::new("a").unwrap(), InstanceId::new("one").unwrap());
    Engine::new(config).snapshot(Mono::ZERO)
}

#[test]
fn ready_is_said_once_and_status_when_it_changes() {
    let heard = Heard::default();
    let mut notifier = SystemdNotifier::new(heard.clone(), None);
    let mut snapshot = mk_snapshot();
    notifier.snapshot_published(&snapshot);
    notifier.snapshot_published(&snapshot);
    let said = heard.take();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("STATUS=waiting for the first listing of Services"), "{said:?}");
    snapshot.unsynced.clear();
    snapshot.fence = FenceView::Healthy { until: Mono::ZERO };
    snapshot.ready = true;
    notifier.snapshot_published(&snapshot);
    notifier.snapshot_published(&snapshot);
    assert_eq!(heard.take(), ["READY=1\nSTATUS=announcing 0 of 0 addresses; 0 nodes live"]);
    snapshot.stopping = true;
    notifier.snapshot_published(&snapshot);
    assert_eq!(heard.take(), ["STATUS=stopping, 0 addresses left"]);
}

#[test]
fn the_watchdog_is_fed_at_half_its_time() {
    let heard = Heard::default();
    let mut notifier = SystemdNotifier::new(heard.clone(), Some(Duration::from_secs(5)));
    let start = Mono::from_millis(1000);
    let next = notifier.feed_watchdog(start).unwrap();
    assert_eq!(next, start + Duration::from_secs(5));
    assert_eq!(
        notifier.feed_watchdog(start + Duration::from_secs(1)),
        Some(next),
        "too early to say it again"
    );
    assert_eq!(heard.take(), ["WATCHDOG=1"]);
    notifier.feed_watchdog(next);
    assert_eq!(heard.take(), ["WATCHDOG=1"]);
    assert_eq!(SystemdNotifier::new(heard.clone(), None).feed_watchdog(start), None);
    assert!(heard.take().is_empty());
}

#[test]
fn a_reload_says_when_it_began() {
    let mut heard = Heard::default();
    reloading(&mut heard);
    reloaded(&mut heard);
    stopping(&mut heard);
    let said = heard.take();
    assert!(said[0].starts_with("RELOADING=1\nMONOTONIC_USEC="), "{said:?}");
    let micros: u64 = said[0].rsplit('=').next().unwrap().parse().unwrap();
    assert!(micros > 0 && micros <= monotonic_nanos() / 1000);
    assert_eq!(said[1..], ["READY=1", "STOPPING=1"]);
}
