//! The order in which nodes come for an address, as `winner` and `explain` print it.

use purelb_core::Vip;
use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::error::{CommandError, CommandResult, exit_code};
use crate::output::table::{self, TableCell};
use crate::output::text_painter::{TextPainter, TextTone};

/// Who wins one address, and who follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ElectionResult {
    pub ip: String,
    pub winner: Option<String>,
    pub order: Vec<RankedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankedNode {
    pub node: String,
    pub score: String,
    /// Preferred nodes come first; the rest only stands in for them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    #[serde(rename = "ranksLast", skip_serializing_if = "std::ops::Not::not")]
    pub ranks_last: bool,
}

impl From<pb::Election> for ElectionResult {
    fn from(e: pb::Election) -> Self {
        let order = e.order.into_iter();
        Self {
            ip: e.ip,
            winner: (!e.winner.is_empty()).then_some(e.winner),
            order: order
                .map(|c| RankedNode {
                    node: c.node,
                    score: c.score,
                    fallback: c.fallback,
                    ranks_last: c.ranks_last,
                })
                .collect(),
        }
    }
}

impl From<ElectionResult> for pb::Election {
    fn from(a: ElectionResult) -> Self {
        let order = a.order.into_iter();
        Self {
            ip: a.ip,
            winner: a.winner.unwrap_or_default(),
            order: order
                .map(|p| pb::Candidate {
                    node: p.node,
                    score: p.score,
                    fallback: p.fallback,
                    ranks_last: p.ranks_last,
                })
                .collect(),
        }
    }
}

pub fn parse_ip(text: &str) -> CommandResult<Vip> {
    text.parse().map_err(|e| CommandError::new(e).code(exit_code::CRITICAL))
}

/// One address gives one object, several give a list.
pub fn render(results: &[ElectionResult], format: OutputFormat, paint: TextPainter) -> CommandResult<String> {
    Ok(match (format, results) {
        (OutputFormat::Json, [one]) => table::to_json(one)?,
        (OutputFormat::Json, many) => table::to_json(many)?,
        (OutputFormat::Yaml, [one]) => table::to_yaml(one)?,
        (OutputFormat::Yaml, many) => table::to_yaml(many)?,
        (OutputFormat::Name, many) => {
            many.iter().map(|a| format!("{}\n", a.winner.as_deref().unwrap_or("-"))).collect()
        }
        (OutputFormat::Table | OutputFormat::Wide, many) => {
            render_table(many, format == OutputFormat::Wide, paint)
        }
    })
}

fn render_table(results: &[ElectionResult], whole_scores: bool, paint: TextPainter) -> String {
    let mut lines =
        vec![["IP", "RANK", "NODE", "SCORE", ""].map(|t| TableCell::toned(TextTone::Dim, t)).to_vec()];
    for result in results {
        if result.order.is_empty() {
            lines.push(vec![
                result.ip.as_str().into(),
                "-".into(),
                TableCell::toned(TextTone::Bad, "(no node can take it)"),
            ]);
        }
        for (i, place) in result.order.iter().enumerate() {
            let score =
                if whole_scores { &place.score } else { place.score.get(..16).unwrap_or(&place.score) };
            let note = match (i, place.fallback) {
                (0, _) if place.ranks_last => TableCell::toned(TextTone::Warn, "winner (all rank last)"),
                (_, _) if place.ranks_last => "last".into(),
                (0, false) => TableCell::toned(TextTone::Good, "winner"),
                (0, true) => TableCell::toned(TextTone::Warn, "winner (no preferred node)"),
                (_, true) => "fallback".into(),
                _ => "".into(),
            };
            let ip = if i == 0 { result.ip.as_str() } else { "" };
            lines.push(vec![ip.into(), (i + 1).into(), place.node.as_str().into(), score.into(), note]);
        }
    }
    table::align_columns(&lines, &table::column_widths(&lines), paint)
}
