//! The shipped files by themselves: rules, their unit tests, the manifest made of them,
//! and the pages that alerts point to. (That their commands are understood is tested with
//! the rest of the documentation.)

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn shipped(name: &str) -> PathBuf {
    root().join("deploy/monitoring").join(name)
}

pub fn rules() -> PathBuf {
    shipped("purelb.rules.yml")
}

pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn yaml(path: &Path) -> Result<Value> {
    serde_saphyr::from_str(&read(path)?).with_context(|| format!("parsing {}", path.display()))
}

fn alerts() -> Result<Vec<Value>> {
    let rules = yaml(&rules())?;
    let groups = rules["groups"].as_array().context("groups")?;
    let all: Vec<Value> = groups.iter().flat_map(|g| g["rules"].as_array().cloned()).flatten().collect();
    ensure!(!all.is_empty(), "no alerts in {rules}");
    Ok(all)
}

fn promtool(arguments: &[&str], file: &Path) -> Result<()> {
    let run = Command::new("promtool").args(arguments).arg(file).output();
    let output = run.context("running promtool; `tests/setup.sh monitoring` installs it")?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "promtool {} {}: {said}", arguments.join(" "), file.display());
    Ok(())
}

#[test]
fn promtool_finds_nothing_wrong() -> Result<()> {
    promtool(&["check", "rules"], &rules())?;
    promtool(&["check", "config"], &shipped("scrape-static.yml"))?;
    promtool(&["test", "rules"], &shipped("purelb.rules.test.yml"))
}

#[test]
fn every_alert_has_a_test_that_fires_it() -> Result<()> {
    let tests = yaml(&shipped("purelb.rules.test.yml"))?;
    let cases = tests["tests"].as_array().context("tests")?;
    let checks = cases.iter().filter_map(|c| c["alert_rule_test"].as_array()).flatten();
    let fired: BTreeSet<&str> = checks
        .filter(|c| c["exp_alerts"].as_array().is_some_and(|a| !a.is_empty()))
        .filter_map(|c| c["alertname"].as_str())
        .collect();
    for alert in alerts()? {
        let name = alert["alert"].as_str().context("every rule is an alert")?;
        ensure!(fired.contains(name), "{name} has no unit test in which it fires");
    }
    Ok(())
}

#[test]
fn the_manifest_is_made_from_the_rules() -> Result<()> {
    let made = Command::new(shipped("prometheusrule.sh")).output().context("prometheusrule.sh")?;
    ensure!(made.status.success(), "{made:?}");
    let path = shipped("prometheusrule.yaml");
    ensure!(
        read(&path)? == String::from_utf8(made.stdout)?,
        "run deploy/monitoring/prometheusrule.sh > deploy/monitoring/prometheusrule.yaml"
    );
    let manifest = yaml(&path)?;
    ensure!(manifest["kind"] == "PrometheusRule", "{manifest}");
    ensure!(manifest["spec"]["groups"] == yaml(&rules())?["groups"], "the rules are not the same");
    Ok(())
}

#[test]
fn both_ways_to_scrape_name_the_jobs_that_rules_ask_for() -> Result<()> {
    for file in ["scrape-static.yml", "scrape-kubernetes.yml"] {
        let config = yaml(&shipped(file))?;
        let jobs = config["scrape_configs"].as_array().context("scrape_configs")?;
        ensure!(jobs.iter().any(|j| j["job_name"] == "purelbd"), "{file} has no job purelbd");
    }
    ensure!(read(&rules())?.contains("job=\"purelbd\""), "no rule names the job any more");
    Ok(())
}

/// Commands of purelbctl that take one node at a time: `--all` is refused when they run.
const ONE_AT_A_TIME: [&str; 6] = ["winner", "drain", "config", "version", "top", "support-bundle"];

/// Lines of a page's shell blocks that call purelbctl.
fn commands(page: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            inside = !inside && kind == "sh";
        } else if inside && line.starts_with("purelbctl ") {
            found.push(line);
        }
    }
    found
}

#[test]
fn every_alert_has_a_page_that_says_what_to_type() -> Result<()> {
    let mut pages = BTreeSet::new();
    for alert in alerts()? {
        let name = alert["alert"].as_str().context("a name")?;
        let page = alert["annotations"]["runbook_url"].as_str().with_context(|| format!("{name}: a page"))?;
        let text = read(&root().join(page)).with_context(|| format!("{name} points to it"))?;
        ensure!(text.lines().next() == Some(&format!("# {name}")), "{page} is not titled {name}");
        let typed = commands(&text);
        ensure!(!typed.is_empty(), "{page} says nothing to type");
        for command in typed {
            let all = command.split_whitespace().any(|word| word == "--all");
            let one = command.split_whitespace().any(|word| ONE_AT_A_TIME.contains(&word));
            ensure!(!(all && one), "{page}: `{command}` takes one node at a time");
        }
        pages.insert(root().join(page).canonicalize()?);
    }
    for entry in fs::read_dir(root().join("docs/runbooks"))? {
        let path = entry?.path().canonicalize()?;
        let known = pages.contains(&path) || path.ends_with("README.md");
        ensure!(known, "no alert points to {}", path.display());
    }
    Ok(())
}
