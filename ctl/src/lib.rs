//! purelbctl: the operator's hands.
//!
//! Offline commands read files and nothing else. Live ones talk to a daemon's control
//! API. The cluster is asked only by commands that need it: making a client for it
//! takes longer than all of the rest.

pub mod cli;
pub mod client;
pub mod commands;
pub mod error;
pub mod offline;
pub mod output;
