//! `version`: of this program, and of the daemon.

use clap::Args;
use serde::Serialize;

use crate::cli::{OutputFormat, TargetArgs};
use crate::client::daemon_connection::connect_one;
use crate::commands::status;
use crate::error::CommandResult;
use crate::output::{print_text, table};

#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Only this program's
    #[arg(long)]
    pub client: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

#[derive(Serialize)]
struct Versions {
    client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<String>,
}

/// The version of this program alone, without asking a daemon.
pub fn client_version(args: &VersionArgs) -> CommandResult<String> {
    let client = env!("CARGO_PKG_VERSION");
    match args.output {
        OutputFormat::Json => table::to_json(&serde_json::json!({"client": client})),
        OutputFormat::Yaml => table::to_yaml(&serde_json::json!({"client": client})),
        _ => Ok(format!("purelbctl {client}\n")),
    }
}

/// A daemon that does not answer is printed as unknown; the command still succeeds.
pub async fn run(target: &TargetArgs, args: &VersionArgs) -> CommandResult {
    let daemon = match connect_one(target).await {
        Ok(mut client) => status::fetch_status(&mut client).await.map(|s| s.version),
        Err(failure) => Err(failure),
    };
    let client = env!("CARGO_PKG_VERSION");
    let versions = Versions { client, daemon: daemon.as_ref().ok().cloned() };
    print_text(&match args.output {
        OutputFormat::Json => table::to_json(&versions)?,
        OutputFormat::Yaml => table::to_yaml(&versions)?,
        _ => match daemon {
            Ok(daemon) => format!("purelbctl {client}\npurelbd {daemon}\n"),
            Err(failure) => format!("purelbctl {client}\npurelbd (unknown: {})\n", failure.what),
        },
    })
}
