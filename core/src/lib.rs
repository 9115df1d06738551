//! Every decision of purelb, and nothing else.
//!
//! No clock, no IO, no async, no Kubernetes or netlink types: the outside comes in
//! as plain facts with the time they were seen, and decisions go out as effects.

pub mod allocation;
mod announcer;
mod awaited_peers;
mod blind_periods;
pub mod config;
mod deadline_queue;
pub mod detector;
pub mod durations;
pub mod election;
mod engine;
pub mod facts;
mod fence;
mod handoff;
pub mod histogram;
pub mod ids;
mod kernel_state;
pub mod lease_write;
mod local_subnets;
mod membership;
pub mod messages;
mod node_config;
mod own_lease;
pub mod placement;
pub mod pools;
pub mod rank;
pub mod reason;
mod refresh_queue;
mod remote_prefixes;
pub mod segment;
pub mod shared_table;
pub mod snapshot;
pub mod time;

pub use engine::Engine;
pub use ids::{Family, IdError, IfIndex, IfName, InstanceId, NodeName, ObjectKey, Vip};
pub use messages::{Effect, Input};
pub use reason::Reason;
pub use time::Mono;
