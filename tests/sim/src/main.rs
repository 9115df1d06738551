//! `sim`: one seed with its log, or as many as fit into a time.
#![allow(clippy::print_stdout)] // Its output is what it is for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Parser;
use purelb_sim::{Job, Mutation, Profile, run_many};

/// Simulates clusters and checks the rules R1 to R10 after every event.
#[derive(Debug, Parser)]
struct Args {
    /// Run this seed, or start with it.
    #[arg(long)]
    seed: Option<u64>,
    /// Run on for this long with seeds from a printed base.
    #[arg(long)]
    seconds: Option<u64>,
    /// Run this many seeds.
    #[arg(long)]
    seeds: Option<u64>,
    /// calm, faulty-api, network, churn, rolling, mixed, everything, segment or outage;
    /// the seed decides if not given.
    #[arg(long)]
    profile: Option<String>,
    /// Switch a rule off, R1 to R10 or one of the finer ones: the run should fail.
    #[arg(long)]
    without: Option<String>,
    /// Have the daemons ask segments who is there.
    #[arg(long)]
    detector: bool,
    /// Print the event log.
    #[arg(long)]
    log: bool,
    /// Lines of the log to print before a violation.
    #[arg(long, default_value_t = 60)]
    tail: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let profile = match &args.profile {
        Some(text) => Some(Profile::parse(text).with_context(|| format!("no profile is called {text:?}"))?),
        None => None,
    };
    let mutation = match &args.without {
        Some(text) => Some(
            Mutation::parse(text).with_context(|| format!("{text:?} is no rule that can be switched off"))?,
        ),
        None => None,
    };
    if let (Some(seed), None, None) = (args.seed, args.seconds, args.seeds) {
        return one(Job { seed, profile, mutation, detector: args.detector }, &args);
    }
    many(&args, profile, mutation)
}

fn one(job: Job, args: &Args) -> Result<()> {
    if args.log {
        let outcome = job.run_logged();
        for line in &outcome.log {
            println!("{line}");
        }
        println!("{}; log hash {:016x}", outcome.setup.describe(), outcome.hash);
        if let Some(violation) = outcome.violation {
            bail!("breaks {}: {}", violation.rule, violation.words);
        }
        return Ok(());
    }
    let outcome = job.run();
    println!("{}; log hash {:016x}", outcome.setup.describe(), outcome.hash);
    if outcome.violation.is_some() {
        bail!("{}", job.report(args.tail));
    }
    Ok(())
}

fn many(args: &Args, profile: Option<Profile>, mutation: Option<Mutation>) -> Result<()> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let base = args.seed.unwrap_or(clock.map_or(1, |d| d.as_secs() * 1_000_000));
    if let Some(mutation) = mutation {
        return first_violation(args, base, profile, mutation);
    }
    println!("seeds from {base}");
    let began = Instant::now();
    let end = began + Duration::from_secs(args.seconds.unwrap_or(u64::MAX / 4).min(1 << 30));
    let most = args.seeds.unwrap_or(u64::MAX);
    let begun = AtomicU64::new(0);
    let first = Job { profile, detector: args.detector, ..Job::seed(base) };
    let summary = run_many(first, |outcome| {
        outcome.is_some() || (begun.fetch_add(1, Ordering::Relaxed) < most && Instant::now() < end)
    });
    let took = began.elapsed().as_secs_f64();
    println!("{}; {:.1} cluster-hours per second", summary.describe(), summary.hours() / took);
    for line in summary.ledger.describe() {
        println!("{line}");
    }
    for (seed, violation) in &summary.failed {
        println!("seed {seed}: {}: {}", violation.rule, violation.words);
    }
    if let Some((seed, _)) = summary.failed.first() {
        let job = Job { seed: *seed, ..first };
        bail!("{}", job.report(args.tail));
    }
    Ok(())
}

fn first_violation(args: &Args, base: u64, profile: Option<Profile>, mutation: Mutation) -> Result<()> {
    for tried in 0..args.seeds.unwrap_or(1000) {
        let job = Job { seed: base + tried, profile, mutation: Some(mutation), detector: args.detector };
        if let Some(violation) = job.run().violation {
            println!(
                "without {}: {} after {} seed(s): {}: {}",
                mutation.rule().0,
                mutation.rule().1,
                tried + 1,
                violation.rule,
                violation.words
            );
            return Ok(());
        }
    }
    bail!("no seed noticed that {} is off", mutation.rule().0)
}
