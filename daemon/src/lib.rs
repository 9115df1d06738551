//! The daemon on every node: adapters around the engine of `purelb-core`.
//!
//! | room | what is in it |
//! |---|---|
//! | `app` | builds all of it from the configuration, and runs it |
//! | `engine` | the task that owns the engine, and where its effects go |
//! | `announce` | tells the network where an address is: gratuitous ARP, neighbour advertisements |
//! | `netlink` | the kernel: what it shows, what we change, which addresses are ours |
//! | `kube` | the API server: a client, watches, writes |
//! | `control` | the control API |
//! | `metrics` | metrics for Prometheus |
//! | `config` | the settings |
//! | `host` | clock, lock, signals, service manager, log, state files |
//!
//! Each turns something outside into engine inputs, or engine effects into actions whose
//! results come back as inputs.

pub mod announce;
pub mod app;
pub mod config;
pub mod control;
pub mod engine;
pub mod host;
pub mod kube;
pub mod metrics;
pub mod netlink;
