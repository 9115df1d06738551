//! Every decision of purelb, and nothing else.
//!
//! No clock, no IO, no async, no Kubernetes or netlink types: the outside comes in
//! as plain facts with the time they were seen, and decisions go out as effects.

mod agents;
pub mod allocation;
mod announce;
mod awaiting;
pub mod config;
pub mod counted;
pub mod durations;
pub mod election;
mod engine;
pub mod facts;
mod fence;
mod handoff;
pub mod ids;
pub mod io;
mod kernel;
pub mod lease_write;
mod membership;
mod own_lease;
pub mod placement;
pub mod pools;
mod prefixes;
pub mod rank;
pub mod reason;
mod sight;
pub mod snapshot;
mod subnets;
pub mod table;
pub mod time;
mod upkeep;
mod wake;

pub use engine::Engine;
pub use ids::{Family, IdError, IfIndex, IfName, InstanceId, NodeName, ObjectKey, Vip};
pub use io::{Effect, Input};
pub use reason::Reason;
pub use time::Mono;
