//! The daemon on every node: adapters around the engine of `purelb-core`.
//!
//! Each module turns something outside into engine inputs, or engine effects into
//! actions whose results come back as inputs.

pub mod adapters;
pub mod app;
pub mod clock;
pub mod config;
pub mod control;
pub mod drain_mark;
pub mod driver;
pub mod follow;
pub mod handle;
pub mod kube;
pub mod last_good;
pub mod lifecycle;
pub mod lock;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod netlink;
pub mod packets;
pub mod reason_log;
mod state_file;
pub mod systemd;
