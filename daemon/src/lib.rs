//! The daemon on every node: adapters around the engine of `purelb-core`.
//!
//! Each module turns something outside into engine inputs, or engine effects into
//! actions whose results come back as inputs.

pub mod clock;
pub mod drain_mark;
pub mod driver;
pub mod handle;
pub mod netlink;
pub mod packets;
