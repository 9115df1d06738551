//! Every decision of purelb, and nothing else.
//!
//! No clock, no IO, no async, no Kubernetes or netlink types: the outside comes in
//! as plain facts with the time they were seen, and decisions go out as effects.

pub mod config;
pub mod election;
pub mod facts;
pub mod ids;
pub mod io;
pub mod reason;
pub mod snapshot;
pub mod time;

pub use ids::{Family, IdError, IfIndex, IfName, InstanceId, NodeName, ObjectKey, Vip};
pub use io::{Effect, Input};
pub use reason::Reason;
pub use time::Mono;
