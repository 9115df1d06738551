//! The allocator on the embedded API: quick, and with faults on demand.

#[path = "../common/mod.rs"]
mod common;

mod faults;
mod main_path;
mod site;
