//! The control API: what this node knows and does, over gRPC.
//!
//! ```text
//!   unix socket ── peer credentials ──┐                     ┌─ reads: snapshot (watch)
//!   TCP ── TLS 1.3, certificate ──────┴─▶ Peer, Role ─▶ API ┤
//!                                                           └─ asks: Handle, audit line
//! ```
//! It runs on a thread and a runtime of its own. The engine's task is never entered: it
//! publishes pictures and answers a bounded queue of questions, so that a client that
//! floods, stalls or asks for everything at once costs this thread and nobody else.

mod api;
mod audit;
mod conn;
mod convert;
mod drain;
mod events;
mod explain;
mod limits;
mod listen;
mod peer;
mod problems;
mod refusals;
mod resync;
mod roles;
mod server;
mod status;
mod tls;
mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use thiserror::Error;
use tokio::sync::oneshot;

use crate::app::Running;

pub use limits::Limits;
pub use peer::{Peer, Role};
pub use roles::ROLE_URI;

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
pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Where it listens on TCP: the port may have been chosen by the kernel.
    pub address: Option<std::net::SocketAddr>,
}

/// Starts serving what can be served; see [`listen::open`]. `beside` runs on the same
/// thread: what strangers can ask of it costs the engine's as little.
pub fn start(
    running: Running,
    limits: Limits,
    beside: impl Future<Output = ()> + Send + 'static,
) -> Result<Server, ControlError> {
    let config = running.config.borrow().clone();
    let doors = listen::open(&config.control);
    let address = doors.address();
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ControlError::Start)?;
    let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
        let limits = Arc::new(limits);
        runtime.spawn(beside);
        runtime.block_on(server::serve(running, doors, limits, stopped));
        runtime.shutdown_background();
    });
    let thread = thread.map_err(ControlError::Start)?;
    Ok(Server { stop: Some(stop), thread: Some(thread), address })
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at once: what is under way is cut off, since the process ends.
            let _ = thread.join();
        }
    }
}
