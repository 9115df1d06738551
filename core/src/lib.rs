//! Every decision of purelb, and nothing else.
//!
//! No clock, no IO, no async, no Kubernetes or netlink types: the outside comes in
//! as plain facts with the time they were seen, and decisions go out as effects.

mod agents;
pub mod allocation;
mod announce;
pub mod config;
pub mod counted;
pub mod election;
mod engine;
pub mod facts;
mod fence;
mod handoff;
pub mod ids;
pub mod io;
mod kernel;
mod membership;
mod own_lease;
pub mod placement;
pub mod pools;
pub mod reason;
pub mod snapshot;
mod subnets;
pub mod time;
mod wake;

pub use engine::Engine;
pub use ids::{Family, IdError, IfIndex, IfName, InstanceId, NodeName, ObjectKey, Vip};
pub use io::{Effect, Input};
pub use reason::Reason;
pub use time::Mono;
