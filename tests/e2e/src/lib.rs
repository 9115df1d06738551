//! What the end-to-end tests share: a cluster of real daemons in a lab of network
//! namespaces, on a real API server with the shipped rights.
//!
//! All clusters of a test binary share one control plane. Each has an install
//! namespace, a load-balancer class and Nodes of its own, so that they do not see each
//! other and can run side by side.

mod binary;
mod cluster;
mod ctl;
mod daemon;
mod measure;
pub mod monitor;
mod older;
mod served;
mod services;
mod trial;

pub use binary::{purelbctl, purelbd, shipped_purelbd};
pub use cluster::{Cluster, own_plane, shared_plane};
pub use ctl::{Answer, Running};
pub use daemon::{Daemon, Settings};
pub use measure::{Memory, Usage, millis, print_figure, print_row, row};
pub use older::OlderMember;
pub use served::Served;
pub use services::{Wish, vip};
pub use trial::{Instruments, Trial, losses};
