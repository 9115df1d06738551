//! Runs targets on their corpus, and then on mutations of it until the time is up.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::mutator::InputMutator;
use crate::{FuzzTarget, corpus};

/// Inputs are short; one that takes this long would stall a daemon.
const LONGEST_RUN: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub struct DriverOptions {
    pub seed: u64,
    pub time_per_target: Duration,
    /// Where inputs that failed are written to.
    pub failures: PathBuf,
}

#[derive(Clone, Debug)]
pub struct TargetOutcome {
    pub name: &'static str,
    pub inputs: u64,
    pub failure: Option<TargetFailure>,
}

#[derive(Clone, Debug)]
pub struct TargetFailure {
    pub message: String,
    pub saved_input: PathBuf,
}

/// Runs every target, some at a time; the outcomes are in the order of the targets.
pub fn run_targets(targets: &[FuzzTarget], options: &DriverOptions) -> Result<Vec<TargetOutcome>> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| -> Result<()> {
        let work = || -> Result<()> {
            loop {
                let position = next.fetch_add(1, Ordering::Relaxed);
                let Some(target) = targets.get(position) else { return Ok(()) };
                let outcome = run_target(target, options)?;
                outcomes.lock().expect("no worker panics").push((position, outcome));
            }
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("no worker panics"))
    })?;
    let mut outcomes = outcomes.into_inner().expect("no worker panics");
    outcomes.sort_by_key(|(position, _)| *position);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

fn run_target(target: &FuzzTarget, options: &DriverOptions) -> Result<TargetOutcome> {
    let corpus = corpus::read(target.name)?;
    let mut mutator = InputMutator::new(options.seed, &corpus);
    let mut outcome = TargetOutcome { name: target.name, inputs: 0, failure: None };
    let end = Instant::now() + options.time_per_target;
    let examples = corpus.iter().map(|entry| entry.bytes.clone()).collect::<Vec<_>>();
    let mutations = std::iter::from_fn(|| (Instant::now() < end).then(|| mutator.next_input()));
    for input in examples.into_iter().chain(mutations) {
        outcome.inputs += 1;
        if let Err(message) = run_input(target, &input) {
            let saved_input = save(target, &input, options)?;
            outcome.failure = Some(TargetFailure { message, saved_input });
            break;
        }
    }
    Ok(outcome)
}

/// What went wrong with an input.
pub fn run_input(target: &FuzzTarget, input: &[u8]) -> Result<(), String> {
    let started = Instant::now();
    panic::catch_unwind(|| (target.run)(input)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
    })?;
    match started.elapsed() {
        took if took > LONGEST_RUN => Err(format!("took {took:?}")),
        _ => Ok(()),
    }
}

fn save(target: &FuzzTarget, input: &[u8], options: &DriverOptions) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let directory = &options.failures;
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let path = directory.join(format!("{}-{:016x}", target.name, hasher.finish()));
    std::fs::write(&path, input).with_context(|| path.display().to_string())?;
    Ok(path)
}
