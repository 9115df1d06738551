//! The kernel's side against a real kernel: every test in network namespaces of its
//! own, which end with the threads that made them.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests: a panic is how they fail, figures are printed"
)]

mod addresses;
mod disturbed;
mod ear;
mod foreign;
mod interfaces;
mod kernel_marks;
mod mirror;
mod monitor;
mod ns;
mod pace;
mod packets;
mod routes;
mod segment;
mod withdraw;
