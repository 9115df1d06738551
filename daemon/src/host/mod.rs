//! The machine and the process: clock, lock, signals, service manager, log, memory, and the
//! files that survive a restart.

pub(crate) mod checked_file;
pub mod clock;
pub mod drain_mark;
pub mod instance_lock;
pub mod logging;
pub mod memory;
pub mod signals;
pub(crate) mod state_file;
pub mod systemd;
