//! `drain` and `undrain`, with live progress: a bar on a terminal, lines when piped.

use std::io::{IsTerminal, Write};

use pb::DrainResult as R;
use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{DrainArgs, Format, Target};
use crate::connect::refused;
use crate::error::{Failure, Outcome, code};
use crate::live;
use crate::paint::{Paint, Tone};
use crate::run::say;
use crate::table::{self, Cell, Column, Row, column};

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Address {
    ip: String,
    successor: Option<String>,
    services: Vec<String>,
    reason: String,
}

impl From<&pb::DrainVip> for Address {
    fn from(v: &pb::DrainVip) -> Self {
        Self {
            ip: v.ip.clone(),
            successor: (!v.successor.is_empty()).then(|| v.successor.clone()),
            services: v.services.clone(),
            reason: v.reason.clone(),
        }
    }
}

impl Row for Address {
    fn columns() -> Vec<Column> {
        ["IP", "TO", "SERVICE", "NOW"].map(column).to_vec()
    }

    fn cells(&self) -> Vec<Cell> {
        let to = self.successor.as_ref().map_or_else(|| Cell::toned(Tone::Bad, "(nobody)"), Into::into);
        vec![(&self.ip).into(), to, self.services.join(",").into(), (&self.reason).into()]
    }

    fn name(&self) -> String {
        self.ip.clone()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    result: &'static str,
    message: String,
    total: u32,
    moved: u32,
    remaining: Vec<Address>,
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

pub async fn run(target: &Target, args: &DrainArgs, paint: Paint) -> Outcome {
    let mut client = live::one(target).await?;
    let seconds = u32::try_from(args.timeout.as_secs().max(1)).unwrap_or(u32::MAX);
    let node = target.node.clone().unwrap_or_default();
    let request =
        pb::DrainRequest { dry_run: args.dry_run, force: args.force, timeout_seconds: seconds, node };
    let mut stream = client.drain(request).await.map_err(|s| refused(&s))?.into_inner();
    let mut show = Show::new(args.output, paint);
    let mut interrupted = Box::pin(tokio::signal::ctrl_c());
    loop {
        let next = tokio::select! {
            next = stream.message() => next,
            _ = &mut interrupted => {
                show.end();
                let next = "follow it with `purelbctl drain` again, or take it back with `purelbctl undrain`";
                return Err(Failure::new("interrupted; the drain goes on in the daemon").next(next).code(130));
            }
        };
        let progress = match next {
            Ok(Some(progress)) => progress,
            Ok(None) => {
                show.end();
                return Err(Failure::new("the daemon ended the drain's report without a result")
                    .next("the drain is kept over restarts: see `purelbctl status`, follow it with `purelbctl drain`"));
            }
            Err(status) => {
                show.end();
                return Err(refused(&status)
                    .next("the drain is kept over restarts: follow it with `purelbctl drain` again"));
            }
        };
        if progress.result() == R::Unspecified {
            show.progress(&progress)?;
            continue;
        }
        show.end();
        return finish(&progress, args.output, paint);
    }
}

fn finish(progress: &pb::DrainProgress, format: Format, paint: Paint) -> Outcome {
    let result = progress.result();
    let remaining: Vec<Address> = progress.remaining.iter().map(Into::into).collect();
    let report = Report {
        result: result_name(result),
        message: progress.message.clone(),
        total: progress.total,
        moved: progress.moved,
        remaining: remaining.clone(),
    };
    match format {
        Format::Json => {
            say(&table::json(&report)?)?;
        }
        Format::Yaml => {
            say(&table::yaml(&report)?)?;
        }
        Format::Name => {
            say(&remaining.iter().map(|a| format!("{}\n", a.ip)).collect::<String>())?;
        }
        Format::Table | Format::Wide => {
            let rows = if remaining.is_empty() {
                String::new()
            } else {
                table::list(&remaining, format, true, paint)?
            };
            say(&format!("{rows}{}\n", progress.message))?;
        }
    }
    Ok(match result {
        R::Drained | R::DryRun => 0,
        R::AddressesLeft => {
            hint("`purelbctl drain --force` withdraws them, too; nobody would then answer for them");
            code::LEFT
        }
        R::TimedOut => {
            hint("follow it with `purelbctl drain` again, with a longer --timeout");
            code::FAILED
        }
        _ => code::FAILED,
    })
}

fn hint(text: &str) {
    crate::run::note(&[text.to_owned()]);
}

pub async fn undrain(target: &Target) -> Outcome {
    let asked = live::every(target).await?;
    let mut worst = 0;
    for live::Asked { node, client } in asked {
        let prefix = if node.is_empty() { String::new() } else { format!("{node}: ") };
        let done = match client {
            Ok(mut client) => {
                let node = if target.all { node.clone() } else { target.node.clone().unwrap_or_default() };
                client.undrain(pb::UndrainRequest { node }).await.map_err(|s| refused(&s))
            }
            Err(failure) => Err(failure),
        };
        match done {
            Ok(answer) if answer.get_ref().was_draining => {
                say(&format!("{prefix}undrained: the node takes addresses again\n"))?;
            }
            Ok(_) => {
                say(&format!("{prefix}was not draining\n"))?;
            }
            Err(failure) if node.is_empty() => return Err(failure),
            Err(failure) => {
                crate::run::note(&[format!("{prefix}{failure}")]);
                worst = code::FAILED;
            }
        }
    }
    Ok(worst)
}

/// Progress for people: not part of what `-o json` promises.
struct Show {
    on_terminal: bool,
    lines: bool,
    paint: Paint,
    drawn: bool,
}

const BAR: usize = 30;

impl Show {
    fn new(format: Format, paint: Paint) -> Self {
        let for_people = matches!(format, Format::Table | Format::Wide);
        let on_terminal = for_people && std::io::stderr().is_terminal();
        Self { on_terminal, lines: for_people && !on_terminal, paint, drawn: false }
    }

    fn progress(&mut self, p: &pb::DrainProgress) -> Outcome<()> {
        if self.on_terminal {
            let done = if p.total == 0 { BAR } else { BAR * p.moved as usize / p.total as usize };
            let bar = format!("{}{}", "█".repeat(done), "░".repeat(BAR - done));
            let mut err = std::io::stderr().lock();
            write!(err, "\r\x1b[K{} {}/{} moved", self.paint.put(Tone::Good, &bar), p.moved, p.total)?;
            err.flush()?;
            self.drawn = true;
        } else if self.lines {
            for vip in &p.gone {
                let to = if vip.successor.is_empty() {
                    "withdrawn".to_owned()
                } else {
                    format!("now on {}", vip.successor)
                };
                say(&format!("{} {to}\n", vip.ip))?;
            }
            say(&format!("{}/{} moved\n", p.moved, p.total))?;
        }
        Ok(())
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
