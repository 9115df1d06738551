//! Every link inside the source tree leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::Page;

/// The page from which every other one in its directory can be reached.
pub const INDEX: &str = "docs/README.md";

/// Links to files and headings that are not there. `root`: where the files are.
pub fn check(root: &Path, pages: &[Page]) -> Vec<String> {
    let anchors: BTreeMap<&str, Vec<String>> =
        pages.iter().map(|page| (page.path.as_str(), page.anchors())).collect();
    let mut wrong = Vec::new();
    for page in pages {
        for (line, target) in page.links() {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) =
                target.split_once('#').map_or((target.as_str(), None), |(p, a)| (p, Some(a)));
            let Some(path) = resolve(&page.path, path) else {
                wrong.push(page.at(line, format!("{target} leads out of the source tree")));
                continue;
            };
            if !root.join(&path).exists() {
                wrong.push(page.at(line, format!("{target}: there is no {path}")));
                continue;
            }
            let Some(anchor) = anchor else { continue };
            let known = anchors.get(path.as_str());
            if !known.is_some_and(|known| known.iter().any(|a| a == anchor)) {
                wrong.push(page.at(line, format!("{target}: {path} has no heading #{anchor}")));
            }
        }
    }
    wrong
}

/// Pages below docs/ that no chain of links from the index reaches.
pub fn unreachable(pages: &[Page]) -> Vec<String> {
    let by_path: BTreeMap<&str, &Page> = pages.iter().map(|page| (page.path.as_str(), page)).collect();
    let mut reached = BTreeSet::new();
    let mut next = vec![INDEX.to_owned()];
    while let Some(path) = next.pop() {
        let Some(page) = by_path.get(path.as_str()) else {
            // A directory, which is shown with what is in it.
            let inside = |page: &&Page| Path::new(&page.path).parent() == Some(Path::new(&path));
            let listed = pages.iter().filter(inside).map(|page| page.path.clone());
            next.extend(listed.filter(|page| !reached.contains(page)));
            continue;
        };
        if reached.insert(path.clone()) {
            let targets = page.links().into_iter().filter(|(_, target)| !target.contains("://"));
            next.extend(targets.filter_map(|(_, t)| resolve(&path, t.split('#').next().unwrap_or_default())));
        }
    }
    let lost = pages.iter().filter(|page| page.path.starts_with("docs/") && !reached.contains(&page.path));
    lost.map(|page| format!("{}: no link leads there from {INDEX}", page.path)).collect()
}

/// A link's path from the root; `None` if it leaves the tree.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    let mut path = PathBuf::new();
    if !link.starts_with('/') {
        path.push(Path::new(from).parent()?);
    }
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
