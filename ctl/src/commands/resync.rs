//! `resync`: has daemons list everything anew, and reports what that changed.

use std::fmt::Write;

use clap::Args;
use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{OutputFormat, TargetArgs};
use crate::client::daemon_client::call_error;
use crate::client::daemon_connection::{DaemonConnection, connect_all};
use crate::error::{CommandResult, exit_code};
use crate::output::table;
use crate::output::{print_notes, print_text};

#[derive(Debug, Args)]
pub struct ResyncArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

#[derive(Serialize)]
struct ResyncReport {
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    added: Vec<String>,
    withdrawn: Vec<String>,
    changed: Vec<String>,
    announced: u32,
    settled: bool,
}

pub async fn run(target: &TargetArgs, args: &ResyncArgs) -> CommandResult {
    let (mut done, mut worst) = (Vec::new(), 0);
    for DaemonConnection { node, client } in connect_all(target).await? {
        let answer = match client {
            Ok(mut client) => {
                // Empty for a daemon that was reached in another way than by its node's name.
                let node = if target.all { node.clone() } else { target.node.clone().unwrap_or_default() };
                client.resync(pb::ResyncRequest { node }).await.map_err(|s| call_error(&s))
            }
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) => {
                let a = answer.into_inner();
                let (added, withdrawn, changed) = (a.added, a.withdrawn, a.changed);
                done.push(ResyncReport {
                    node,
                    added,
                    withdrawn,
                    changed,
                    announced: a.announced,
                    settled: a.settled,
                });
            }
            Err(failure) if node.is_empty() => return Err(failure),
            Err(failure) => {
                print_notes(&[format!("{node}: {failure}")]);
                worst = exit_code::FAILED;
            }
        }
    }
    print_text(&match (args.output, done.as_slice()) {
        (OutputFormat::Json, [one]) if !target.all => table::to_json(one)?,
        (OutputFormat::Json, many) => table::to_json(many)?,
        (OutputFormat::Yaml, [one]) if !target.all => table::to_yaml(one)?,
        (OutputFormat::Yaml, many) => table::to_yaml(many)?,
        (_, many) => many.iter().map(render_report).collect(),
    })?;
    Ok(worst)
}

fn render_report(r: &ResyncReport) -> String {
    let mut out = String::new();
    let prefix = if r.node.is_empty() { String::new() } else { format!("{}: ", r.node) };
    for change in &r.changed {
        let _ = writeln!(out, "{prefix}{change}");
    }
    let nothing = r.added.is_empty() && r.withdrawn.is_empty() && r.changed.is_empty();
    let changed = if nothing {
        "nothing had to change".to_owned()
    } else {
        format!(
            "{} added, {} withdrawn, {} with another reason",
            r.added.len(),
            r.withdrawn.len(),
            r.changed.len()
        )
    };
    let more = if r.settled { "" } else { "; more changes are coming in" };
    let _ = writeln!(
        out,
        "{prefix}listed and compared anew: {changed}; {} announcements sent{more}",
        r.announced
    );
    out
}
