//! The examples of the automation guide do what they say, on a real daemon.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use purelb_e2e::{Cluster, Wish, purelbctl, shared_plane};
use purelb_kit::lab::Lab;

/// Blocks of one language, with the line they begin at.
fn blocks(text: &str, language: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match &mut open {
            None if line == format!("```{language}") => open = Some((number, String::new())),
            None => {}
            Some(_) if line == "```" => found.extend(open.take()),
            Some((_, block)) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    found
}

fn tools() -> Result<PathBuf> {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = home("PURELB_CACHE")
        .or_else(|| home("XDG_CACHE_HOME").map(|c| c.join("purelb")))
        .or_else(|| home("HOME").map(|h| h.join(".cache/purelb")))
        .context("no HOME")?;
    let tools = cache.join("tools");
    ensure!(tools.join("bin/grpcurl").exists(), "grpcurl is missing: run `tests/setup.sh docs`");
    ensure!(
        tools.join("python/bin/python").exists(),
        "Python with gRPC is missing: run `tests/setup.sh docs`"
    );
    Ok(tools)
}

#[tokio::test]
async fn the_automation_guide_works_as_written() -> Result<()> {
    let tools = tools()?;
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["lan"]).node("b", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let vips = cluster.won_by("a", &["a", "b"], 2, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    cluster.announced_by("a", &vips).await?;
    let socket = cluster.node("a").dir().join("control.sock");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/automation.md");
    let guide = std::fs::read_to_string(guide)?;
    let ctl = purelbctl()?;
    let programs = [tools.join("bin"), ctl.parent().context("a directory")?.to_owned()];
    let path = std::env::join_paths(
        programs.into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let run = |program: &Path, flag: &str, block: &str| -> Result<String> {
        let out = Command::new(program)
            .args([flag, block])
            .env("PATH", &path)
            .env("PURELB_SOCKET", &socket)
            .output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        ensure!(out.status.success(), "{block}\n{text}\n{}", String::from_utf8_lossy(&out.stderr));
        Ok(text)
    };
    let shell = blocks(&guide, "sh");
    ensure!(shell.len() >= 7, "the guide has examples: {}", shell.len());
    let mut said = String::new();
    for (line, block) in &shell {
        said +=
            &run(Path::new("bash"), "-euc", block).with_context(|| format!("docs/automation.md:{line}"))?;
    }
    for word in [
        "purelb.control.v1.Control",
        "rpc Drain",
        "\"fence\"",
        "\"score\"",
        "DRY_RUN",
        "DRAINED",
        "wasDraining",
        "SERVING",
    ] {
        assert!(said.contains(word), "{word} in\n{said}");
    }
    for vip in &vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    let python = blocks(&guide, "python");
    ensure!(!python.is_empty(), "the guide has a Python example");
    for (line, block) in &python {
        let said = run(&tools.join("python/bin/python"), "-c", block)
            .with_context(|| format!("docs/automation.md:{line}"))?;
        for word in ["has 2 addresses, 2 members are live", "ANNOUNCING", "DRAINED"] {
            assert!(said.contains(word), "{word} in\n{said}");
        }
    }
    Ok(())
}
