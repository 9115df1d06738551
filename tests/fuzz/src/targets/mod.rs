//! The targets, by crate. Each says which promise it holds its parser to.

pub mod api;
pub mod core;
pub mod ctl;
pub mod daemon;
pub mod wire;

/// Most parsers read text.
fn text(data: &[u8]) -> &str {
    std::str::from_utf8(data).unwrap_or_default()
}
