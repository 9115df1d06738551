//! The Kubernetes side against the embedded API, with faults between them.

mod bench;
mod config;
mod failover;
mod faults;
mod follow;
mod hostile;
mod lease;
mod rest;
mod writes;
