//! purelbctl: the operator's hands.
//!
//! Offline commands read files and nothing else. Live ones talk to a daemon's control
//! API. The cluster is asked only by commands that need it: making a client for it
//! takes longer than all of the rest.

pub mod actions;
pub mod bundle;
pub mod cli;
pub mod cluster;
pub mod connect;
pub mod drain;
pub mod error;
pub mod explain;
pub mod get;
pub mod live;
pub mod migrate;
pub mod node_kubeconfig;
pub mod offline;
pub mod paint;
pub mod rows;
pub mod run;
pub mod saved;
pub mod select;
pub mod shell;
pub mod status;
pub mod table;
pub mod target;
pub mod top;
pub mod validate;
pub mod winner;
