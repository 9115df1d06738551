//! As much of Markdown as the checks need: headings, links, code.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

static INLINE_LINK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\[([^\]]*)\]\(<?([^)\s>]+)>?\)").expect("a valid pattern"));
static NAMED_LINK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\[[^\]]+\]:\s*(\S+)").expect("a valid pattern"));
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`([^`]+)`").expect("a valid pattern"));

/// A page with its path from the root of the source tree.
#[derive(Clone, Debug)]
pub struct Page {
    pub path: String,
    pub text: String,
    /// Lines outside of fenced blocks, with their numbers.
    prose: Vec<(usize, String)>,
    pub blocks: Vec<Block>,
}

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The line after the fence.
    pub line: usize,
    pub language: String,
    pub text: String,
}

impl Page {
    pub fn new(path: &str, text: &str) -> Self {
        let mut page = Self { path: path.to_owned(), text: text.to_owned(), prose: vec![], blocks: vec![] };
        let mut open: Option<(String, Block)> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let trimmed = line.trim_start();
            match &mut open {
                Some((fence, block)) if trimmed.trim_end() == fence => {
                    page.blocks.push(block.clone());
                    open = None;
                }
                Some((_, block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                None if trimmed.starts_with("```") => {
                    let ticks = trimmed.chars().take_while(|c| *c == '`').count();
                    let language = trimmed[ticks..].trim().to_owned();
                    let block = Block { line: number + 1, language, text: String::new() };
                    open = Some(("`".repeat(ticks), block));
                }
                None => page.prose.push((number, line.to_owned())),
            }
        }
        page
    }

    /// A sentence about a line of this page.
    pub fn at(&self, line: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    /// What a link can name after `#`: headings as GitHub spells them.
    pub fn anchors(&self) -> Vec<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut anchors = Vec::new();
        for (_, heading) in self.headings() {
            let slug = slug(&heading);
            let before = seen.entry(slug.clone()).or_default();
            anchors.push(if *before == 0 { slug } else { format!("{slug}-{before}") });
            *before += 1;
        }
        anchors
    }

    /// Texts of the headings, with their lines.
    pub fn headings(&self) -> Vec<(usize, String)> {
        let heading = |(number, line): &(usize, String)| {
            let text = line.trim_start_matches('#');
            let marked = text.len() < line.len() && text.starts_with(' ');
            marked.then(|| (*number, text.trim().to_owned()))
        };
        self.prose.iter().filter_map(heading).collect()
    }

    /// Targets of links and pictures, with their lines.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in &self.prose {
            // A link's text may be code; code that looks like a link is none.
            let line = CODE.replace_all(line, |code: &regex::Captures<'_>| {
                if code[1].contains("](") { String::new() } else { code[1].replace(['[', ']'], "") }
            });
            found.extend(INLINE_LINK.captures_iter(&line).map(|c| (*number, c[2].to_owned())));
            found.extend(NAMED_LINK.captures_iter(&line).map(|c| (*number, c[1].to_owned())));
        }
        found
    }

    /// Code within sentences, with its line.
    pub fn code(&self) -> Vec<(usize, String)> {
        let of = |(number, line): &(usize, String)| -> Vec<(usize, String)> {
            CODE.captures_iter(line).map(|c| (*number, c[1].to_owned())).collect()
        };
        self.prose.iter().flat_map(of).collect()
    }
}

/// A heading's anchor, the way GitHub makes it.
fn slug(heading: &str) -> String {
    let plain = INLINE_LINK.replace_all(heading, "$1").replace('`', "");
    let kept = plain.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests;
