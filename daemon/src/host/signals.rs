//! From signals to commands.
//!
//! | signal | what happens |
//! |---|---|
//! | SIGTERM, SIGINT | hand everything over, withdraw, delete the Lease, end |
//! | the same again | withdraw at once, delete the Lease, end |
//! | SIGHUP | read the configuration again |
//! | SIGUSR1 | end and leave addresses and Lease to the process that follows: upgrades |

use std::io;

use purelb_core::messages::ShutdownMode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{debug, info};

use crate::engine::handle::EngineHandle;
use crate::host::systemd::{self, NotifySocket};

/// Registered before anything else happens: from then on none of them kills us.
#[derive(Debug)]
pub struct DaemonSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    leave: Signal,
}

impl DaemonSignals {
    pub fn register() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            leave: signal(SignalKind::user_defined1())?,
        })
    }

    /// Turns signals into commands for as long as the process lives.
    pub async fn follow(mut self, handle: EngineHandle, mut reload: impl FnMut()) {
        let mut asked_before = false;
        loop {
            let mode = tokio::select! {
                _ = self.terminate.recv() => stop(&mut asked_before),
                _ = self.interrupt.recv() => stop(&mut asked_before),
                _ = self.leave.recv() => ShutdownMode::Leave,
                _ = self.hangup.recv() => {
                    systemd::reloading(&mut NotifySocket);
                    reload();
                    systemd::reloaded(&mut NotifySocket);
                    continue;
                }
            };
            match mode {
                ShutdownMode::Graceful => {
                    info!("told to stop: handing everything over; once more to withdraw at once");
                }
                ShutdownMode::Now => info!("told to stop again: withdrawing at once"),
                ShutdownMode::Leave => {
                    info!("told to leave: addresses and Lease stay for the process that follows");
                }
            }
            systemd::stopping(&mut NotifySocket);
            if let Err(error) = handle.shutdown(mode).await {
                debug!(%error, "the engine's task has ended already");
            }
        }
    }
}

fn stop(asked_before: &mut bool) -> ShutdownMode {
    if std::mem::replace(asked_before, true) { ShutdownMode::Now } else { ShutdownMode::Graceful }
}
