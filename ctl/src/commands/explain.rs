//! `explain`: every step from Service to packet, from a daemon or from saved objects.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{OutputFormat, TargetArgs};
use crate::client::daemon_client::call_error;
use crate::client::daemon_connection::{DaemonConnection, connect_all};
use crate::error::{CommandError, CommandResult, exit_code};
use crate::offline;
use crate::output::election_result::{ElectionResult, parse_ip};
use crate::output::table;
use crate::output::text_painter::{TextPainter, TextTone};
use crate::output::{print_notes, print_text};

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// An address, or a Service as NAMESPACE/NAME
    #[arg(value_name = "IP|NS/SVC")]
    pub target: String,
    /// Work on saved objects, with no daemon and no cluster
    #[arg(short, long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

/// What the objects in files say.
pub fn run_offline(args: &ExplainArgs, paint: TextPainter) -> CommandResult {
    let explanations = offline::explain::explain_from_files(args)?;
    print_text(&render(&explanations, args.output, paint)?)
}

pub async fn run(target: &TargetArgs, args: &ExplainArgs, paint: TextPainter) -> CommandResult {
    use pb::explain_request::Target as T;
    let what = match (parse_ip(&args.target), args.target.contains('/')) {
        (Ok(vip), _) => T::Ip(vip.to_string()),
        (Err(_), true) => T::Service(args.target.clone()),
        (Err(_), false) => {
            let what = format!("{:?} is neither an address nor a Service", args.target);
            return Err(CommandError::new(what).next("write an IP address, or NAMESPACE/NAME of a Service"));
        }
    };
    let mut worst = 0;
    for DaemonConnection { node, client } in connect_all(target).await? {
        let request = pb::ExplainRequest { target: Some(what.clone()) };
        let answer = match client {
            Ok(mut client) => client.explain(request).await.map_err(|s| call_error(&s)),
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) => {
                if !node.is_empty() && matches!(args.output, OutputFormat::Table | OutputFormat::Wide) {
                    print_text(&format!("== {node}\n"))?;
                }
                print_text(&render(&answer.into_inner().explanations, args.output, paint)?)?;
            }
            Err(failure) if node.is_empty() => return Err(failure),
            Err(failure) => {
                print_notes(&[format!("{node}: {failure}")]);
                worst = exit_code::FAILED;
            }
        }
    }
    Ok(worst)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplanationView<'a> {
    ip: &'a str,
    announced: bool,
    summary: &'a str,
    advice: &'a str,
    steps: Vec<StepView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    election: Option<ElectionResult>,
}

#[derive(Serialize)]
struct StepView<'a> {
    title: &'a str,
    state: &'static str,
    detail: &'a str,
}

fn state_name(step: &pb::Step) -> &'static str {
    match step.state() {
        pb::StepState::StepOk => "ok",
        pb::StepState::StepWaiting => "waiting",
        pb::StepState::StepFailed => "failed",
        pb::StepState::StepNote => "note",
        pb::StepState::Unspecified => "unknown",
    }
}

fn view(e: &pb::Explanation) -> ExplanationView<'_> {
    let steps = e.steps.iter();
    ExplanationView {
        ip: &e.ip,
        announced: e.announced,
        summary: &e.summary,
        advice: &e.advice,
        steps: steps.map(|s| StepView { title: &s.title, state: state_name(s), detail: &s.detail }).collect(),
        election: e.election.clone().map(ElectionResult::from),
    }
}

pub fn render(
    explanations: &[pb::Explanation],
    format: OutputFormat,
    paint: TextPainter,
) -> CommandResult<String> {
    let views: Vec<ExplanationView<'_>> = explanations.iter().map(view).collect();
    Ok(match format {
        OutputFormat::Json => table::to_json(&views)?,
        OutputFormat::Yaml => table::to_yaml(&views)?,
        OutputFormat::Name => views
            .iter()
            .map(|v| format!("{} {}\n", v.ip, if v.announced { "announced" } else { "not-announced" }))
            .collect(),
        OutputFormat::Table | OutputFormat::Wide => {
            let texts: Vec<String> =
                explanations.iter().map(|e| render_text(e, format == OutputFormat::Wide, paint)).collect();
            texts.join("\n")
        }
    })
}

fn render_text(e: &pb::Explanation, with_order: bool, paint: TextPainter) -> String {
    let mut out = String::new();
    let ip = if e.ip.is_empty() { "(no address)" } else { &e.ip };
    let tone = if e.announced { TextTone::Good } else { TextTone::Bad };
    let _ = writeln!(out, "{}: {}", paint.color(TextTone::Strong, ip), paint.color(tone, &e.summary));
    let width = e.steps.iter().map(|s| s.title.len()).max().unwrap_or(0);
    for step in &e.steps {
        let (mark, tone) = match step.state() {
            pb::StepState::StepOk => ("ok  ", TextTone::Good),
            pb::StepState::StepWaiting => ("wait", TextTone::Warn),
            pb::StepState::StepFailed => ("FAIL", TextTone::Bad),
            pb::StepState::StepNote => ("note", TextTone::Dim),
            pb::StepState::Unspecified => ("  ? ", TextTone::Dim),
        };
        let _ = writeln!(out, "  {}  {:width$}  {}", paint.color(tone, mark), step.title, step.detail);
    }
    if with_order && let Some(election) = &e.election {
        for (i, c) in election.order.iter().enumerate() {
            let _ = writeln!(out, "        {}. {}  {}", i + 1, c.node, c.score);
        }
    }
    if !e.advice.is_empty() {
        let _ = writeln!(out, "  -> {}", paint.color(TextTone::Strong, &e.advice));
    }
    out
}
