//! The control API: what this node knows and does, over gRPC.
//!
//! ```text
//!   unix socket ── peer credentials ──┐                     ┌─ reads: snapshot (watch)
//!   TCP ── TLS 1.3, certificate ──────┴─▶ ClientPeer, Role ─▶ API ┤
//!                                                           └─ asks: EngineHandle, audit line
//! ```
//! It runs on a thread and a runtime of its own. The engine's task is never entered: it
//! publishes snapshots and answers a bounded queue of questions, so that a client that
//! floods, stalls or asks for everything at once costs this thread and nobody else.

mod audit;
mod certificate_role;
mod connection;
mod control_service;
mod convert;
mod drain;
mod event_history;
mod explain;
mod limits;
mod listeners;
mod peer;
mod problems;
mod refusal_log;
mod resync;
mod server;
mod status;
mod tls;
mod vip_watch;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use thiserror::Error;
use tokio::sync::oneshot;

use crate::app::RunningDaemon;

pub use certificate_role::ROLE_URI;
pub use limits::ControlLimits;
pub use peer::{ClientPeer, ClientRole};

#[derive(Debug, Error)]
pub enum ControlError {
    #[error("control.socket {}: {error}", path.display())]
    Socket { path: PathBuf, error: io::Error },
    #[error(
        "control.socket_group {group:?}: there is no such group; make it (`groupadd --system {group}`) or name another"
    )]
    NoGroup { group: String },
    #[error("control.listen {address}: {error}")]
    Listen { address: std::net::SocketAddr, error: io::Error },
    #[error("starting the control API: {0}")]
    Start(io::Error),
}

/// The control API while it runs; ends when this is dropped.
#[derive(Debug)]
pub struct ControlThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Where it listens on TCP: the port may have been chosen by the kernel.
    pub address: Option<std::net::SocketAddr>,
}

/// Starts serving what can be served; see [`listeners::open`]. `beside` runs on the same
/// thread: what strangers can ask of it costs the engine's as little.
pub fn start(
    running: RunningDaemon,
    limits: ControlLimits,
    beside: impl Future<Output = ()> + Send + 'static,
) -> Result<ControlThread, ControlError> {
    let config = running.config.borrow().clone();
    let listeners = listeners::open(&config.control);
    let address = listeners.address();
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ControlError::Start)?;
    let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
        let limits = Arc::new(limits);
        runtime.spawn(beside);
        runtime.block_on(server::serve(running, listeners, limits, stopped));
        runtime.shutdown_background();
    });
    let thread = thread.map_err(ControlError::Start)?;
    Ok(ControlThread { stop: Some(stop), thread: Some(thread), address })
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at once: what is under way is cut off, since the process ends.
            let _ = thread.join();
        }
    }
}
