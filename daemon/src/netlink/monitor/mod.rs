//! What the kernel shows: links, addresses and default routes, as engine inputs.

mod default_routes;
mod kernel_monitor;
mod monitor_state;

pub use kernel_monitor::{KernelMonitor, MonitorError, MonitorHandle, MonitorSettings, MonitorStats};
