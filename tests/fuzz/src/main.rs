//! `fuzz`: feeds the parsers changed examples until one panics or the time is up.
#![allow(clippy::print_stdout)] // Its output is what it is for.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Parser;
use purelb_fuzz::driver::{DriverOptions, run_input, run_targets};
use purelb_fuzz::{FuzzTarget, TARGETS, corpus};

/// Runs each target on its corpus, then on mutations of it.
#[derive(Debug, Parser)]
struct Args {
    /// Targets to run; all, if none is named.
    targets: Vec<String>,
    /// How long to mutate, for each target.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Repeat a run; without it, another one every time.
    #[arg(long)]
    seed: Option<u64>,
    /// Run the target on this file alone.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Print the names of the targets.
    #[arg(long)]
    list: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.list {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    }
    let targets = choose(&args.targets)?;
    match &args.input {
        Some(path) => repeat(&targets, path),
        None => run(&targets, &args),
    }
}

fn choose(names: &[String]) -> Result<Vec<FuzzTarget>> {
    if names.is_empty() {
        return Ok(TARGETS.to_vec());
    }
    let find = |name: &String| TARGETS.iter().find(|t| t.name == *name).copied();
    names.iter().map(|n| find(n).with_context(|| format!("no target is called {n:?}; see --list"))).collect()
}

fn repeat(targets: &[FuzzTarget], path: &Path) -> Result<()> {
    let [target] = targets else { bail!("--input needs the name of one target") };
    let input = std::fs::read(path).with_context(|| path.display().to_string())?;
    match run_input(target, &input) {
        Ok(()) => {
            println!("{}: passes", target.name);
            Ok(())
        }
        Err(message) => bail!("{}: {message}", target.name),
    }
}

/// Prints as `cargo test` does, so that a summary can count both.
fn run(targets: &[FuzzTarget], args: &Args) -> Result<()> {
    let of_now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = args.seed.unwrap_or_else(of_now);
    println!("fuzz: seed {seed}, {} targets, {} s each", targets.len(), args.seconds);
    let failures = corpus::fuzz_directory().join("artifacts");
    let time_per_target = Duration::from_secs(args.seconds);
    let outcomes = run_targets(targets, &DriverOptions { seed, time_per_target, failures })?;
    let mut failed = 0;
    for outcome in &outcomes {
        let name = outcome.name;
        println!("fuzz: {name}: {} inputs", outcome.inputs);
        match &outcome.failure {
            None => println!("test fuzz::{name} ... ok"),
            Some(failure) => {
                failed += 1;
                let file = failure.saved_input.display();
                println!("{}", failure.message);
                println!("again: cargo run -p purelb-fuzz -- {name} --input {file}");
                println!("test fuzz::{name} ... FAILED");
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {failed} failed", outcomes.len() - failed);
    if failed > 0 {
        bail!("{failed} targets failed with seed {seed}; mended, an input belongs into fuzz/corpus/TARGET");
    }
    Ok(())
}
