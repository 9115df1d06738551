//! Kubernetes objects as purelb reads and writes them: the custom resources, the
//! annotations, the Lease.
//!
//! Everything here is pure: text and objects in, plain facts of `purelb-core` out,
//! and back. Readers are lenient where others write, and bounded always: an object
//! anyone may edit must never crash or stall a daemon.

pub mod addresses;
pub mod agent;
pub mod conditions;
pub mod crds;
pub mod endpoints;
pub mod group;
pub mod kubeconfig;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "KubeSchema repeats the type inside a function; each printer column has a type"
)]
pub mod lbnodeagent;
pub mod lease;
pub mod names;
pub mod node;
mod schema;
pub mod service;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "KubeSchema repeats the type inside a function; each printer column has a type"
)]
pub mod servicegroup;
pub mod slots;

pub use lbnodeagent::{LBNodeAgent, LBNodeAgentSpec, LBNodeAgentStatus};
pub use servicegroup::{ServiceGroup, ServiceGroupSpec, ServiceGroupStatus};
