//! The allocator as a program, on the real API server, with the shipped rights.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../common/mod.rs"]
mod common;

mod bursts;
mod groups;
mod manifests;
mod pairs;
mod plane;
mod refusals;
mod restart;
mod rules;
mod sweeps;
mod takeover;
