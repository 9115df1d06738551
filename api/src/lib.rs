//! Kubernetes objects as purelb reads and writes them: the custom resources, the
//! annotations, the Lease.
//!
//! Everything here is pure: text and objects in, plain facts of `purelb-core` out,
//! and back. Readers are lenient where others write, and bounded always: an object
//! anyone may edit must never crash or stall a daemon.

pub mod addresses;
pub mod conditions;
pub mod crds;
pub mod endpoints;
pub mod kubeconfig;
pub mod lease;
pub mod names;
pub mod node;
pub mod node_agent;
mod schema;
pub mod service;
pub mod service_group;
pub mod slots;

pub use node_agent::{LBNodeAgent, LBNodeAgentSpec, LBNodeAgentStatus};
pub use service_group::{ServiceGroup, ServiceGroupSpec, ServiceGroupStatus};
