//! The applier on a thread of its own.
//!
//! A netlink request waits for the kernel's configuration lock, which another process
//! can hold for a long time. The engine's task must not wait with it.
//!
//! ```text
//!  engine's task ──submit──▶ [ 64 batches ] ──▶ thread: Applier ──▶ inputs queue
//! ```
//! A full queue of batches refuses the batch: the engine's task keeps it and offers it
//! again. A full inputs queue makes the thread wait; it never makes the engine wait.

use std::io;
use std::thread::JoinHandle;

use purelb_core::io::{Input, Op};
use tokio::sync::mpsc;

use super::applier::Applier;

/// More than this waiting means the kernel's lock is held: piling up does not help.
const BATCHES: usize = 64;
/// Batches that waited are carried out together, up to so many operations.
const TOGETHER: usize = 4096;

pub type Batch = Vec<(u64, Op)>;

/// Dropping it lets the thread finish what was submitted and end.
#[derive(Debug)]
pub struct ApplierHandle {
    batches: mpsc::Sender<Batch>,
    thread: JoinHandle<()>,
}

impl ApplierHandle {
    /// Starts the thread. Results go to `inputs`, in the order of the operations.
    pub fn spawn(applier: Applier, inputs: mpsc::Sender<Input>) -> io::Result<Self> {
        let (batches, queue) = mpsc::channel(BATCHES);
        let thread = std::thread::Builder::new()
            .name("applier".to_owned())
            .spawn(move || work(applier, queue, &inputs))?;
        Ok(Self { batches, thread })
    }

    /// Hands a batch over, or back if there is no room (or the thread has ended).
    pub fn submit(&self, batch: Batch) -> Result<(), Batch> {
        if batch.is_empty() {
            return Ok(());
        }
        self.batches.try_send(batch).map_err(mpsc::error::TrySendError::into_inner)
    }

    /// Waits until everything submitted is done. Blocks.
    pub fn finish(self) {
        drop(self.batches);
        // A panic there was printed there; there is nothing left to end.
        let _ = self.thread.join();
    }

    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

fn work(mut applier: Applier, mut queue: mpsc::Receiver<Batch>, inputs: &mpsc::Sender<Input>) {
    while let Some(mut batch) = queue.blocking_recv() {
        while batch.len() < TOGETHER {
            match queue.try_recv() {
                Ok(more) => batch.extend(more),
                Err(_) => break,
            }
        }
        for result in applier.apply(batch) {
            // Nobody to tell: still carry out what is left, a shutdown relies on it.
            if inputs.blocking_send(result).is_err() {
                tracing::debug!("a result of the applier has no receiver");
            }
        }
    }
}
