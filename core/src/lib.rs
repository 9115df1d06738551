//! Every decision of purelb, and nothing else.
//!
//! No clock, no IO, no async, no Kubernetes or netlink types: the outside comes in
//! as plain facts with the time they were seen, and decisions go out as effects.

pub mod ids;
pub mod pools;
pub mod time;

pub use ids::{Family, IdError, IfIndex, IfName, InstanceId, NodeName, ObjectKey, Vip};
pub use time::Mono;
