//! The kernel's side: what links, addresses and default routes there are, and the
//! changes we make to them.
//!
//! ```text
//!            kernel (rtnetlink)
//!        events, dumps │        ▲ requests, one acknowledgement each
//!                      ▼        │
//!      RouteReader ─▶ Monitor   Applier (its own thread)
//!                      │        ▲ │
//!   Kernel, KernelLink, Address*,     │ │ Applied
//!   DefaultRoutes      ▼        │ ▼
//!                      engine's task
//! ```
//!
//! **Namespaces.** A socket belongs to the network namespace of the thread that
//! creates it, for good. [`KernelMonitor::open`], [`KernelApplier::open`],
//! [`withdraw_all`] and [`crate::announce::PacketSender::open`] create theirs in
//! the calling thread and need no namespace afterwards: called on a thread inside a
//! namespace they serve that namespace, wherever they run later.
//!
//! Replies and events are read attribute by attribute and with no more of a message
//! than we need: one attribute that a newer kernel words differently must not hide a
//! link or an address from us.

pub mod apply;
mod client;
mod dump_requests;
mod link_table;
mod message;
pub mod monitor;
pub mod ownership;
mod parse;
mod socket;

pub use apply::{ApplierHandle, KernelApplier, Withdrawn, withdraw_all};
pub use link_table::LinkTable;
pub use monitor::{KernelMonitor, MonitorHandle, MonitorSettings};
pub use ownership::{ADDRESS_MARK, AddressOwnership, MarkMode};
pub use parse::KernelLink;
