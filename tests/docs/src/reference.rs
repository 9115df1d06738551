//! Pages written from the code: custom resources, settings, command lines.

mod cli;
mod config;
mod crds;

use anyhow::Result;

use crate::{read, root};

/// A page and where it goes.
#[derive(Clone, Debug)]
pub struct Reference {
    pub path: &'static str,
    pub text: String,
}

/// Said at the top of each.
fn note(from: &str) -> String {
    format!("Written from {from} by `make reference`; edits here are lost.\n")
}

/// In a table a line break would end the row, and a bar the cell.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;")
}

/// All of them.
pub fn all() -> Result<Vec<Reference>> {
    Ok(vec![
        Reference { path: "docs/reference/crds.md", text: crds::markdown() },
        Reference { path: "docs/reference/config.md", text: config::markdown(&read(config::SAMPLE)?)? },
        Reference { path: "docs/reference/cli.md", text: cli::markdown(&read(cli::MANUAL)?)? },
    ])
}

/// Those that are not what the code says.
pub fn stale() -> Result<Vec<Reference>> {
    let differs = |page: &Reference| {
        std::fs::read_to_string(root().join(page.path)).map_or(true, |there| there != page.text)
    };
    Ok(all()?.into_iter().filter(differs).collect())
}
