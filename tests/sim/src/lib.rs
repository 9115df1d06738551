//! A deterministic simulator of a whole cluster: the real engine on every node, and
//! everything around it made up, with faults. One seed is one run; see
//! `docs/simulator.md` for what is modelled, what is checked, and the bounds.

pub mod actions;
pub mod api;
mod check;
mod churn;
mod daemon;
mod faults;
mod fence_check;
mod hardware;
pub mod kernel;
pub mod ledger;
mod legacy;
pub mod mutate;
pub mod node;
pub mod queue;
pub mod rng;
pub mod run;
mod scenario;
mod settle;
pub mod setup;
mod sockets;
mod stops;
mod takeover;
pub mod trace;
pub mod truth;
mod vacancy;
mod wire;
mod wire_faults;
pub mod world;
pub mod writer;

pub use mutate::Mutation;
pub use run::{Job, Outcome, Summary, run_many};
pub use setup::Profile;
