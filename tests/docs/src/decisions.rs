//! Decision records: each says its number, since when it holds, and whether it still does.

use std::sync::LazyLock;

use regex::Regex;

use crate::Page;

const DIRECTORY: &str = "docs/decisions/";
static FILE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d{4})-").expect("a valid pattern"));
static HEAD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^# (\d+)\. \S.*\n\nDate: \d{4}-\d{2}-\d{2}\b.*\. Status: \S.*\.\n\n")
        .expect("a valid pattern")
});

/// Records without number, date or status, and numbers that are given twice or left out.
pub fn check(pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    let records = pages.iter().filter_map(|page| Some((page, page.path.strip_prefix(DIRECTORY)?)));
    for (number, (page, file)) in (1_u32..).zip(records) {
        let of = |captures: Option<regex::Captures<'_>>| captures.and_then(|c| c[1].parse::<u32>().ok());
        match of(FILE.captures(file)) {
            Some(named) if named == number => {}
            _ => wrong.push(page.at(1, format!("its file's name should begin with {number:04}-"))),
        }
        match of(HEAD.captures(&page.text)) {
            Some(headed) if headed == number => {}
            Some(headed) => wrong.push(page.at(1, format!("it calls itself {headed}, and is {number}"))),
            None => wrong.push(page.at(
                1,
                "it should begin with `# NUMBER. Title` and `Date: YYYY-MM-DD. Status: in force.`, with an empty line after each",
            )),
        }
    }
    wrong
}

#[cfg(test)]
mod tests;
