//! What the service manager is told: ready, status in words, alive, reloading, stopping.
//! Without one all of this does nothing.

use std::time::Duration;

use purelb_core::Mono;
use purelb_core::snapshot::{FenceView, Snapshot, SnapshotTotals};
use tracing::{debug, info};

use crate::host::clock;

/// Where messages go; a test listens instead of the service manager.
pub trait ServiceManager {
    fn notify(&mut self, words: &[(&str, &str)]);
}

/// The socket named by NOTIFY_SOCKET.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotifySocket;

impl ServiceManager for NotifySocket {
    fn notify(&mut self, words: &[(&str, &str)]) {
        if let Err(error) = systemd::daemon::notify(words.iter()) {
            debug!(%error, "the service manager was not reached");
        }
    }
}

/// How often the service manager wants a sign of life, halved to be safe.
pub fn watchdog() -> Option<Duration> {
    match systemd::daemon::watchdog_enabled() {
        Ok(micros) if micros > 0 => Some(Duration::from_micros(micros) / 2),
        _ => None,
    }
}

/// Keeps what was said, so that each thing is said once.
#[derive(Debug)]
pub struct SystemdNotifier<M> {
    manager: M,
    watchdog: Option<Duration>,
    fed: Option<Mono>,
    ready: bool,
    status: String,
}

impl<M: ServiceManager> SystemdNotifier<M> {
    pub fn new(manager: M, watchdog: Option<Duration>) -> Self {
        Self { manager, watchdog, fed: None, ready: false, status: String::new() }
    }

    /// Feeds the watchdog if it is time. When to call again.
    pub fn feed_watchdog(&mut self, now: Mono) -> Option<Mono> {
        let every = self.watchdog?;
        match self.fed {
            Some(fed) if now < fed + every => Some(fed + every),
            _ => {
                self.manager.notify(&[("WATCHDOG", "1")]);
                self.fed = Some(now);
                Some(now + every)
            }
        }
    }

    pub fn snapshot_published(&mut self, snapshot: &Snapshot) {
        let status = status_line(snapshot);
        let became_ready = snapshot.ready && !self.ready;
        if became_ready {
            self.ready = true;
            info!("ready: {status}");
            self.manager.notify(&[("READY", "1"), ("STATUS", &status)]);
        } else if status != self.status {
            self.manager.notify(&[("STATUS", &status)]);
        }
        self.status = status;
    }
}

/// A reload begins: the service manager waits for [`reloaded`].
pub fn reloading(manager: &mut impl ServiceManager) {
    let micros = (monotonic_nanos() / 1000).to_string();
    manager.notify(&[("RELOADING", "1"), ("MONOTONIC_USEC", &micros)]);
}

pub fn reloaded(manager: &mut impl ServiceManager) {
    manager.notify(&[("READY", "1")]);
}

pub fn stopping(manager: &mut impl ServiceManager) {
    manager.notify(&[("STOPPING", "1")]);
}

/// The protocol wants CLOCK_MONOTONIC here, not the clock of the engine.
fn monotonic_nanos() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map_or_else(
        |_| clock::now().as_nanos(),
        |t| u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0),
    )
}

/// One line for `systemctl status`.
pub fn status_line(snapshot: &Snapshot) -> String {
    let SnapshotTotals { announcing, riding, held, live } = snapshot.totals;
    if snapshot.stopping {
        return format!("stopping, {held} addresses left");
    }
    if !snapshot.unsynced.is_empty() {
        let missing: Vec<String> = snapshot.unsynced.iter().map(ToString::to_string).collect();
        return format!("waiting for the first listing of {}", missing.join(", "));
    }
    if let FenceView::Fenced { cause } = &snapshot.fence {
        if riding > 0 {
            return format!("{riding} addresses ride: {cause}");
        }
        return format!("fenced: {cause}");
    }
    if snapshot.draining.is_some() {
        return format!("draining, {held} addresses left; {live} nodes live");
    }
    format!("announcing {announcing} of {} addresses; {live} nodes live", snapshot.vips.len())
}

#[cfg(test)]
mod tests;
