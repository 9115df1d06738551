//! The files themselves: two builds are the same bytes, and the unit is tight.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use purelb_systemd::figures::figure;
use purelb_systemd::guide;
use purelb_systemd::packages::build;
use purelb_systemd::prepared::source;

#[test]
fn two_builds_are_the_same_bytes() -> Result<()> {
    let (one, two) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut packages = 0;
    for format in ["deb", "rpm"] {
        build(format, "1.2.3", one.path())?;
        build(format, "1.2.3", two.path())?;
    }
    for entry in fs::read_dir(one.path())? {
        let name = entry?.file_name();
        let [a, b] = [one.path().join(&name), two.path().join(&name)].map(fs::read);
        ensure!(a? == b?, "{} differs from build to build", name.display());
        packages += 1;
    }
    figure("packages that two builds make alike", "4 of 4", &format!("{packages} of 4"), packages == 4);
    Ok(())
}

#[test]
fn the_unit_is_tight() -> Result<()> {
    let unit = source().join("packaging/systemd/purelbd.service");
    let seen = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager", "--threshold=100"])
        .arg(&unit)
        .output()
        .context("running systemd-analyze")?;
    let text = String::from_utf8_lossy(&seen.stdout);
    let last = text
        .lines()
        .rev()
        .find(|line| line.contains("Overall exposure level"))
        .context(text.clone().into_owned())?;
    let score: f64 = last
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .with_context(|| format!("no figure in {last:?}"))?;
    figure("systemd-analyze security purelbd.service", "<= 2.0", &score.to_string(), score <= 2.0);
    Ok(())
}

/// A block that no test runs may be wrong for years.
#[test]
fn every_block_of_the_guide_is_run() -> Result<()> {
    let here = source().join("tests/systemd");
    let mut code = String::new();
    for dir in ["src", "tests"] {
        for entry in fs::read_dir(here.join(dir))? {
            code.push_str(&fs::read_to_string(entry?.path())?);
        }
    }
    for name in guide::names()? {
        ensure!(code.contains(&format!("\"{name}\"")), "nothing runs the guide's block {name}");
    }
    Ok(())
}
