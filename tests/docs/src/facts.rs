//! Names that a reader looks up: each one the code knows is described, and none that it
//! does not know.

use std::collections::BTreeSet;

use anyhow::Result;
use regex::Regex;

use crate::{Page, read};

/// What looks like an annotation and is none: versions, classes, a condition.
const OTHERS: [&str; 5] = [
    "purelb.io/v1",
    "purelb.io/v2",
    purelb_api::names::DEFAULT_CLASS,
    // The class that a migration side by side uses.
    "purelb.io/purelb-v2",
    purelb_allocator::kube::service_request::ALLOCATED,
];

fn found(pattern: &str, text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).expect("a valid pattern");
    pattern.captures_iter(text).map(|c| c[1].to_owned()).collect()
}

/// Annotations on Services and Leases.
pub fn annotations() -> Result<BTreeSet<String>> {
    let sources = [read("api/src/names.rs")?, read("allocator/src/daemons/drain_cordoned.rs")?].concat();
    let mut all = found(r#""(purelb\.io/[A-Za-z0-9-]+)""#, &sources);
    // The class has the same form.
    all.remove(purelb_api::names::DEFAULT_CLASS);
    Ok(all)
}

/// Reasons of events, of both programs.
pub fn events() -> Result<BTreeSet<String>> {
    let mut all =
        found(r#"=> \("(\w+)", "(?:Normal|Warning)"\)"#, &read("daemon/src/kube/write/event_writer.rs")?);
    all.extend(found(r#"Self::\w+ => "([A-Z]\w+)""#, &read("core/src/allocation/decision.rs")?));
    let allocator = [
        read("allocator/src/service_groups/mod.rs")?,
        read("allocator/src/service_groups/status.rs")?,
        read("allocator/src/controller/results.rs")?,
    ]
    .concat();
    all.extend(found(r#"(?:group_event\(&object,|tell\(&service,) "(\w+)""#, &allocator));
    all.extend(found(r#"event_reason = if holds \{ "(\w+)" \}"#, &allocator));
    all.extend(found(r#"event_reason = if holds \{ "\w+" \} else \{ "(\w+)" \}"#, &allocator));
    Ok(all)
}

/// Reasons of an address.
pub fn reasons() -> BTreeSet<String> {
    purelb_core::reason::ReasonKind::ALL.iter().map(|kind| kind.name().to_owned()).collect()
}

/// Why a Service gets no address, as its condition says it.
pub fn refusals() -> Result<BTreeSet<String>> {
    let sources = [read("core/src/allocation/refusal.rs")?, read("core/src/pools/error.rs")?].concat();
    let labels = found(r#"Self::\w+(?:\(_\)| \{ \.\. \}) => "([a-z_]+)""#, &sources);
    let upper = |word: &str| word[..1].to_uppercase() + &word[1..];
    Ok(labels.iter().map(|label| label.split('_').map(upper).collect()).collect())
}

/// Each name has a heading of its own.
pub fn headed(page: &Page, names: &BTreeSet<String>) -> Vec<String> {
    let headings: BTreeSet<String> =
        page.headings().into_iter().map(|(_, text)| text.replace('`', "")).collect();
    let missing = names.iter().filter(|name| !headings.contains(*name));
    missing.map(|name| format!("{}: there is no heading {name}", page.path)).collect()
}

/// Each name begins a row of a table, and no row begins with a name nobody knows.
/// `like`: what such a name looks like.
pub fn listed(page: &Page, names: &BTreeSet<String>, like: &str) -> Vec<String> {
    let rows = found(&format!("(?m)^\\| `({like})`"), &page.text);
    let missing = names.difference(&rows).map(|name| format!("{}: no row about {name}", page.path));
    let unknown = rows.difference(names).map(|name| format!("{}: {name} is not in the code", page.path));
    missing.chain(unknown).collect()
}

/// Settings and annotations named in sentences exist.
pub fn named(page: &Page) -> Result<Vec<String>> {
    let keys: BTreeSet<String> = purelbd::config::keys().into_iter().collect();
    let sections: BTreeSet<&str> = keys.iter().filter_map(|key| key.split('.').next()).collect();
    let annotations = annotations()?;
    let key = Regex::new(r"^(([a-z]+)\.[a-z_]+)(?: = .*)?$").expect("a valid pattern");
    let annotation = Regex::new(r"^(purelb\.io/[A-Za-z0-9-]+)").expect("a valid pattern");
    let mut wrong = Vec::new();
    for (line, code) in page.code() {
        if let Some(parts) = key.captures(&code)
            && sections.contains(&parts[2])
            && !keys.contains(&parts[1])
        {
            wrong.push(page.at(line, format!("there is no setting {}", &parts[1])));
        }
        if let Some(name) = annotation.captures(&code).map(|parts| parts[1].to_owned())
            && !annotations.contains(&name)
            && !OTHERS.contains(&name.as_str())
        {
            wrong.push(page.at(line, format!("there is no annotation {name}")));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests;
