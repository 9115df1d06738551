//! `drain`, with live progress: a bar on a terminal, lines when piped.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use pb::DrainResult as R;
use purelb_core::durations;
use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{OutputFormat, TargetArgs};
use crate::client::daemon_client::call_error;
use crate::client::daemon_connection::connect_one;
use crate::error::{CommandError, CommandResult, exit_code};
use crate::output::table::{self, TableCell, TableColumn, TableRow, column};
use crate::output::text_painter::{TextPainter, TextTone};
use crate::output::{print_notes, print_text};

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node, as with --node; without it, this machine
    #[arg(value_name = "NODE")]
    pub name: Option<String>,
    /// Only print who would take each address
    #[arg(long)]
    pub dry_run: bool,
    /// Wait this long; the drain itself goes on after that
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = durations::parse)]
    pub timeout: Duration,
    /// Withdraw also addresses that no other node can take
    #[arg(long)]
    pub force: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct DrainAddress {
    ip: String,
    successor: Option<String>,
    services: Vec<String>,
    reason: String,
}

impl From<&pb::DrainVip> for DrainAddress {
    fn from(v: &pb::DrainVip) -> Self {
        Self {
            ip: v.ip.clone(),
            successor: (!v.successor.is_empty()).then(|| v.successor.clone()),
            services: v.services.clone(),
            reason: v.reason.clone(),
        }
    }
}

impl TableRow for DrainAddress {
    fn columns() -> Vec<TableColumn> {
        ["IP", "TO", "SERVICE", "NOW"].map(column).to_vec()
    }

    fn cells(&self) -> Vec<TableCell> {
        let to =
            self.successor.as_ref().map_or_else(|| TableCell::toned(TextTone::Bad, "(nobody)"), Into::into);
        vec![(&self.ip).into(), to, self.services.join(",").into(), (&self.reason).into()]
    }

    fn name(&self) -> String {
        self.ip.clone()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DrainReport {
    result: &'static str,
    message: String,
    total: u32,
    moved: u32,
    remaining: Vec<DrainAddress>,
}

fn result_name(result: R) -> &'static str {
    match result {
        R::Unspecified => "running",
        R::Drained => "drained",
        R::AddressesLeft => "addresses-left",
        R::TimedOut => "timed-out",
        R::Undrained => "undrained",
        R::DryRun => "dry-run",
        R::DaemonStopping => "daemon-stopping",
    }
}

pub async fn run(target: &TargetArgs, args: &DrainArgs, paint: TextPainter) -> CommandResult {
    let mut client = connect_one(target).await?;
    let seconds = u32::try_from(args.timeout.as_secs().max(1)).unwrap_or(u32::MAX);
    let node = target.node.clone().unwrap_or_default();
    let request =
        pb::DrainRequest { dry_run: args.dry_run, force: args.force, timeout_seconds: seconds, node };
    let mut stream = client.drain(request).await.map_err(|s| call_error(&s))?.into_inner();
    let mut display = ProgressDisplay::new(args.output, paint);
    let mut interrupted = Box::pin(tokio::signal::ctrl_c());
    loop {
        let next = tokio::select! {
            next = stream.message() => next,
            _ = &mut interrupted => {
                display.clear();
                let next = "follow it with `purelbctl drain` again, or take it back with `purelbctl undrain`";
                return Err(CommandError::new("interrupted; the drain goes on in the daemon").next(next).code(130));
            }
        };
        let progress = match next {
            Ok(Some(progress)) => progress,
            Ok(None) => {
                display.clear();
                return Err(CommandError::new("the daemon ended the drain's report without a result")
                    .next("the drain is kept over restarts: see `purelbctl status`, follow it with `purelbctl drain`"));
            }
            Err(status) => {
                display.clear();
                return Err(call_error(&status)
                    .next("the drain is kept over restarts: follow it with `purelbctl drain` again"));
            }
        };
        if progress.result() == R::Unspecified {
            display.show_progress(&progress)?;
            continue;
        }
        display.clear();
        return report_result(&progress, args.output, paint);
    }
}

fn report_result(progress: &pb::DrainProgress, format: OutputFormat, paint: TextPainter) -> CommandResult {
    let result = progress.result();
    let remaining: Vec<DrainAddress> = progress.remaining.iter().map(Into::into).collect();
    let report = DrainReport {
        result: result_name(result),
        message: progress.message.clone(),
        total: progress.total,
        moved: progress.moved,
        remaining: remaining.clone(),
    };
    match format {
        OutputFormat::Json => {
            print_text(&table::to_json(&report)?)?;
        }
        OutputFormat::Yaml => {
            print_text(&table::to_yaml(&report)?)?;
        }
        OutputFormat::Name => {
            print_text(&remaining.iter().map(|a| format!("{}\n", a.ip)).collect::<String>())?;
        }
        OutputFormat::Table | OutputFormat::Wide => {
            let rows = if remaining.is_empty() {
                String::new()
            } else {
                table::render_list(&remaining, format, true, paint)?
            };
            print_text(&format!("{rows}{}\n", progress.message))?;
        }
    }
    Ok(match result {
        R::Drained | R::DryRun => 0,
        R::AddressesLeft => {
            print_hint("`purelbctl drain --force` withdraws them, too; nobody would then answer for them");
            exit_code::INCOMPLETE
        }
        R::TimedOut => {
            print_hint("follow it with `purelbctl drain` again, with a longer --timeout");
            exit_code::FAILED
        }
        _ => exit_code::FAILED,
    })
}

fn print_hint(text: &str) {
    print_notes(&[text.to_owned()]);
}

/// Progress for people: not part of what `-o json` promises.
struct ProgressDisplay {
    on_terminal: bool,
    lines: bool,
    paint: TextPainter,
    drawn: bool,
}

const BAR_WIDTH: usize = 30;

impl ProgressDisplay {
    fn new(format: OutputFormat, paint: TextPainter) -> Self {
        let for_people = matches!(format, OutputFormat::Table | OutputFormat::Wide);
        let on_terminal = for_people && std::io::stderr().is_terminal();
        Self { on_terminal, lines: for_people && !on_terminal, paint, drawn: false }
    }

    fn show_progress(&mut self, p: &pb::DrainProgress) -> CommandResult<()> {
        if self.on_terminal {
            let done = if p.total == 0 { BAR_WIDTH } else { BAR_WIDTH * p.moved as usize / p.total as usize };
            let bar = format!("{}{}", "█".repeat(done), "░".repeat(BAR_WIDTH - done));
            let mut err = std::io::stderr().lock();
            write!(err, "\r\x1b[K{} {}/{} moved", self.paint.color(TextTone::Good, &bar), p.moved, p.total)?;
            err.flush()?;
            self.drawn = true;
        } else if self.lines {
            for vip in &p.gone {
                let to = if vip.successor.is_empty() {
                    "withdrawn".to_owned()
                } else {
                    format!("now on {}", vip.successor)
                };
                print_text(&format!("{} {to}\n", vip.ip))?;
            }
            print_text(&format!("{}/{} moved\n", p.moved, p.total))?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
