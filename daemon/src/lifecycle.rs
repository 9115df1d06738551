//! From signals to commands.
//!
//! | signal | what happens |
//! |---|---|
//! | SIGTERM, SIGINT | hand everything over, withdraw, delete the Lease, end |
//! | the same again | withdraw at once, delete the Lease, end |
//! | SIGHUP | read the configuration again |
//! | SIGUSR1 | end and leave addresses and Lease to the process that follows: upgrades |

use std::io;

use purelb_core::io::Shutdown;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{debug, info};

use crate::handle::Handle;
use crate::systemd::{self, Systemd};

/// Registered before anything else happens: from then on none of them kills us.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    leave: Signal,
}

impl Signals {
    pub fn register() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            leave: signal(SignalKind::user_defined1())?,
        })
    }

    /// Turns signals into commands for as long as the process lives.
    pub async fn follow(mut self, handle: Handle, mut reload: impl FnMut()) {
        let mut asked_before = false;
        loop {
            let mode = tokio::select! {
                _ = self.terminate.recv() => stop(&mut asked_before),
                _ = self.interrupt.recv() => stop(&mut asked_before),
                _ = self.leave.recv() => Shutdown::Leave,
                _ = self.hangup.recv() => {
                    systemd::reloading(&mut Systemd);
                    reload();
                    systemd::reloaded(&mut Systemd);
                    continue;
                }
            };
            match mode {
                Shutdown::Graceful => {
                    info!("told to stop: handing everything over; once more to withdraw at once");
                }
                Shutdown::Now => info!("told to stop again: withdrawing at once"),
                Shutdown::Leave => {
                    info!("told to leave: addresses and Lease stay for the process that follows");
                }
            }
            systemd::stopping(&mut Systemd);
            if let Err(error) = handle.shutdown(mode).await {
                debug!(%error, "the engine's task has ended already");
            }
        }
    }
}

fn stop(asked_before: &mut bool) -> Shutdown {
    if std::mem::replace(asked_before, true) { Shutdown::Now } else { Shutdown::Graceful }
}
