//! The simulator notices when a rule is off: each mutation breaks the outside of the
//! engine the way its rule exists to survive.

use purelb_sim::{Job, Mutation};

/// Seeds tried before a rule counts as unguarded; the table in the documentation has
/// what it took.
const SEEDS: u64 = 40;

#[test]
fn each_rule_switched_off_is_found() {
    let mut table = Vec::new();
    for mutation in Mutation::ALL {
        let (rule, how) = mutation.rule();
        let found = (1..=SEEDS).find_map(|seed| {
            let job = Job { mutation: Some(mutation), ..Job::seed(seed) };
            job.run().violation.map(|v| (seed, v))
        });
        let Some((seeds, violation)) = found else {
            panic!("{rule} was off ({how}) in {SEEDS} seeds and nothing was noticed");
        };
        table.push(format!("| {rule} | {how} | {} | {seeds} |", violation.rule));
    }
    eprintln!("{}", table.join("\n"));
}
