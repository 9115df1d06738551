//! What is written to the cluster: our Lease, announcing slots, events and conditions. Each
//! has a task and a bounded queue.

pub(crate) mod condition_writer;
pub(crate) mod event_writer;
pub(crate) mod lease_writer;
pub(crate) mod slot_writer;
