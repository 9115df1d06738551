//! The one thread on which a lab's own servers run: responders and forwarders. It is
//! not the caller's runtime, so a test that blocks does not look like a dead node.

use std::future::Future;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) struct Background {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(super) fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the lab's runtime")?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("lab-background".into())
            .spawn(move || {
                super::clock::prefer_this_thread();
                // An error means the sender is gone: stop as well.
                let _ = runtime.block_on(stopped);
            })
            .context("starting the lab's background thread")?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

/// Ends all tasks and closes their sockets, which would keep namespaces alive.
impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
