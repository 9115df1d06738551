//! `winner`: which node gets an address, and in which order the others follow.

use std::path::PathBuf;

use clap::Args;
use purelb_proto::control::v1 as pb;

use crate::cli::{OutputFormat, TargetArgs};
use crate::client::daemon_client::call_error;
use crate::client::daemon_connection::connect_one;
use crate::error::CommandResult;
use crate::offline;
use crate::output::election_result::{self, ElectionResult, parse_ip};
use crate::output::text_painter::TextPainter;
use crate::output::{print_notes, print_text};

#[derive(Debug, Args)]
pub struct WinnerArgs {
    /// The addresses
    #[arg(required = true, value_name = "IP")]
    pub ips: Vec<String>,
    /// Work on saved objects (`kubectl get leases -o yaml`, JSON too; - for stdin), with
    /// no daemon and no cluster; all Leases in the files count as live
    #[arg(short, long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
    /// As if this node were gone (may be given several times)
    #[arg(long, value_name = "NODE")]
    pub without: Vec<String>,
}

/// The election among the Leases in files.
pub fn run_offline(args: &WinnerArgs, paint: TextPainter) -> CommandResult {
    let (results, notes) = offline::winner::elect_from_files(args)?;
    print_notes(&notes);
    print_text(&election_result::render(&results, args.output, paint)?)
}

pub async fn run(target: &TargetArgs, args: &WinnerArgs, paint: TextPainter) -> CommandResult {
    for ip in &args.ips {
        parse_ip(ip)?;
    }
    let mut client = connect_one(target).await?;
    let answer =
        client.winner(pb::WinnerRequest { ips: args.ips.clone() }).await.map_err(|s| call_error(&s))?;
    let mut results: Vec<ElectionResult> = answer.into_inner().results.into_iter().map(Into::into).collect();
    for result in &mut results {
        result.order.retain(|place| !args.without.contains(&place.node));
        result.winner = result.order.first().map(|place| place.node.clone());
    }
    print_text(&election_result::render(&results, args.output, paint)?)
}
