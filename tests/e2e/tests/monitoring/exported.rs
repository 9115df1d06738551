//! What the programs really export, and whether rules, dashboard and documentation
//! speak of that and of nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::files::{read, root, rules, shipped};

/// Labels that Prometheus adds, or a site does.
const FROM_OUTSIDE: [&str; 3] = ["instance", "job", "cluster"];

/// Names that dashboards know, and that promtool would have otherwise.
const KEPT: [&str; 3] =
    ["purelb_election_member_count", "purelb_election_subnet_count", "purelb_election_local_subnet_count"];

/// A metric as scraped: its type, and the names of the labels its series had.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

/// By family name, as in the TYPE lines.
#[derive(Debug)]
struct Exported(BTreeMap<String, Metric>);

impl Exported {
    fn read(texts: &[String]) -> Self {
        let mut all: BTreeMap<String, Metric> = BTreeMap::new();
        for line in texts.iter().flat_map(|text| text.lines()) {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
                all.entry(name.to_owned()).or_default().kind = kind.to_owned();
            }
        }
        let mut exported = Self(all);
        let series = texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("purelb_"));
        for line in series {
            let labels = label_names(line);
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            if let Some(metric) = exported.family(name).and_then(|family| exported.0.get_mut(&family)) {
                metric.labels.extend(labels);
            }
        }
        exported
    }

    /// The family a series' name belongs to.
    fn family(&self, series: &str) -> Option<String> {
        let fits = |suffix: &str, kinds: &[&str]| {
            let family = series.strip_suffix(suffix)?;
            let metric = self.0.get(family)?;
            kinds.contains(&metric.kind.as_str()).then(|| family.to_owned())
        };
        fits("", &["gauge"])
            .or_else(|| fits("_total", &["counter"]))
            .or_else(|| ["_bucket", "_sum", "_count"].iter().find_map(|suffix| fits(suffix, &["histogram"])))
    }
}

/// The names in `{a="x",b="y"}`, of the first such in a line.
fn label_names(series: &str) -> Vec<String> {
    let inside = series.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(i, _)| i);
    // Names stand before `=`, after the start, a comma or a space; values are quoted.
    let mut names = Vec::new();
    for (n, part) in inside.split('"').enumerate() {
        if n % 2 == 0 {
            names.extend(part.trim_start_matches(',').trim().strip_suffix('=').map(|n| n.trim().to_owned()));
        }
    }
    names
}

/// Every `purelb_…` word of a text.
fn mentioned(text: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    text.split(word).filter(|w| w.starts_with("purelb_")).map(str::to_owned).collect()
}

/// Every query of a dashboard.
fn expressions(dashboard: &Value, found: &mut Vec<String>) {
    match dashboard {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("expr" | "query" | "definition", Value::String(text)) => found.push(text.clone()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

pub fn check(texts: &[String]) -> Result<()> {
    let exported = Exported::read(texts);
    ensure!(exported.0.len() > 50, "only {:?}", exported.0.keys());

    let dashboard: Value = serde_json::from_str(&read(&shipped("dashboard.json"))?)?;
    let mut queries = Vec::new();
    expressions(&dashboard, &mut queries);
    let asked = [("the rules", read(&rules())?), ("the dashboard", queries.join("\n"))];
    for (who, text) in asked {
        let names = mentioned(&text);
        ensure!(names.len() > 8, "{who} asks for {names:?} only");
        for name in names {
            ensure!(exported.family(&name).is_some(), "{who} asks for {name}, which nobody exports");
        }
    }
    unit_tests(&exported)?;
    documentation(&exported)?;
    texts.iter().try_for_each(|text| lint(text))
}

/// What promtool thinks of names, types and help texts.
fn lint(text: &str) -> Result<()> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running promtool; `tests/setup.sh monitoring` installs it")?;
    let older = older_format(text);
    child.stdin.take().context("its input")?.write_all(older.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said)?;
    let wrong: Vec<&str> =
        said.lines().filter(|l| !KEPT.iter().any(|kept| l.starts_with(&format!("{kept} ")))).collect();
    ensure!(wrong.is_empty(), "promtool check metrics: {wrong:#?}");
    Ok(())
}

/// promtool reads the older text format, in which a counter's family has its full name.
fn older_format(text: &str) -> String {
    let mut counters: BTreeSet<&str> = BTreeSet::new();
    for line in text.lines() {
        counters.extend(line.strip_prefix("# TYPE ").and_then(|l| l.strip_suffix(" counter")));
    }
    let mut older = String::new();
    for line in text.lines().filter(|l| *l != "# EOF") {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", what, name, rest] if counters.contains(name) => {
                older.push_str(&format!("# {what} {name}_total {rest}\n"));
            }
            _ => older.push_str(&format!("{line}\n")),
        }
    }
    older
}

/// The series that the rules are unit-tested with look like real ones.
fn unit_tests(exported: &Exported) -> Result<()> {
    let text = read(&shipped("purelb.rules.test.yml"))?;
    let series =
        text.lines().filter_map(|l| l.trim().strip_prefix("- series: ")).map(|s| s.trim_matches('\''));
    let mut count = 0;
    for series in series.filter(|s| s.starts_with("purelb_")) {
        let name = series.split('{').next().unwrap_or_default();
        let family = exported.family(name).with_context(|| format!("nobody exports {series}"))?;
        let real = &exported.0[&family].labels;
        let given: BTreeSet<String> =
            label_names(series).into_iter().filter(|l| !FROM_OUTSIDE.contains(&l.as_str())).collect();
        ensure!(given == *real, "{series} has labels {given:?}, real ones {real:?}");
        count += 1;
    }
    ensure!(count > 10, "{count} series");
    Ok(())
}

/// One row of the reference per metric: name, type, labels, meaning.
fn documentation(exported: &Exported) -> Result<()> {
    let page = read(&root().join("docs/metrics.md"))?;
    let mut rows: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for line in page.lines().filter(|l| l.starts_with("| `purelb_")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else {
            anyhow::bail!("a row wants name, type, labels and meaning: {line}")
        };
        ensure!(!meaning.is_empty(), "{line}");
        let labels =
            labels.split([',', ' ']).map(|l| l.trim_matches('`').to_owned()).filter(|l| !l.is_empty());
        let labels = labels.filter(|l| l != "-").collect();
        let name = name.trim_matches('`').to_owned();
        ensure!(rows.insert(name.clone(), (kind.to_owned(), labels)).is_none(), "{name} is there twice");
    }
    for (family, metric) in &exported.0 {
        let name = if metric.kind == "counter" { format!("{family}_total") } else { family.clone() };
        let (kind, labels) =
            rows.remove(&name).with_context(|| format!("docs/metrics.md does not know {name}"))?;
        ensure!(kind == metric.kind, "docs/metrics.md: {name} is a {}, not a {kind}", metric.kind);
        let mut seen = metric.labels.clone();
        seen.remove("le");
        // Some have no series until something happens.
        ensure!(
            seen.is_empty() || seen == labels,
            "docs/metrics.md: {name} has labels {seen:?}, not {labels:?}"
        );
    }
    ensure!(rows.is_empty(), "docs/metrics.md: nobody exports {:?}", rows.keys());
    Ok(())
}
