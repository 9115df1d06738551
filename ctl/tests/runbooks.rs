//! What the runbooks tell an operator to type exists.

use std::fs;
use std::path::Path;

use clap::Parser;
use purelbctl::cli::{Cli, Command};

/// Lines of a page's shell blocks that call us, without comments.
fn commands(page: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            inside = !inside && kind == "sh";
        } else if inside && line.starts_with("purelbctl ") {
            found.push(line.split(" #").next().unwrap_or_default().to_owned());
        }
    }
    found
}

#[test]
fn every_command_of_every_page_is_understood() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks");
    let mut count = 0;
    for entry in fs::read_dir(&pages).expect("the runbooks") {
        let path = entry.expect("a file").path();
        let page = path.file_name().expect("a name").to_string_lossy().into_owned();
        let typed = commands(&fs::read_to_string(&path).expect("a page"));
        assert!(page == "README.md" || !typed.is_empty(), "{page} says nothing to type");
        for command in typed {
            let parsed = Cli::try_parse_from(command.split_whitespace());
            let cli = parsed.unwrap_or_else(|error| panic!("{page}: `{command}`: {error}"));
            // Refused when run: these take one node at a time.
            let one = matches!(
                cli.command,
                Command::Winner(_)
                    | Command::Drain(_)
                    | Command::Config(_)
                    | Command::Version(_)
                    | Command::Top(_)
                    | Command::SupportBundle(_)
            );
            assert!(!(cli.target.all && one), "{page}: `{command}` takes one node at a time");
            count += 1;
        }
    }
    assert!(count > 20, "{count} commands");
}
