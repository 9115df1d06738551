//! What `get` lists, one type per noun: columns for people, fields for programs.

mod event;
mod member;
mod node_row;
mod pool;
mod service;
mod setting;
mod subnet;
mod vip;

use purelb_core::reason::{ReasonKind, ReasonTone};
use purelb_proto::control::v1 as pb;

use crate::output::text_painter::TextTone;

pub use event::EventRow;
pub use member::MemberRow;
pub use node_row::NodeRow;
pub use pool::PoolRow;
pub use service::{ServiceAddress, ServiceRow, group_by_service};
pub use setting::SettingRow;
pub use subnet::SubnetRow;
pub use vip::VipRow;

fn join_or_dash(items: &[String]) -> String {
    if items.is_empty() { "-".into() } else { items.join(",") }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.to_owned() }
}

/// Seconds with one digit: what people compare.
fn format_seconds(value: f64) -> String {
    if value > 0.0 { format!("{value:.1}s") } else { "-".into() }
}

/// `NOT_WINNER` reads `NotWinner`, as in logs and metrics.
pub fn reason_name(code: pb::ReasonCode) -> String {
    let words = code.as_str_name().split('_');
    words.map(|w| w[..1].to_owned() + &w[1..].to_lowercase()).collect()
}

/// A reason that only a newer daemon knows is worth a look.
pub fn reason_tone(code: pb::ReasonCode) -> Option<TextTone> {
    let name = reason_name(code);
    let kind = ReasonKind::ALL.iter().find(|kind| kind.name() == name);
    match kind.map_or(ReasonTone::Bad, |kind| kind.profile(false).tone) {
        ReasonTone::Good => Some(TextTone::Good),
        ReasonTone::Neutral => None,
        ReasonTone::Warning => Some(TextTone::Warn),
        ReasonTone::Bad => Some(TextTone::Bad),
    }
}

fn pool_type_name(value: pb::PoolType) -> &'static str {
    match value {
        pb::PoolType::Local => "local",
        pb::PoolType::Remote => "remote",
        pb::PoolType::Unspecified => "unknown",
    }
}

#[cfg(test)]
mod tests;
