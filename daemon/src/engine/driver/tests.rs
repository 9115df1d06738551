//! The engine's task against a scripted outside.

use std::sync::Mutex;

use purelb_core::config::EngineConfig;
use purelb_core::messages::{FactsUpdate, KernelDump, ShutdownMode};
use purelb_core::{InstanceId, NodeName, Vip};

use super::*;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Effect>>>);

impl Log {
    fn seen(&self) -> Vec<Effect> {
        self.0.lock().unwrap().clone()
    }
}

impl EffectSink for Log {
    fn carry_out(&mut self, effects: Vec<Effect>, _answers: &mut Vec<Input>) {
        self.0.lock().unwrap().extend(effects);
    }

    fn retry_waiting(&mut self) -> Option<Mono> {
        None
    }
}

#[derive(Clone, Default)]
struct Beats(Arc<Mutex<u32>>);

impl EngineObserver for Beats {
    fn feed_watchdog(&mut self, _now: Mono) -> Option<Mono> {
        *self.0.lock().unwrap() += 1;
        None
    }

    fn snapshot_published(&mut self, _before: &Snapshot, _after: &Snapshot) {}
}

struct Rig {
    inputs: mpsc::Sender<Input>,
    handle: EngineHandle,
    log: Log,
    beats: Beats,
    task: tokio::task::JoinHandle<io::Result<Log>>,
    _state: tempfile::TempDir,
}

fn mk_rig() -> Rig {
    let state = tempfile::tempdir().unwrap();
    let config = EngineConfig::new(NodeName::new("a").unwrap(), InstanceId::new("one").unwrap());
    let (inputs, queue) = mpsc::channel(1024);
    let (log, beats) = (Log::default(), Beats::default());
    let mark = Arc::new(DrainMark::in_directory(state.path()));
    let (driver, handle) =
        EngineDriver::new(Engine::new(config), queue, log.clone(), beats.clone(), mark).unwrap();
    Rig { inputs, handle, log, beats, task: tokio::spawn(driver.run()), _state: state }
}

#[tokio::test]
async fn a_command_is_answered_with_a_picture_that_has_it() {
    let rig = mk_rig();
    let drained = rig.handle.drain(false).await.unwrap();
    let since = drained.draining.clone().expect("the snapshot says that it drains");
    assert_eq!(rig.handle.mark.read().unwrap(), Some(since), "and so does the disk");
    assert_eq!(rig.handle.undrain().await.unwrap().draining, None);
    assert_eq!(rig.handle.mark.read().unwrap(), None);
    let vip: Vip = "192.0.2.1".parse().unwrap();
    assert!(rig.handle.order(vip).await.unwrap().is_empty());
    assert!(*rig.beats.0.lock().unwrap() > 0, "the watchdog is fed by the turns");
}

#[tokio::test]
async fn a_resync_lists_everything_again() {
    let rig = mk_rig();
    rig.handle.resync().await.unwrap();
    let relisted: Vec<Source> = rig
        .log
        .seen()
        .iter()
        .filter_map(|e| if let Effect::Relist(s) = e { Some(*s) } else { None })
        .collect();
    assert_eq!(relisted, Source::ALL);
}

#[tokio::test]
async fn a_burst_is_one_picture_and_the_last_one_is_drawn() {
    let rig = mk_rig();
    let mut snapshots = rig.handle.subscribe();
    snapshots.mark_unchanged();
    rig.inputs.send(Input::Kernel(KernelDump::default())).await.unwrap();
    for _ in 0..500 {
        rig.inputs.send(Input::DefaultRoutes(Vec::new())).await.unwrap();
    }
    rig.inputs.send(Input::Leases(FactsUpdate::All(Vec::new()))).await.unwrap();
    let mut drawn = 0;
    let whole = async {
        loop {
            snapshots.changed().await.unwrap();
            drawn += 1;
            if !snapshots.borrow_and_update().unsynced.contains(&Source::Leases) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), whole).await.expect("the last input shows");
    assert!(drawn < 100, "{drawn} snapshots of 502 inputs");
}

#[tokio::test]
async fn it_ends_when_the_engine_says_so() {
    let rig = mk_rig();
    rig.handle.shutdown(ShutdownMode::Leave).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), rig.task).await.unwrap().unwrap().unwrap();
    assert!(matches!(rig.handle.resync().await, Err(crate::engine::handle::HandleError::Ended)));
    assert!(rig.log.seen().contains(&Effect::Exit));
}

#[tokio::test]
async fn it_fails_when_nobody_can_tell_it_anything() {
    let rig = mk_rig();
    drop(rig.inputs);
    let ended = tokio::time::timeout(Duration::from_secs(5), rig.task).await.unwrap().unwrap();
    assert!(ended.is_err());
}

/// Readers of the control API keep the queue of questions full; what the kernel and the
/// API server say must get through all the same, or renewals would count as failed. They
/// ask from other threads, as the control API does.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_of_questions_does_not_keep_facts_out() {
    let rig = mk_rig();
    let vip: Vip = "192.0.2.1".parse().unwrap();
    let mut askers = tokio::task::JoinSet::new();
    for _ in 0..4 * REQUEST_QUEUE {
        let handle = rig.handle.clone();
        askers.spawn(async move { while handle.order(vip).await.is_ok() {} });
    }
    let mut snapshots = rig.handle.subscribe();
    for source in [Input::Leases(FactsUpdate::All(Vec::new())), Input::Services(FactsUpdate::All(Vec::new()))]
    {
        rig.inputs.send(source).await.unwrap();
    }
    let arrived = snapshots.wait_for(|p| !p.unsynced.contains(&Source::Services));
    tokio::time::timeout(Duration::from_secs(10), arrived).await.expect("in time").unwrap();
    assert_eq!(askers.len(), 4 * REQUEST_QUEUE, "the flood went on");
}

/// And the other way round: a drain is obeyed however much the cluster has to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_of_facts_does_not_keep_commands_out() {
    let rig = mk_rig();
    let mut tellers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let inputs = rig.inputs.clone();
        tellers.spawn(async move { while inputs.send(Input::DefaultRoutes(Vec::new())).await.is_ok() {} });
    }
    let drained = tokio::time::timeout(Duration::from_secs(10), rig.handle.drain(false)).await;
    assert!(drained.expect("in time").unwrap().draining.is_some());
}
