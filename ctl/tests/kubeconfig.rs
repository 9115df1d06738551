//! Kubeconfigs as kubectl takes them: several files in one variable, and a context by name.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use purelb_kit::embedded::EmbeddedApi;

/// What it said on both, and its exit code.
async fn validate(kubeconfig: &str, arguments: &[&str]) -> Result<(String, i32)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purelbctl"));
    command
        .args(["validate", "--cluster"])
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said = [output.stdout, output.stderr].concat();
    Ok((String::from_utf8(said)?, output.status.code().context("an exit code")?))
}

fn put(directory: &Path, name: &str, text: &str) -> Result<String> {
    let path = directory.join(name);
    std::fs::write(&path, text)?;
    Ok(path.to_str().context("a path")?.to_owned())
}

#[tokio::test]
async fn files_are_merged_and_contexts_chosen() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let dir = tempfile::tempdir()?;
    let head = "apiVersion: v1\nkind: Config\n";
    let clusters = format!(
        "{head}clusters:\n- name: here\n  cluster: {{server: \"{}\"}}\n- name: nowhere\n  cluster: {{server: \"http://127.0.0.1:1\"}}\n",
        api.url()
    );
    let contexts = format!(
        "{head}current-context: wrong\nusers:\n- name: olga\n  user: {{token: admin}}\ncontexts:\n\
         - name: wrong\n  context: {{cluster: nowhere, user: olga}}\n- name: right\n  context: {{cluster: here, user: olga}}\n"
    );
    let (one, two) = (put(dir.path(), "one", &clusters)?, put(dir.path(), "two", &contexts)?);
    let missing = dir.path().join("missing").display().to_string();
    let list = format!("{one}:{missing}:{two}");

    let (said, code) = validate(&list, &["--context", "right"]).await?;
    assert!(said.contains("there is no ServiceGroup"), "the cluster answers, and has none ({code}): {said}");
    let (said, code) = validate(&list, &[]).await?;
    assert!(code != 0 && said.contains("cannot be reached"), "the current context leads nowhere: {said}");
    let (said, code) = validate(&list, &["--context", "rght"]).await?;
    assert!(code != 0 && said.contains("did you mean right?"), "{said}");
    let (said, code) = validate(&format!("{missing}:{missing}"), &[]).await?;
    assert!(code != 0 && said.contains("none of these files"), "{said}");
    // A file of that very name, colon and all.
    let whole = put(dir.path(), "a:b", &format!("{clusters}{}", contexts.trim_start_matches(head)))?;
    let (said, _) = validate(&whole, &["--context", "right"]).await?;
    assert!(said.contains("there is no ServiceGroup"), "{said}");
    Ok(())
}

/// Hints name what the package installs.
#[test]
fn hints_name_the_installed_manifests() {
    let stage = include_str!("../../packaging/stage.sh");
    let installed = purelbctl::client::cluster::MANIFEST_DIRECTORY.trim_start_matches('/');
    assert!(stage.contains(&format!("$root/{installed}/$file")), "{installed}");
}
