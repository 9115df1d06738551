//! The daemon on every node: adapters around the engine of `purelb-core`.
//!
//! Each module turns something outside into engine inputs, or engine effects into
//! actions whose results come back as inputs.

pub mod kube;
pub mod netlink;
pub mod packets;
