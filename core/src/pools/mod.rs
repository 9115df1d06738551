//! Address pools: which Service holds which address, and which one comes next.
//!
//! Owns the allocator's arithmetic and its bookkeeping, nothing else: no Kubernetes
//! objects, no clock, no IO. Two facts go in, groups (what may be given) and claims
//! (what Services hold), and they stay apart:
//!
//! ```text
//!   Group ── ranges ──┐                         ┌── Ledger: address -> holders
//!   Group ── ranges ──┤  set_groups   allocate  │   service -> addresses
//!                     ├───────────> Pools <─────┤   sharing key -> addresses
//!   overlap: refused ─┘               │         └── adopt / release
//!                                     v
//!                    free intervals per range = range - excluded - held
//! ```
//!
//! - Claims outlive groups. Editing or removing a group changes what may be given
//!   next, never what is held; a held address outside today's ranges is flagged.
//! - The free intervals are derived from the two, so adopting the existing Services
//!   in any order, before or after the groups are known, ends in the same state.
//! - An address is never given to two owners unless both carry the same sharing key
//!   and different ports, and one node can serve both.
//! - A request is planned first and committed after, so that a refusal leaves
//!   nothing half done.

mod address_pools;
mod admission;
mod allocate;
mod error;
mod free_set;
mod group;
mod ledger;
mod range;
mod request;
mod sharing_terms;
mod span;
mod stats;

pub use address_pools::{AddressPools, GroupAdmission, HeldAddress, PoolPlace, ReleaseOutcome};
pub use admission::{DisjointRanges, GroupOverlap, admit};
pub use error::{AllocateError, RangeError, RangeProblem, WaitsFor};
pub use group::{Group, GroupName};
pub use ledger::{AddressClaim, SharingClash, SharingConflict};
pub use range::{Aggregation, ExclusionReason, PoolText, Range, RangeRules};
pub use request::{AddressGrant, AddressRequest, Families, GrantKind, GrantedAddress, RangePick, Shortfall};
pub use sharing_terms::{PodSet, Port, Protocol, SharingKey, SharingTerms};
pub use span::{Span, SpanError};
pub use stats::{FamilyStats, GroupStats, RangeStats};

#[cfg(test)]
mod tests;
