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

mod admit;
mod allocate;
mod book;
mod error;
mod free;
mod group;
mod ledger;
mod range;
mod request;
mod share;
mod span;
mod stats;

pub use admit::{Ground, Overlap, admit};
pub use book::{Admission, Held, Place, Pools, Released};
pub use error::{AllocateError, RangeError, RangeProblem, WaitsFor};
pub use group::{Group, GroupName};
pub use ledger::{Claim, Clash, Conflict};
pub use range::{Aggregation, PoolText, Range, Rules, Why};
pub use request::{Families, Grant, Granted, How, Missing, Pick, Request};
pub use share::{PodSet, Port, Protocol, SharingKey, Terms};
pub use span::{Span, SpanError};
pub use stats::{FamilyStats, GroupStats, RangeStats};

#[cfg(test)]
mod tests;
