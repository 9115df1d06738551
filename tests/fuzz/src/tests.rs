use super::*;

/// What was once found stays found: every saved input, without changes to it.
#[test]
fn the_corpus_passes() {
    for target in TARGETS {
        let corpus = corpus::read(target.name).unwrap();
        assert!(!corpus.is_empty(), "fuzz/corpus/{} has no files", target.name);
        for entry in corpus {
            println!("{}: {}", target.name, entry.path.display());
            (target.run)(&entry.bytes);
        }
    }
}

/// `cargo fuzz` needs a file and a `[[bin]]` for each target.
#[test]
fn both_drivers_have_the_same_targets() {
    let root = corpus::fuzz_directory();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    for FuzzTarget { name, .. } in TARGETS {
        let file = format!("fuzz_targets/{name}.rs");
        let code = std::fs::read_to_string(root.join(&file)).unwrap();
        assert!(code.contains(&format!("::{name}(data)")), "{file} runs another target");
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"{file}\"")), "{name}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    assert_eq!(std::fs::read_dir(root.join("fuzz_targets")).unwrap().count(), TARGETS.len());
    assert_eq!(std::fs::read_dir(root.join("corpus")).unwrap().count(), TARGETS.len());
}

/// A failure is repeated by its seed.
#[test]
fn the_same_seed_gives_the_same_inputs() {
    let corpus = corpus::read("lease").unwrap();
    let inputs = |seed| {
        let mut mutator = mutator::InputMutator::new(seed, &corpus);
        (0..200).map(|_| mutator.next_input()).collect::<Vec<_>>()
    };
    assert_eq!(inputs(7), inputs(7));
    assert_ne!(inputs(7), inputs(8));
}

/// The driver notices a panic, saves the input, and that input panics again.
#[test]
fn a_panic_is_found_and_its_input_saved() {
    fn refuses_long_inputs(data: &[u8]) {
        assert!(data.len() < 20, "longer than 20 bytes");
    }
    let target = FuzzTarget { name: "mac_addr", run: refuses_long_inputs };
    let directory = tempfile::tempdir().unwrap();
    let options = driver::DriverOptions {
        seed: 1,
        time_per_target: std::time::Duration::from_secs(60),
        failures: directory.path().to_owned(),
    };
    let outcome = driver::run_targets(&[target], &options).unwrap().remove(0);
    let failure = outcome.failure.expect("found within a minute");
    assert!(failure.message.contains("longer than 20 bytes"), "{}", failure.message);
    assert!(std::fs::read(&failure.saved_input).unwrap().len() >= 20);
}
