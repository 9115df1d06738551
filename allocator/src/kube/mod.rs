//! What the allocator does with the API server: its client, what a Service asks for, and
//! what is written back.

pub mod client;
pub mod patches;
pub mod service_request;
pub(crate) mod service_writer;
pub(crate) mod watch_backoff;
