//! Prints explanations, from a daemon or from saved objects alike.

use std::fmt::Write;

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::Format;
use crate::error::Outcome;
use crate::paint::{Paint, Tone};
use crate::table;
use crate::winner::Answer;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    ip: &'a str,
    announced: bool,
    summary: &'a str,
    advice: &'a str,
    steps: Vec<StepView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    election: Option<Answer>,
}

#[derive(Serialize)]
struct StepView<'a> {
    title: &'a str,
    state: &'static str,
    detail: &'a str,
}

fn state(step: &pb::Step) -> &'static str {
    match step.state() {
        pb::StepState::StepOk => "ok",
        pb::StepState::StepWaiting => "waiting",
        pb::StepState::StepFailed => "failed",
        pb::StepState::StepNote => "note",
        pb::StepState::Unspecified => "unknown",
    }
}

fn view(e: &pb::Explanation) -> View<'_> {
    let steps = e.steps.iter();
    View {
        ip: &e.ip,
        announced: e.announced,
        summary: &e.summary,
        advice: &e.advice,
        steps: steps.map(|s| StepView { title: &s.title, state: state(s), detail: &s.detail }).collect(),
        election: e.election.clone().map(Answer::from),
    }
}

pub fn print(explanations: &[pb::Explanation], format: Format, paint: Paint) -> Outcome<String> {
    let views: Vec<View<'_>> = explanations.iter().map(view).collect();
    Ok(match format {
        Format::Json => table::json(&views)?,
        Format::Yaml => table::yaml(&views)?,
        Format::Name => views
            .iter()
            .map(|v| format!("{} {}\n", v.ip, if v.announced { "announced" } else { "not-announced" }))
            .collect(),
        Format::Table | Format::Wide => {
            let texts: Vec<String> =
                explanations.iter().map(|e| text(e, format == Format::Wide, paint)).collect();
            texts.join("\n")
        }
    })
}

fn text(e: &pb::Explanation, with_order: bool, paint: Paint) -> String {
    let mut out = String::new();
    let ip = if e.ip.is_empty() { "(no address)" } else { &e.ip };
    let tone = if e.announced { Tone::Good } else { Tone::Bad };
    let _ = writeln!(out, "{}: {}", paint.put(Tone::Strong, ip), paint.put(tone, &e.summary));
    let width = e.steps.iter().map(|s| s.title.len()).max().unwrap_or(0);
    for step in &e.steps {
        let (mark, tone) = match step.state() {
            pb::StepState::StepOk => ("ok  ", Tone::Good),
            pb::StepState::StepWaiting => ("wait", Tone::Warn),
            pb::StepState::StepFailed => ("FAIL", Tone::Bad),
            pb::StepState::StepNote => ("note", Tone::Dim),
            pb::StepState::Unspecified => ("  ? ", Tone::Dim),
        };
        let _ = writeln!(out, "  {}  {:width$}  {}", paint.put(tone, mark), step.title, step.detail);
    }
    if with_order && let Some(election) = &e.election {
        for (i, c) in election.order.iter().enumerate() {
            let _ = writeln!(out, "        {}. {}  {}", i + 1, c.node, c.score);
        }
    }
    if !e.advice.is_empty() {
        let _ = writeln!(out, "  -> {}", paint.put(Tone::Strong, &e.advice));
    }
    out
}
