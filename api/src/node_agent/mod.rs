//! LBNodeAgent: how nodes take part. Its types, and how one is read.

mod config;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "KubeSchema repeats the type inside a function; each printer column has a type"
)]
mod spec;

pub use config::facts;
pub use spec::{
    AddressConfigSpec, AddressSpec, CandidacySpec, GarpSpec, LBNodeAgent, LBNodeAgentSpec, LBNodeAgentStatus,
    LocalSpec,
};
