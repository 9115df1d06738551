//! The allocator on the embedded API: quick, and with faults on demand.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../common/mod.rs"]
mod common;

mod control;
mod faults;
mod main_path;
mod providers;
mod site;
mod sweeps;
