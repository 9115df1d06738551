//! What follows every turn and every snapshot of the engine's task.

use purelb_core::Mono;
use purelb_core::snapshot::Snapshot;

use crate::engine::driver::EngineObserver;
use crate::engine::reason_log;
use crate::host::systemd::{ServiceManager, SystemdNotifier};

/// The service manager and the log.
#[derive(Debug)]
pub struct DaemonObserver<M> {
    pub notifier: SystemdNotifier<M>,
}

impl<M: ServiceManager> EngineObserver for DaemonObserver<M> {
    fn feed_watchdog(&mut self, now: Mono) -> Option<Mono> {
        self.notifier.feed_watchdog(now)
    }

    fn snapshot_published(&mut self, before: &Snapshot, after: &Snapshot) {
        reason_log::log_changes(before, after);
        self.notifier.snapshot_published(after);
    }
}
