//! `status`: one screen, and an exit code for scripts.

use std::fmt::Write;
use std::time::Duration;

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{Format, StatusArgs, Target};
use crate::connect::{Client, refused};
use crate::error::{Failure, Outcome, code};
use crate::live::{self, Asked};
use crate::paint::{Paint, Tone};
use crate::rows::{reason_name, reason_tone};
use crate::run::say;
use crate::table::{self, Cell};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub node: String,
    pub health: &'static str,
    pub version: String,
    pub instance: String,
    pub uptime_seconds: u64,
    pub fence: Fence,
    pub draining_since: String,
    pub stopping: bool,
    pub unsynced: Vec<String>,
    pub members: u32,
    pub live_members: u32,
    pub held: u32,
    pub advertised_subnets: Vec<String>,
    pub vips_by_reason: std::collections::BTreeMap<String, u32>,
    pub problems: Vec<Problem>,
    #[serde(skip)]
    exit: u8,
    #[serde(skip)]
    reasons: Vec<(pb::ReasonCode, u32)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    pub healthy: bool,
    pub seconds_left: f64,
    pub cause: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    pub severity: &'static str,
    pub object: String,
    pub field: String,
    pub message: String,
    pub hint: String,
}

fn severity(value: pb::Severity) -> (&'static str, u8) {
    match value {
        pb::Severity::Ok => ("ok", 0),
        pb::Severity::Warning => ("warning", code::FAILED),
        pb::Severity::Critical => ("critical", code::CRITICAL),
    }
}

impl From<pb::GetStatusResponse> for Status {
    fn from(s: pb::GetStatusResponse) -> Self {
        let (health, exit) = severity(s.health());
        let fence = s.fence.unwrap_or_default();
        let reasons: Vec<_> = s.vips_by_reason.iter().map(|r| (r.reason(), r.count)).collect();
        Self {
            health,
            exit,
            node: s.node,
            version: s.version,
            instance: s.instance,
            uptime_seconds: s.uptime_seconds,
            fence: Fence { healthy: fence.healthy, seconds_left: fence.seconds_left, cause: fence.cause },
            draining_since: s.draining_since,
            stopping: s.stopping,
            unsynced: s.unsynced,
            members: s.members,
            live_members: s.live_members,
            held: s.held,
            advertised_subnets: s.advertised_subnets,
            vips_by_reason: reasons.iter().map(|(c, n)| (reason_name(*c), *n)).collect(),
            reasons,
            problems: s
                .problems
                .into_iter()
                .map(|p| Problem {
                    severity: severity(p.severity()).0,
                    object: p.object,
                    field: p.field,
                    message: p.message,
                    hint: p.hint,
                })
                .collect(),
        }
    }
}

pub async fn ask(client: &mut Client) -> Outcome<Status> {
    let answer = client.get_status(pb::GetStatusRequest {}).await;
    answer.map(|a| a.into_inner().into()).map_err(|s| refused(&s).code(code::CRITICAL))
}

pub async fn run(target: &Target, args: &StatusArgs, paint: Paint) -> Outcome {
    let mut asked = live::every(target).await.map_err(|f| f.code(code::CRITICAL))?;
    let mut last = String::new();
    loop {
        let (text, exit) = look(target, &mut asked, args.output, paint).await?;
        if text != last {
            say(&text)?;
        }
        if !args.watch {
            return Ok(exit);
        }
        last = text;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn look(target: &Target, asked: &mut [Asked], format: Format, paint: Paint) -> Outcome<(String, u8)> {
    let (mut found, mut failed): (Vec<Status>, Vec<(String, Failure)>) = (Vec::new(), Vec::new());
    for Asked { node, client } in asked {
        let status = match client {
            Ok(client) => ask(client).await,
            Err(failure) => Err(failure.clone()),
        };
        match status {
            Ok(status) => found.push(status),
            // The one daemon that was asked: its failure is the answer.
            Err(failure) if !target.all => return Err(failure.code(code::CRITICAL)),
            Err(failure) => failed.push((node.clone(), failure)),
        }
    }
    let mut exit = found.iter().map(|s| s.exit).max().unwrap_or(0);
    if !failed.is_empty() {
        exit = code::CRITICAL;
    }
    let text = match (format, found.as_slice()) {
        (Format::Json, [one]) if !target.all => table::json(one)?,
        (Format::Json, many) => table::json(many)?,
        (Format::Yaml, [one]) if !target.all => table::yaml(one)?,
        (Format::Yaml, many) => table::yaml(many)?,
        (Format::Name, many) => many.iter().map(|s| format!("{} {}\n", s.node, s.health)).collect(),
        (Format::Table | Format::Wide, many) => {
            let screens: Vec<String> = many.iter().map(|s| screen(s, paint)).collect();
            screens.join("\n")
        }
    };
    let failures: String = failed
        .iter()
        .map(|(node, f)| format!("{} {f}\n", paint.put(Tone::Bad, &format!("{node}:"))))
        .collect();
    Ok((text + &failures, exit))
}

/// Pure, so that its look can be tested.
pub fn screen(s: &Status, paint: Paint) -> String {
    let mut out = String::new();
    let health = match s.health {
        "ok" => Tone::Good,
        "warning" => Tone::Warn,
        _ => Tone::Bad,
    };
    let mark = paint.put(health, s.health);
    let _ = writeln!(
        out,
        "{}  {mark}  purelbd {}, up {}",
        paint.put(Tone::Strong, &s.node),
        s.version,
        span(s.uptime_seconds)
    );
    let mut lines: Vec<Vec<Cell>> = Vec::new();
    let lease = if s.fence.healthy {
        Cell::toned(Tone::Good, format!("renewed, good for {:.1}s", s.fence.seconds_left))
    } else {
        Cell::toned(Tone::Bad, format!("fenced: {}", s.fence.cause))
    };
    lines.push(vec!["  Lease".into(), lease]);
    if !s.unsynced.is_empty() {
        lines.push(vec![
            "  Waiting".into(),
            Cell::toned(Tone::Warn, format!("for {}", s.unsynced.join(", "))),
        ]);
    }
    if !s.draining_since.is_empty() {
        lines.push(vec!["  Drained".into(), Cell::toned(Tone::Warn, format!("since {}", s.draining_since))]);
    }
    let members = format!("{} live of {}", s.live_members, s.members);
    lines.push(vec!["  Members".into(), members.into()]);
    let subnets =
        if s.advertised_subnets.is_empty() { "none".into() } else { s.advertised_subnets.join(", ") };
    lines.push(vec!["  Subnets".into(), subnets.into()]);
    let total: u32 = s.reasons.iter().map(|(_, n)| n).sum();
    lines.push(vec!["  Addresses".into(), format!("{total}, {} on this node", s.held).into()]);
    out.push_str(&table::align(&lines, &table::widths(&lines), paint));
    for (reason, count) in &s.reasons {
        let name = reason_name(*reason);
        let name = reason_tone(*reason).map_or(name.clone(), |tone| paint.put(tone, &name));
        let _ = writeln!(out, "{count:>14}  {name}");
    }
    if !s.problems.is_empty() {
        let _ = writeln!(out, "  Problems");
    }
    for p in &s.problems {
        let tone = if p.severity == "critical" { Tone::Bad } else { Tone::Warn };
        let field = if p.field.is_empty() { String::new() } else { format!(" {}", p.field) };
        let _ = writeln!(out, "    {}  {}{field}: {}", paint.put(tone, p.severity), p.object, p.message);
        if !p.hint.is_empty() {
            let _ = writeln!(out, "      -> {}", p.hint);
        }
    }
    out
}

/// `3d 4h`, `5m 6s`: the two largest units.
pub fn span(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (name, size) in units {
        if rest >= size || (name == "s" && parts.is_empty()) {
            parts.push(format!("{}{name}", rest / size));
            rest %= size;
        }
    }
    parts.truncate(2);
    parts.join(" ")
}
