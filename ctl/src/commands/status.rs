//! `status`: one screen, and an exit code for scripts.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{OutputFormat, TargetArgs};
use crate::client::daemon_client::{DaemonClient, call_error};
use crate::client::daemon_connection::{DaemonConnection, connect_all};
use crate::error::{CommandError, CommandResult, exit_code};
use crate::output::print_text;
use crate::output::rows::{reason_name, reason_tone};
use crate::output::table::{self, TableCell};
use crate::output::text_painter::{TextPainter, TextTone};

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
    /// Print again whenever something changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    pub node: String,
    pub health: &'static str,
    pub version: String,
    pub instance: String,
    pub uptime_seconds: u64,
    pub fence: FenceStatus,
    pub draining_since: String,
    pub stopping: bool,
    pub unsynced: Vec<String>,
    pub members: u32,
    pub live_members: u32,
    pub held: u32,
    pub advertised_subnets: Vec<String>,
    pub vips_by_reason: std::collections::BTreeMap<String, u32>,
    pub segments: Vec<SegmentStatus>,
    pub problems: Vec<NodeProblem>,
    #[serde(skip)]
    exit: u8,
    #[serde(skip)]
    reasons: Vec<(pb::ReasonCode, u32)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FenceStatus {
    pub healthy: bool,
    pub seconds_left: f64,
    pub cause: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentStatus {
    pub interface: String,
    pub asked: bool,
    pub trouble: String,
    pub cut_off: bool,
    pub unheard_by: String,
    pub interval_seconds: f64,
    pub watched: Vec<WatchedOwner>,
    pub witnesses: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WatchedOwner {
    pub node: String,
    pub asked: String,
    pub state: String,
    pub addresses: u32,
}

impl From<pb::Segment> for SegmentStatus {
    fn from(s: pb::Segment) -> Self {
        let owner = |w: pb::WatchedOwner| WatchedOwner {
            node: w.node,
            asked: w.asked,
            state: w.state,
            addresses: w.addresses,
        };
        Self {
            interface: s.interface,
            asked: s.asked,
            trouble: s.trouble,
            cut_off: s.cut_off,
            unheard_by: s.unheard_by,
            interval_seconds: s.interval_seconds,
            watched: s.watched.into_iter().map(owner).collect(),
            witnesses: s.witnesses,
        }
    }
}

impl SegmentStatus {
    /// Which detector is at work there, and what it finds.
    fn cell(&self) -> TableCell {
        let Self { interface, .. } = self;
        if !self.asked {
            return format!("{interface}: Leases only, {}", self.trouble).into();
        }
        if self.cut_off {
            return TableCell::toned(TextTone::Bad, format!("{interface}: cut off, nobody answers"));
        }
        if !self.unheard_by.is_empty() {
            let words = format!("{interface}: {} does not hear this node", self.unheard_by);
            return TableCell::toned(TextTone::Bad, words);
        }
        let owners: Vec<String> = self.watched.iter().map(|w| format!("{} {}", w.node, w.state)).collect();
        let others = match self.witnesses {
            1 => "1 other host answers".to_owned(),
            n => format!("{n} other hosts answer"),
        };
        if owners.is_empty() {
            return format!("{interface}: nobody to watch, {others}").into();
        }
        let pace = format!("asked every {:.0}ms", self.interval_seconds * 1000.0);
        format!("{interface}: {}; {others}; {pace}", owners.join(", ")).into()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeProblem {
    pub severity: &'static str,
    pub object: String,
    pub field: String,
    pub message: String,
    pub hint: String,
}

fn severity_name(value: pb::Severity) -> (&'static str, u8) {
    match value {
        pb::Severity::Ok => ("ok", 0),
        pb::Severity::Warning => ("warning", exit_code::FAILED),
        pb::Severity::Critical => ("critical", exit_code::CRITICAL),
    }
}

impl From<pb::GetStatusResponse> for NodeStatus {
    fn from(s: pb::GetStatusResponse) -> Self {
        let (health, exit) = severity_name(s.health());
        let fence = s.fence.unwrap_or_default();
        let reasons: Vec<_> = s.vips_by_reason.iter().map(|r| (r.reason(), r.count)).collect();
        Self {
            health,
            exit,
            node: s.node,
            version: s.version,
            instance: s.instance,
            uptime_seconds: s.uptime_seconds,
            fence: FenceStatus {
                healthy: fence.healthy,
                seconds_left: fence.seconds_left,
                cause: fence.cause,
            },
            draining_since: s.draining_since,
            stopping: s.stopping,
            unsynced: s.unsynced,
            members: s.members,
            live_members: s.live_members,
            held: s.held,
            advertised_subnets: s.advertised_subnets,
            vips_by_reason: reasons.iter().map(|(c, n)| (reason_name(*c), *n)).collect(),
            reasons,
            segments: s.segments.into_iter().map(SegmentStatus::from).collect(),
            problems: s
                .problems
                .into_iter()
                .map(|p| NodeProblem {
                    severity: severity_name(p.severity()).0,
                    object: p.object,
                    field: p.field,
                    message: p.message,
                    hint: p.hint,
                })
                .collect(),
        }
    }
}

pub async fn fetch_status(client: &mut DaemonClient) -> CommandResult<NodeStatus> {
    let answer = client.get_status(pb::GetStatusRequest {}).await;
    answer.map(|a| a.into_inner().into()).map_err(|s| call_error(&s).code(exit_code::CRITICAL))
}

pub async fn run(target: &TargetArgs, args: &StatusArgs, paint: TextPainter) -> CommandResult {
    let mut asked = connect_all(target).await.map_err(|f| f.code(exit_code::CRITICAL))?;
    let mut last = String::new();
    loop {
        let (text, exit) = render_all(target, &mut asked, args.output, paint).await?;
        if text != last {
            print_text(&text)?;
        }
        if !args.watch {
            return Ok(exit);
        }
        last = text;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn render_all(
    target: &TargetArgs,
    asked: &mut [DaemonConnection],
    format: OutputFormat,
    paint: TextPainter,
) -> CommandResult<(String, u8)> {
    let (mut found, mut failed): (Vec<NodeStatus>, Vec<(String, CommandError)>) = (Vec::new(), Vec::new());
    for DaemonConnection { node, client } in asked {
        let status = match client {
            Ok(client) => fetch_status(client).await,
            Err(failure) => Err(failure.clone()),
        };
        match status {
            Ok(status) => found.push(status),
            // The one daemon that was asked: its failure is the answer.
            Err(failure) if !target.all => return Err(failure.code(exit_code::CRITICAL)),
            Err(failure) => failed.push((node.clone(), failure)),
        }
    }
    let mut exit = found.iter().map(|s| s.exit).max().unwrap_or(0);
    if !failed.is_empty() {
        exit = exit_code::CRITICAL;
    }
    let text = match (format, found.as_slice()) {
        (OutputFormat::Json, [one]) if !target.all => table::to_json(one)?,
        (OutputFormat::Json, many) => table::to_json(many)?,
        (OutputFormat::Yaml, [one]) if !target.all => table::to_yaml(one)?,
        (OutputFormat::Yaml, many) => table::to_yaml(many)?,
        (OutputFormat::Name, many) => many.iter().map(|s| format!("{} {}\n", s.node, s.health)).collect(),
        (OutputFormat::Table | OutputFormat::Wide, many) => {
            let screens: Vec<String> = many.iter().map(|s| render_screen(s, paint)).collect();
            screens.join("\n")
        }
    };
    let failures: String = failed
        .iter()
        .map(|(node, f)| format!("{} {f}\n", paint.color(TextTone::Bad, &format!("{node}:"))))
        .collect();
    Ok((text + &failures, exit))
}

/// The screen as text, without printing it, so that tests can compare it.
pub fn render_screen(s: &NodeStatus, paint: TextPainter) -> String {
    let mut out = String::new();
    let health = match s.health {
        "ok" => TextTone::Good,
        "warning" => TextTone::Warn,
        _ => TextTone::Bad,
    };
    let mark = paint.color(health, s.health);
    let _ = writeln!(
        out,
        "{}  {mark}  purelbd {}, up {}",
        paint.color(TextTone::Strong, &s.node),
        s.version,
        format_uptime(s.uptime_seconds)
    );
    let mut lines: Vec<Vec<TableCell>> = Vec::new();
    let lease = if s.fence.healthy {
        TableCell::toned(TextTone::Good, format!("renewed, good for {:.1}s", s.fence.seconds_left))
    } else {
        TableCell::toned(TextTone::Bad, format!("fenced: {}", s.fence.cause))
    };
    lines.push(vec!["  Lease".into(), lease]);
    if !s.unsynced.is_empty() {
        lines.push(vec![
            "  Waiting".into(),
            TableCell::toned(TextTone::Warn, format!("for {}", s.unsynced.join(", "))),
        ]);
    }
    if !s.draining_since.is_empty() {
        lines.push(vec![
            "  Drained".into(),
            TableCell::toned(TextTone::Warn, format!("since {}", s.draining_since)),
        ]);
    }
    let members = format!("{} live of {}", s.live_members, s.members);
    lines.push(vec!["  Members".into(), members.into()]);
    let subnets =
        if s.advertised_subnets.is_empty() { "none".into() } else { s.advertised_subnets.join(", ") };
    lines.push(vec!["  Subnets".into(), subnets.into()]);
    for (at, segment) in s.segments.iter().enumerate() {
        let title = if at == 0 { "  Segments" } else { "" };
        lines.push(vec![title.into(), segment.cell()]);
    }
    let total: u32 = s.reasons.iter().map(|(_, n)| n).sum();
    lines.push(vec!["  Addresses".into(), format!("{total}, {} on this node", s.held).into()]);
    out.push_str(&table::align_columns(&lines, &table::column_widths(&lines), paint));
    for (reason, count) in &s.reasons {
        let name = reason_name(*reason);
        let name = reason_tone(*reason).map_or(name.clone(), |tone| paint.color(tone, &name));
        let _ = writeln!(out, "{count:>14}  {name}");
    }
    if !s.problems.is_empty() {
        let _ = writeln!(out, "  Problems");
    }
    for p in &s.problems {
        let tone = if p.severity == "critical" { TextTone::Bad } else { TextTone::Warn };
        let field = if p.field.is_empty() { String::new() } else { format!(" {}", p.field) };
        let _ = writeln!(out, "    {}  {}{field}: {}", paint.color(tone, p.severity), p.object, p.message);
        if !p.hint.is_empty() {
            let _ = writeln!(out, "      -> {}", p.hint);
        }
    }
    out
}

/// `3d 4h`, `5m 6s`: the two largest units.
fn format_uptime(seconds: u64) -> String {
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
