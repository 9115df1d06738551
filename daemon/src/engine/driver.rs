//! The task that owns the engine.
//!
//! ```text
//!  watches ─┐                         ┌─▶ Outside: applier, packets, Lease, slots, events
//!  netlink ─┼─▶ [inputs] ─┐           │      │ answers known at once
//!  answers ─┘             ▼           │      ▼
//!  control, signals ─▶ [asks] ─▶ Engine::step_all ─▶ snapshot (watch) ─▶ API, metrics, log
//!                         ▲
//!            BootTimer ───┤ the engine's deadline, first of all
//!    claims on a segment ─┘
//! ```
//!
//! One turn takes what has queued up, at most [`INPUTS_PER_TURN`] inputs, decides once and starts
//! what follows. The deadline comes before the queue, and every step checks the fence
//! first, so a flood of inputs cannot keep a node from withdrawing. Facts come before
//! questions: whoever may ask could otherwise keep the answer to a renewal from the engine,
//! and fence the node. The watchdog is fed
//! from here and from nowhere else: an engine that hangs is restarted.

use std::future;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use purelb_core::messages::{Command, Effect, Event, Source};
use purelb_core::snapshot::Snapshot;
use purelb_core::{Engine, Input, Mono};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::engine::handle::{EVENTS, EngineHandle, EngineRequest, REQUEST_QUEUE};
use crate::host::clock::{self, BootTimer};
use crate::host::drain_mark::DrainMark;

/// Inputs of one turn: enough to merge a burst, few enough to look at the clock often.
const INPUTS_PER_TURN: usize = 512;
/// Questions answered between two such turns, so that neither waits for the other's end.
const REQUESTS_PER_TURN: usize = 8;
/// Under load a snapshot is published at most this often; the last one always is.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(20);

/// Carries effects out. Nothing in here may wait.
pub trait EffectSink {
    /// Starts each effect, in order. Answers that are known at once go to `answers`.
    fn carry_out(&mut self, effects: Vec<Effect>, answers: &mut Vec<Input>);

    /// An input on its way to the engine: an answer may be timed.
    fn observe_input(&mut self, input: &Input) {
        let _ = input;
    }

    /// Everything that arrived on our segments by now goes to `answers`. Called before every
    /// tick: only who has heard all that was said may take silence for silence.
    fn hear_segments(&mut self, answers: &mut Vec<Input>) {
        let _ = answers;
    }

    /// Ready when somebody claimed an address on a segment, to be heard at once.
    fn poll_claim(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        Poll::Pending
    }

    /// Offers again what had to wait. When to be called again, if something still does.
    fn retry_waiting(&mut self) -> Option<Mono>;
}

/// Told of every turn and every snapshot: the service manager's watchdog, the log.
pub trait EngineObserver {
    /// The task is alive at `now`. When to be called again at the latest.
    fn feed_watchdog(&mut self, now: Mono) -> Option<Mono>;

    /// There is news: the snapshots differ in their version.
    fn snapshot_published(&mut self, before: &Snapshot, after: &Snapshot);
}

#[derive(Debug)]
pub struct EngineDriver<O, F> {
    engine: Engine,
    inputs: mpsc::Receiver<Input>,
    requests: mpsc::Receiver<EngineRequest>,
    effects_sink: O,
    observer: F,
    snapshot: watch::Sender<Arc<Snapshot>>,
    events: broadcast::Sender<Event>,
    timer: BootTimer,
    /// Something happened since the last snapshot.
    stale: bool,
    published_at: Mono,
    /// Commands to be answered with the next snapshot.
    waiting: Vec<oneshot::Sender<Arc<Snapshot>>>,
    over: bool,
}

impl<O: EffectSink, F: EngineObserver> EngineDriver<O, F> {
    pub fn new(
        engine: Engine,
        inputs: mpsc::Receiver<Input>,
        effects_sink: O,
        observer: F,
        mark: Arc<DrainMark>,
    ) -> io::Result<(Self, EngineHandle)> {
        let now = clock::now();
        let mut engine = engine;
        let (snapshot, snapshots) = watch::channel(Arc::new(engine.snapshot(now)));
        let (events, _) = broadcast::channel(EVENTS);
        let (requests_to, requests) = mpsc::channel(REQUEST_QUEUE);
        let handle =
            EngineHandle { snapshot: snapshots, events: events.clone(), requests: requests_to, mark };
        let driver = Self {
            engine,
            inputs,
            requests,
            effects_sink,
            observer,
            snapshot,
            events,
            timer: BootTimer::new()?,
            stale: false,
            published_at: now,
            waiting: Vec::new(),
            over: false,
        };
        Ok((driver, handle))
    }

    /// Runs until the engine says that the process may end, and gives back what carried
    /// its effects out.
    pub async fn run(mut self) -> io::Result<O> {
        let mut batch = Vec::with_capacity(INPUTS_PER_TURN);
        while !self.over {
            let now = clock::now();
            let wakes = [
                self.engine.deadline(now),
                self.effects_sink.retry_waiting(),
                self.observer.feed_watchdog(now),
                self.stale.then_some(self.published_at + SNAPSHOT_INTERVAL),
            ];
            self.timer.arm(wakes.into_iter().flatten().min())?;
            tokio::select! {
                biased;
                passed = self.timer.passed() => {
                    passed?;
                    self.hear_and_step(vec![Input::Tick]);
                }
                () = future::poll_fn(|cx| self.effects_sink.poll_claim(cx)) => self.hear_and_step(Vec::new()),
                count = self.inputs.recv_many(&mut batch, INPUTS_PER_TURN) => {
                    if count == 0 {
                        return Err(io::Error::other("every source of the engine's inputs has ended"));
                    }
                    batch.iter().for_each(|input| self.effects_sink.observe_input(input));
                    self.step(std::mem::take(&mut batch));
                    for _ in 0..REQUESTS_PER_TURN {
                        let Ok(ask) = self.requests.try_recv() else { break };
                        self.handle_request(ask);
                    }
                }
                Some(ask) = self.requests.recv() => self.handle_request(ask),
            }
            self.publish_snapshot();
        }
        Ok(self.effects_sink)
    }

    fn hear_and_step(&mut self, mut inputs: Vec<Input>) {
        let mut heard = Vec::new();
        self.effects_sink.hear_segments(&mut heard);
        heard.append(&mut inputs);
        self.step(heard);
    }

    fn step(&mut self, mut inputs: Vec<Input>) {
        while !inputs.is_empty() {
            let effects = self.engine.step_all(clock::now(), inputs.drain(..));
            self.stale = true;
            for effect in &effects {
                match effect {
                    Effect::Event(event) => {
                        // Nobody listens: most of the time.
                        let _ = self.events.send(event.clone());
                    }
                    Effect::Exit => self.over = true,
                    _ => {}
                }
            }
            self.effects_sink.carry_out(effects, &mut inputs);
        }
    }

    fn handle_request(&mut self, ask: EngineRequest) {
        match ask {
            EngineRequest::Command(command, answer) => {
                let again = command == Command::Resync;
                self.step(vec![Input::Command(command)]);
                if again {
                    let everything = Source::ALL.into_iter().map(Effect::Relist).collect();
                    let mut answers = Vec::new();
                    self.effects_sink.carry_out(everything, &mut answers);
                    self.step(answers);
                }
                self.waiting.push(answer);
            }
            // Whoever asked may have gone away meanwhile.
            EngineRequest::Order(vip, answer) => drop(answer.send(self.engine.order(vip))),
        }
    }

    /// Publishes what everyone else sees, if it is time to.
    fn publish_snapshot(&mut self) {
        let now = clock::now();
        let due = now >= self.published_at + SNAPSHOT_INTERVAL || !self.waiting.is_empty() || self.over;
        if !self.stale || !due {
            return;
        }
        self.stale = false;
        self.published_at = now;
        let after = Arc::new(self.engine.snapshot(now));
        let mut before = after.clone();
        // Whoever reads has the newest; whoever waits is woken for news only, and a peer's
        // renewal is none.
        let news = self.snapshot.send_if_modified(|last| {
            before = std::mem::replace(last, after.clone());
            before.version != after.version
        });
        if news {
            self.observer.snapshot_published(&before, &after);
        }
        for answer in self.waiting.drain(..) {
            let _ = answer.send(after.clone());
        }
    }
}

#[cfg(test)]
mod tests;
