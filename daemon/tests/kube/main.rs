//! The Kubernetes side against the embedded API, with faults between them.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail and print as tests do")]

mod bench;
mod config;
mod failover;
mod faults;
mod follow;
mod hostile;
mod last_good;
mod lease;
mod rest;
mod writes;
