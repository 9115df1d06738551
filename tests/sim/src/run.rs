//! Running seeds: one, many, and a failing one again with its log.

use crate::ledger::Ledger;
use crate::mutate::Mutation;
use crate::queue::{SEC, T};
use crate::setup::{Profile, Setup};
use crate::world::{Stats, Violation, World};

#[derive(Debug)]
pub struct Outcome {
    pub setup: Setup,
    pub violation: Option<Violation>,
    pub stats: Stats,
    pub ledger: Ledger,
    pub simulated: T,
    /// Two runs of one seed have the same.
    pub hash: u64,
    /// Filled only when asked for.
    pub log: Vec<String>,
}

impl Outcome {
    pub fn hours(&self) -> f64 {
        self.simulated as f64 / SEC as f64 / 3600.0
    }
}

/// What to run. The seed decides everything that is not given.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub seed: u64,
    pub profile: Option<Profile>,
    pub mutation: Option<Mutation>,
    /// Segments are asked who is there. Off unless a daemon is told to.
    pub detector: bool,
}

impl Job {
    pub fn seed(seed: u64) -> Self {
        Self { seed, profile: None, mutation: None, detector: false }
    }

    pub fn run(self) -> Outcome {
        self.run_with(false)
    }

    pub fn run_logged(self) -> Outcome {
        self.run_with(true)
    }

    fn run_with(self, text: bool) -> Outcome {
        let profile = self.profile.unwrap_or(Profile::of_seed(self.seed));
        let setup = Setup { detector: self.detector, ..Setup::from_seed(self.seed, profile, self.mutation) };
        let mut world = World::new(setup.clone(), text);
        world.run();
        Outcome {
            setup,
            violation: world.violation.take(),
            stats: world.stats,
            ledger: world.ledger,
            simulated: world.now,
            hash: world.trace.hash(),
            log: world.trace.into_lines(),
        }
    }

    pub fn command_line(self) -> String {
        let mut text = format!("cargo run -p purelb-sim --profile sim -- --seed {}", self.seed);
        if let Some(profile) = self.profile {
            text += &format!(" --profile {}", profile.name());
        }
        if let Some(mutation) = self.mutation {
            text += &format!(" --without {}", mutation.rule().0);
        }
        if self.detector {
            text += " --detector";
        }
        text + " --log"
    }

    /// Everything a reader needs: the seed, the rule in words, the end of the log.
    pub fn report(self, tail: usize) -> String {
        let outcome = self.run_logged();
        let Some(violation) = &outcome.violation else {
            return format!("seed {} breaks no rule", self.seed);
        };
        let from = outcome.log.len().saturating_sub(tail);
        format!(
            "{}\nbreaks {} after {}.{:03} s: {}\n{}\nreplay: {}",
            outcome.setup.describe(),
            violation.rule,
            violation.at / SEC,
            violation.at % SEC / 1_000_000,
            violation.words,
            outcome.log[from..].join("\n"),
            self.command_line(),
        )
    }
}

#[derive(Debug, Default)]
pub struct Summary {
    pub seeds: u64,
    pub simulated: T,
    pub stats: Stats,
    pub ledger: Ledger,
    pub failed: Vec<(u64, Violation)>,
}

impl Summary {
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        self.stats.events += outcome.stats.events;
        self.stats.steps += outcome.stats.steps;
        self.stats.actions += outcome.stats.actions;
        self.stats.additions += outcome.stats.additions;
        self.stats.handoffs += outcome.stats.handoffs;
        self.stats.settled += outcome.stats.settled;
        self.stats.questions += outcome.stats.questions;
        self.stats.early += outcome.stats.early;
        self.ledger.merge(outcome.ledger.clone());
        if let Some(violation) = &outcome.violation {
            self.failed.push((outcome.setup.seed, violation.clone()));
        }
    }

    pub fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.stats.events += other.stats.events;
        self.stats.steps += other.stats.steps;
        self.stats.actions += other.stats.actions;
        self.stats.additions += other.stats.additions;
        self.stats.handoffs += other.stats.handoffs;
        self.stats.settled += other.stats.settled;
        self.stats.questions += other.stats.questions;
        self.stats.early += other.stats.early;
        self.ledger.merge(other.ledger);
        self.failed.extend(other.failed);
    }

    pub fn hours(&self) -> f64 {
        self.simulated as f64 / SEC as f64 / 3600.0
    }

    pub fn describe(&self) -> String {
        format!(
            "simulated {:.1} cluster-hours, {} events, {} engine steps, {} actions, {} additions, {} overlaps, {} \
             questions, {} early takeovers, {} settlings, {} seeds, {} violations",
            self.hours(),
            self.stats.events,
            self.stats.steps,
            self.stats.actions,
            self.stats.additions,
            self.stats.handoffs,
            self.stats.questions,
            self.stats.early,
            self.stats.settled,
            self.seeds,
            self.failed.len()
        )
    }
}

/// Runs seeds from that of `first` on, on as many threads as there are processors, as long as `more`
/// says so, each like `first` but for the number. It is asked with `None` before each seed
/// and told each outcome. A seed that was begun is finished.
pub fn run_many(first: Job, more: impl Fn(Option<&Outcome>) -> bool + Sync) -> Summary {
    let next = std::sync::atomic::AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut total = Summary::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut summary = Summary::default();
                    while more(None) && summary.failed.len() < 20 {
                        let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let job = Job { seed: first.seed.wrapping_add(i), ..first };
                        let outcome = job.run();
                        more(Some(&outcome));
                        summary.add(&outcome);
                    }
                    summary
                })
            })
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(summary) => total.merge(summary),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    total.failed.sort_by_key(|(seed, _)| *seed);
    total
}
