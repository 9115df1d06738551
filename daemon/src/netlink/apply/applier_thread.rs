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
//!
//! However long a change waits here or before: an address carries the moment at which it
//! has to end, and its lifetime is counted when it is sent (R3).

use std::io;
use std::thread::JoinHandle;

use purelb_core::messages::{Input, KernelChange};
use tokio::sync::mpsc;

use crate::netlink::apply::kernel_applier::KernelApplier;

/// More than this waiting means the kernel's lock is held: piling up does not help.
const BATCH_QUEUE: usize = 64;
/// Batches that waited are carried out together, up to so many operations.
const MOST_JOINED_CHANGES: usize = 4096;

pub type ChangeBatch = Vec<(u64, KernelChange)>;

/// What carries batches out.
pub trait ApplyBatch: Send + 'static {
    /// One answer for each operation, in their order.
    fn apply(&mut self, batch: ChangeBatch) -> Vec<Input>;
}

impl ApplyBatch for KernelApplier {
    fn apply(&mut self, batch: ChangeBatch) -> Vec<Input> {
        Self::apply(self, batch)
    }
}

/// Dropping it lets the thread finish what was submitted and end.
#[derive(Debug)]
pub struct ApplierHandle {
    batches: mpsc::Sender<ChangeBatch>,
    thread: JoinHandle<()>,
}

impl ApplierHandle {
    /// Starts the thread. Results go to `inputs`, in the order of the operations.
    pub fn spawn(applier: impl ApplyBatch, inputs: mpsc::Sender<Input>) -> io::Result<Self> {
        let (batches, queue) = mpsc::channel(BATCH_QUEUE);
        let thread = std::thread::Builder::new()
            .name("applier".to_owned())
            .spawn(move || work(applier, queue, &inputs))?;
        Ok(Self { batches, thread })
    }

    /// Hands a batch over, or back if there is no room (or the thread has ended).
    pub fn submit(&self, batch: ChangeBatch) -> Result<(), ChangeBatch> {
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

    /// Resolves when the thread has ended, whatever ended it. Nothing could be put on or
    /// taken off an interface from then on, so the process must not go on either. Drop it
    /// before [`Self::finish`], which waits for the thread's end as well.
    pub fn gone(&self) -> impl Future<Output = ()> + 'static {
        let batches = self.batches.clone();
        async move { batches.closed().await }
    }
}

fn work(mut applier: impl ApplyBatch, mut queue: mpsc::Receiver<ChangeBatch>, inputs: &mpsc::Sender<Input>) {
    // Nobody to tell: still carry out what is left, a shutdown relies on it.
    let tell = |result| {
        if inputs.blocking_send(result).is_err() {
            tracing::debug!("a result of the applier has no receiver");
        }
    };
    while let Some(mut batch) = queue.blocking_recv() {
        while batch.len() < MOST_JOINED_CHANGES
            && let Ok(next) = queue.try_recv()
        {
            batch.extend(next);
        }
        applier.apply(batch).into_iter().for_each(tell);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use purelb_core::IfIndex;
    use purelb_core::messages::KernelChange;

    use super::*;

    /// What a bug in there would do.
    struct Broken;

    impl ApplyBatch for Broken {
        fn apply(&mut self, batch: ChangeBatch) -> Vec<Input> {
            panic!("{} operations", batch.len());
        }
    }

    #[tokio::test]
    async fn the_end_of_the_thread_is_noticed() {
        let (inputs, _answers) = mpsc::channel(1);
        let handle = ApplierHandle::spawn(Broken, inputs).unwrap();
        let gone = handle.gone();
        tokio::pin!(gone);
        let early = tokio::time::timeout(Duration::from_millis(10), gone.as_mut()).await;
        assert!(early.is_err(), "it waits for work");
        let op = KernelChange::Remove { index: IfIndex(2), net: "192.0.2.1/24".parse().unwrap() };
        handle.submit(vec![(1, op)]).unwrap();
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("noticed");
    }
}
