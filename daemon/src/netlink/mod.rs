//! The kernel's side: what links, addresses and default routes there are, and the
//! changes we make to them.
//!
//! ```text
//!            kernel (rtnetlink)
//!        events, dumps │        ▲ requests, one acknowledgement each
//!                      ▼        │
//!      RouteReader ─▶ Monitor   Applier (its own thread, see `worker`)
//!                      │        ▲ │
//!   Kernel, Link, Address*,     │ │ Applied
//!   DefaultRoutes      ▼        │ ▼
//!                      engine's task
//! ```
//!
//! **Namespaces.** A socket belongs to the network namespace of the thread that
//! creates it, for good. [`monitor::Monitor::open`], [`applier::Applier::open`],
//! [`withdraw::withdraw_all`] and [`crate::packets::Announcer::open`] create theirs in
//! the calling thread and need no namespace afterwards: called on a thread inside a
//! namespace they serve that namespace, wherever they run later.
//!
//! Replies and events are read attribute by attribute and with no more of a message
//! than we need: one attribute that a newer kernel words differently must not hide a
//! link or an address from us.

pub mod applier;
mod client;
mod dummy;
pub mod links;
pub mod marks;
pub mod monitor;
mod parse;
mod queries;
mod raw;
mod record;
mod routes;
mod secondaries;
mod socket;
mod state;
mod view;
pub mod withdraw;
pub mod worker;

pub use applier::Applier;
pub use links::LinkTable;
pub use marks::{MARK, MarkMode, Marks};
pub use monitor::{Monitor, MonitorHandle, MonitorSettings};
pub use withdraw::{Withdrawn, withdraw_all};
pub use worker::ApplierHandle;
