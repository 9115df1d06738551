//! Around the engine: the task that owns it, the handle by which everybody else talks to that
//! task, where its effects go, and who is told of its snapshots.

pub mod driver;
pub mod effects;
pub mod handle;
pub mod observers;
mod reason_log;
