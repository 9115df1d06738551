//! The daemon's settings, described by the sample file and with the defaults of the code.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use purelbd::config::{Config, keys};
use serde_json::Value;

use super::{cell, note};

/// The settings are described once, here.
pub const SAMPLE: &str = "packaging/etc/purelbd.toml";

struct Setting {
    key: String,
    about: String,
    live: bool,
}

pub fn markdown(sample: &str) -> Result<String> {
    let described = settings(sample);
    for key in keys() {
        ensure!(described.iter().any(|s| s.key == key), "{SAMPLE} does not describe {key}");
    }
    let defaults = serde_json::to_value(Config::default())?;
    let mut out = format!(
        "# Settings of purelbd\n\n{}\n`/etc/purelb/purelbd.toml`, then `/etc/purelb/purelbd.d/*.toml` in order of their names, then the \
         environment, then flags: the last word wins. An unknown key in a file is refused, with the file. An unknown variable \
         `PURELB_…` is a warning. `purelbd --check-config` says what is wrong.\n\nAs a flag, each is `--set section.key=value`. \
         Lists are written with commas in variables and flags. Times are written `500ms`, `10s`, `2m`.\n\nlive: taken over by `systemctl \
         reload purelbd`. All others need `systemctl restart purelbd`, which moves no address.\n",
        note(&format!("`{SAMPLE}` and the defaults in `daemon/src/config`"))
    );
    let mut section = "";
    for setting in &described {
        let (of, name) = setting.key.split_once('.').context("a section and a key")?;
        if of != section {
            section = of;
            let _ = write!(out, "\n## {section}\n\n| key | default | variable | |\n|---|---|---|---|\n");
        }
        let default = shown(&defaults[of][name]);
        let variable = format!("PURELB_{}_{}", of.to_uppercase(), name.to_uppercase());
        let live = if setting.live { " **live**" } else { "" };
        let _ = writeln!(
            out,
            "| `{}` | {default} | `{variable}` | {}{live} |",
            setting.key,
            cell(&setting.about)
        );
    }
    out.push_str(
        "\nNames that the existing product uses are understood as well: `PURELB_RENEW_DEADLINE`, `PURELB_RETRY_PERIOD`, and \
         `DEFAULT_ANNOUNCER` (`PureLB`: Services without a class are ours; anything else: they are not).\n",
    );
    Ok(out)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Array(list) => list.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => format!("`{other}`"),
    }
}

/// Keys in their order, each with the comment above it. Keys right below each other share one.
fn settings(sample: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    let (mut section, mut about, mut fresh) = (String::new(), String::new(), false);
    for line in sample.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.to_owned();
            about.clear();
        } else if let Some(key) = key_of(line).filter(|_| !section.is_empty()) {
            fresh = false;
            let live = about.contains("[live]");
            let text = about.replace("[live]", "").trim().to_owned();
            found.push(Setting { key: format!("{section}.{key}"), about: text, live });
        } else if let Some(comment) = line.strip_prefix("# ") {
            if !fresh {
                about.clear();
            }
            fresh = true;
            about.push_str(comment);
            about.push(' ');
        }
    }
    found
}

/// `#key = value`, or without the `#`.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix('#').unwrap_or(line).split_once(" = ")?;
    key.chars().all(|c| c.is_ascii_lowercase() || c == '_').then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_belongs_to_the_keys_below_it() {
        let found = settings("# top\n\n[a]\n# One\n# more. [live]\n#x = 1\n#y = 2\n# Other.\n#z = 3\n");
        let found: Vec<_> = found.iter().map(|s| (s.key.as_str(), s.about.as_str(), s.live)).collect();
        assert_eq!(found, [("a.x", "One more.", true), ("a.y", "One more.", true), ("a.z", "Other.", false)]);
    }
}
