//! What every Service should have now: which group, which addresses, or why none.
//!
//! Owns the allocator's decisions and nothing else: no Kubernetes objects, no clock,
//! no IO. The adapter feeds facts in and carries decisions out:
//!
//! ```text
//!   ServiceGroups ── set_groups ──┐
//!   node Leases ──── set_live ────┤                    ┌── Nothing
//!   Services ─────── observe ─────┼─> Allocations ─────┼── Write(Change) ──> settled
//!                    forget ──────┤   take_next, decide     └── Ask(Question) ──> answer
//!                                 │        │
//!                         Pools <─┘        └── orders by creation; whoever waits is asked
//!                                              again when what could help it is freed
//! ```
//!
//! - A decision compares what a Service should have with what it has; what is as it
//!   should be costs nothing, so a restart over a settled cluster writes nothing.
//! - While a write is under way the Service holds both its old and its new addresses:
//!   the old ones are free only once the Service no longer shows them.
//! - No edit of a group takes an address away. A Service keeps what it has, and is
//!   told what is wrong.

mod allocations;
mod choose_group;
mod cordon_drain;
mod decide;
mod decision;
mod facts;
mod give_back;
mod live_subnets;
mod refusal;
mod service_change;
mod waiting_services;

pub use allocations::{Allocations, WriteCertainty};
pub use cordon_drain::{DrainStep, DrainedNodes, NodeState, drain_steps};
pub use decision::{
    AllocationTally, Change, Decision, ProviderQuestion, ServiceEvent, ServiceEventKind, ServiceMarks,
};
pub use facts::{GroupSource, GroupSpec, ServiceAsk, ServiceCondition, ServiceOwner};
pub use give_back::{GiveBack, ProviderListing};
pub use live_subnets::LiveSubnets;
pub use refusal::Refusal;

#[cfg(test)]
mod tests;
