//! The task that owns the engine.
//!
//! ```text
//!  watches ─┐                         ┌─▶ Outside: applier, packets, Lease, slots, events
//!  netlink ─┼─▶ [inputs] ─┐           │      │ answers known at once
//!  answers ─┘             ▼           │      ▼
//!  control, signals ─▶ [asks] ─▶ Engine::step_all ─▶ snapshot (watch) ─▶ API, metrics, log
//!                         ▲
//!            BootTimer ───┘ the engine's deadline, first of all
//! ```
//!
//! One turn takes what has queued up, at most [`TURN`] inputs, decides once and starts
//! what follows. The deadline comes before the queue, and every step checks the fence
//! first, so a flood of inputs cannot keep a node from withdrawing. Facts come before
//! questions: whoever may ask could otherwise keep the answer to a renewal from the engine,
//! and fence the node. The watchdog is fed
//! from here and from nowhere else: an engine that hangs is restarted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use purelb_core::io::{Command, Effect, Event, Source};
use purelb_core::snapshot::Snapshot;
use purelb_core::{Engine, Input, Mono};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::clock::{self, BootTimer};
use crate::drain_mark::DrainMark;
use crate::handle::{ASKS, Ask, EVENTS, Handle};

/// Inputs of one turn: enough to merge a burst, few enough to look at the clock often.
const TURN: usize = 512;
/// Questions answered between two such turns, so that neither waits for the other's end.
const ASKS_A_TURN: usize = 8;
/// Under load a picture is drawn at most this often; the last one is always drawn.
const PICTURES: Duration = Duration::from_millis(20);

/// Carries effects out. Nothing in here may wait.
pub trait Outside {
    /// Starts each effect, in order. Answers that are known at once go to `answers`.
    fn carry_out(&mut self, effects: Vec<Effect>, answers: &mut Vec<Input>);

    /// An input on its way to the engine: an answer may be timed.
    fn seen(&mut self, input: &Input) {
        let _ = input;
    }

    /// Offers again what had to wait. When to be called again, if something still does.
    fn retry(&mut self) -> Option<Mono>;
}

/// Told of every turn and every picture: the service manager's watchdog, the log.
pub trait Follow {
    /// The task is alive at `now`. When to be called again at the latest.
    fn alive(&mut self, now: Mono) -> Option<Mono>;

    /// There is news: the pictures differ in their version.
    fn published(&mut self, before: &Snapshot, after: &Snapshot);
}

#[derive(Debug)]
pub struct Driver<O, F> {
    engine: Engine,
    inputs: mpsc::Receiver<Input>,
    asks: mpsc::Receiver<Ask>,
    outside: O,
    follow: F,
    snapshot: watch::Sender<Arc<Snapshot>>,
    events: broadcast::Sender<Event>,
    timer: BootTimer,
    /// Something happened since the last picture.
    stale: bool,
    drawn: Mono,
    /// Commands to be answered with the next picture.
    waiting: Vec<oneshot::Sender<Arc<Snapshot>>>,
    over: bool,
}

impl<O: Outside, F: Follow> Driver<O, F> {
    pub fn new(
        engine: Engine,
        inputs: mpsc::Receiver<Input>,
        outside: O,
        follow: F,
        mark: Arc<DrainMark>,
    ) -> io::Result<(Self, Handle)> {
        let now = clock::now();
        let mut engine = engine;
        let (snapshot, pictures) = watch::channel(Arc::new(engine.snapshot(now)));
        let (events, _) = broadcast::channel(EVENTS);
        let (ask, asks) = mpsc::channel(ASKS);
        let handle = Handle { snapshot: pictures, events: events.clone(), asks: ask, mark };
        let driver = Self {
            engine,
            inputs,
            asks,
            outside,
            follow,
            snapshot,
            events,
            timer: BootTimer::new()?,
            stale: false,
            drawn: now,
            waiting: Vec::new(),
            over: false,
        };
        Ok((driver, handle))
    }

    /// Runs until the engine says that the process may end, and gives back what carried
    /// its effects out.
    pub async fn run(mut self) -> io::Result<O> {
        let mut batch = Vec::with_capacity(TURN);
        while !self.over {
            let now = clock::now();
            let wakes = [
                self.engine.deadline(now),
                self.outside.retry(),
                self.follow.alive(now),
                self.stale.then_some(self.drawn + PICTURES),
            ];
            self.timer.arm(wakes.into_iter().flatten().min())?;
            tokio::select! {
                biased;
                passed = self.timer.passed() => {
                    passed?;
                    self.step(vec![Input::Tick]);
                }
                count = self.inputs.recv_many(&mut batch, TURN) => {
                    if count == 0 {
                        return Err(io::Error::other("every source of the engine's inputs has ended"));
                    }
                    batch.iter().for_each(|input| self.outside.seen(input));
                    self.step(std::mem::take(&mut batch));
                    for _ in 0..ASKS_A_TURN {
                        let Ok(ask) = self.asks.try_recv() else { break };
                        self.answer(ask);
                    }
                }
                Some(ask) = self.asks.recv() => self.answer(ask),
            }
            self.draw();
        }
        Ok(self.outside)
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
            self.outside.carry_out(effects, &mut inputs);
        }
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Command(command, answer) => {
                let again = command == Command::Resync;
                self.step(vec![Input::Command(command)]);
                if again {
                    let everything = Source::ALL.into_iter().map(Effect::Relist).collect();
                    let mut answers = Vec::new();
                    self.outside.carry_out(everything, &mut answers);
                    self.step(answers);
                }
                self.waiting.push(answer);
            }
            // Whoever asked may have gone away meanwhile.
            Ask::Order(vip, answer) => drop(answer.send(self.engine.order(vip))),
        }
    }

    /// Publishes what everyone else sees, if it is time to.
    fn draw(&mut self) {
        let now = clock::now();
        let due = now >= self.drawn + PICTURES || !self.waiting.is_empty() || self.over;
        if !self.stale || !due {
            return;
        }
        self.stale = false;
        self.drawn = now;
        let after = Arc::new(self.engine.snapshot(now));
        let mut before = after.clone();
        // Whoever reads has the newest; whoever waits is woken for news only, and a peer's
        // renewal is none.
        let news = self.snapshot.send_if_modified(|last| {
            before = std::mem::replace(last, after.clone());
            before.version != after.version
        });
        if news {
            self.follow.published(&before, &after);
        }
        for answer in self.waiting.drain(..) {
            let _ = answer.send(after.clone());
        }
    }
}

#[cfg(test)]
mod tests;
