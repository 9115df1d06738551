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
//! A lifetime is whole seconds from the moment the kernel hears of it, and was counted
//! from the moment of the decision. A process that is stopped between the two would add,
//! when it goes on, an address that outlives the fence (R3): what is that late is refused.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use purelb_core::Mono;
use purelb_core::io::{Input, Op};
use tokio::sync::mpsc;

use super::applier::Applier;
use crate::clock;

/// More than this waiting means the kernel's lock is held: piling up does not help.
const BATCHES: usize = 64;
/// Batches that waited are carried out together, up to so many operations.
const TOGETHER: usize = 4096;
/// An address with a lifetime is not added later than this after it was handed over.
const TOO_LATE: Duration = Duration::from_secs(1);

pub type Batch = Vec<(u64, Op)>;

/// Dropping it lets the thread finish what was submitted and end.
#[derive(Debug)]
pub struct ApplierHandle {
    batches: mpsc::Sender<(Mono, Batch)>,
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
        self.batches.try_send((clock::now(), batch)).map_err(|refused| refused.into_inner().1)
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

fn work(mut applier: Applier, mut queue: mpsc::Receiver<(Mono, Batch)>, inputs: &mpsc::Sender<Input>) {
    // Nobody to tell: still carry out what is left, a shutdown relies on it.
    let tell = |result| {
        if inputs.blocking_send(result).is_err() {
            tracing::debug!("a result of the applier has no receiver");
        }
    };
    while let Some(first) = queue.blocking_recv() {
        let mut batch = Batch::new();
        let mut next = Some(first);
        while let Some((handed, ops)) = next {
            let (late, fresh): (Batch, Batch) =
                ops.into_iter().partition(|(_, op)| too_late(clock::now(), handed, op));
            batch.extend(fresh);
            for (id, _) in late {
                let result = Err("the process was held up: decided too long ago".to_owned());
                tell(Input::Applied { id, result });
            }
            next = if batch.len() < TOGETHER { queue.try_recv().ok() } else { None };
        }
        applier.apply(batch).into_iter().for_each(tell);
    }
}

fn too_late(now: Mono, handed: Mono, op: &Op) -> bool {
    matches!(op, Op::Put(spec) if spec.valid.is_some()) && now.since(handed) > TOO_LATE
}

#[cfg(test)]
mod tests {
    use purelb_core::IfIndex;
    use purelb_core::io::AddressSpec;

    use super::*;

    #[test]
    fn only_what_lives_for_a_time_can_come_too_late() {
        let net = "192.0.2.1/24".parse().unwrap();
        let put = |valid| {
            let spec = AddressSpec {
                index: IfIndex(2),
                net,
                valid,
                preferred: valid,
                no_prefix_route: true,
                no_dad: true,
            };
            Op::Put(spec)
        };
        let (handed, soon, late) = (Mono::from_millis(0), Mono::from_millis(900), Mono::from_millis(1_100));
        assert!(!too_late(soon, handed, &put(Some(7))));
        assert!(too_late(late, handed, &put(Some(7))));
        assert!(!too_late(late, handed, &put(None)), "for ever is for ever");
        assert!(
            !too_late(late, handed, &Op::Remove { index: IfIndex(2), net }),
            "a removal is never too late"
        );
    }
}
