//! How everyone else talks to the engine's task: reads its snapshot, hears its events,
//! asks it questions and gives it commands.
//!
//! Reading never waits and never disturbs the task. Asking goes through a queue of
//! [`REQUEST_QUEUE`]: when it is full the asker waits, the engine does not.

use std::sync::Arc;

use purelb_core::Vip;
use purelb_core::election::RankedCandidate;
use purelb_core::messages::{Command, Event, ShutdownMode};
use purelb_core::snapshot::Snapshot;
use thiserror::Error;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::host::drain_mark::{DrainMark, DrainMarkError};

/// Questions waiting for the engine's task.
pub(crate) const REQUEST_QUEUE: usize = 64;
/// Events a slow listener may be behind before it is told that it missed some.
pub(crate) const EVENTS: usize = 256;

/// One question or command, with the way back.
#[derive(Debug)]
pub(crate) enum EngineRequest {
    /// Answered with the first snapshot that has it.
    Command(Command, oneshot::Sender<Arc<Snapshot>>),
    Order(Vip, oneshot::Sender<Vec<RankedCandidate>>),
}

#[derive(Debug, Error)]
pub enum HandleError {
    #[error("the daemon is ending and takes no more requests")]
    Ended,
    #[error(transparent)]
    Mark(#[from] DrainMarkError),
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    pub(crate) snapshot: watch::Receiver<Arc<Snapshot>>,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) requests: mpsc::Sender<EngineRequest>,
    pub(crate) mark: Arc<DrainMark>,
}

impl EngineHandle {
    /// The newest snapshot. Never waits.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// Every snapshot with news from here on; a slow reader skips to the newest. What only
    /// renewals change wakes nobody, see [`Snapshot::version`].
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.clone()
    }

    /// What the engine says of Services and node agents: what becomes Kubernetes events.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Begins a drain, or changes `force` of one under way. The mark is on disk before
    /// this returns. The answer is the first snapshot of it; progress shows in the
    /// snapshots that follow, the drain is done when no VIP is on an interface or handed
    /// over, save those with the reason `Draining { held: true }`.
    pub async fn drain(&self, force: bool) -> Result<Arc<Snapshot>, HandleError> {
        let since = self.mark.set(rfc3339_now()).await?;
        self.command(Command::Drain { since, force }).await
    }

    /// Ends the drain; also when there is none.
    pub async fn undrain(&self) -> Result<Arc<Snapshot>, HandleError> {
        self.mark.clear().await?;
        self.command(Command::Undrain).await
    }

    /// Lists everything again, compares, and announces what we hold once more.
    pub async fn resync(&self) -> Result<Arc<Snapshot>, HandleError> {
        self.command(Command::Resync).await
    }

    pub async fn shutdown(&self, mode: ShutdownMode) -> Result<Arc<Snapshot>, HandleError> {
        self.command(Command::Shutdown { mode, since: rfc3339_now() }).await
    }

    /// All candidates for an address, best first; also for one no Service has.
    pub async fn order(&self, vip: Vip) -> Result<Vec<RankedCandidate>, HandleError> {
        let (answer, order) = oneshot::channel();
        self.ask(EngineRequest::Order(vip, answer)).await?;
        order.await.map_err(|_| HandleError::Ended)
    }

    async fn command(&self, command: Command) -> Result<Arc<Snapshot>, HandleError> {
        let (answer, snapshot) = oneshot::channel();
        self.ask(EngineRequest::Command(command, answer)).await?;
        snapshot.await.map_err(|_| HandleError::Ended)
    }

    async fn ask(&self, ask: EngineRequest) -> Result<(), HandleError> {
        self.requests.send(ask).await.map_err(|_| HandleError::Ended)
    }
}

/// For words to people and to other nodes; never compared.
pub fn rfc3339_now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}
