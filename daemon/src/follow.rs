//! What follows every turn and every picture of the engine's task.

use purelb_core::Mono;
use purelb_core::snapshot::Snapshot;

use crate::driver::Follow;
use crate::reason_log;
use crate::systemd::{Manager, Notifier};

/// The service manager and the log.
#[derive(Debug)]
pub struct Followers<M> {
    pub notifier: Notifier<M>,
}

impl<M: Manager> Follow for Followers<M> {
    fn alive(&mut self, now: Mono) -> Option<Mono> {
        self.notifier.alive(now)
    }

    fn published(&mut self, before: &Snapshot, after: &Snapshot) {
        reason_log::changes(before, after);
        self.notifier.published(after);
    }
}
