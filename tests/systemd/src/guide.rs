//! The install guide's own commands. A block is named by a comment above its fence:
//!
//! ````text
//! <!-- run: install-deb -->
//! ```sh
//! apt install ./purelb_*.deb
//! ```
//! ````
//! so that what the guide says is what the tests run.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::prepared::source;

const GUIDE: &str = "docs/install.md";

/// The commands of one block.
pub fn block(name: &str) -> Result<String> {
    let path = source().join(GUIDE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    find(&text, name).with_context(|| format!("{GUIDE} has no block \"run: {name}\""))
}

/// The names of all blocks, to see that each is run by a test.
pub fn names() -> Result<Vec<String>> {
    let text = fs::read_to_string(source().join(GUIDE))?;
    let names: Vec<String> = text.lines().filter_map(name_of).map(str::to_owned).collect();
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    ensure!(unique.len() == names.len(), "{GUIDE} names a block twice: {names:?}");
    Ok(names)
}

fn name_of(line: &str) -> Option<&str> {
    line.trim().strip_prefix("<!-- run: ")?.strip_suffix(" -->")
}

fn find(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| name_of(line) != Some(name)).skip(1);
    let fence = lines.next()?.trim();
    fence.starts_with("```").then_some(())?;
    let body: Vec<&str> = lines.take_while(|line| line.trim() != "```").collect();
    Some(body.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_is_between_the_fences() {
        let text = "words\n<!-- run: one -->\n```sh\na b\nc\n```\n<!-- run: two -->\n```sh\nd\n```\n";
        assert_eq!(find(text, "one").as_deref(), Some("a b\nc"));
        assert_eq!(find(text, "two").as_deref(), Some("d"));
        assert_eq!(find(text, "three"), None);
        assert_eq!(find("<!-- run: x -->\nno fence\n", "x"), None);
    }
}
