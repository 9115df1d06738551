//! The changes we make to the kernel's addresses and links.

mod address_view;
mod applier_thread;
pub(crate) mod dummy_link;
mod kernel_applier;
mod promote_secondaries;
mod withdraw;

pub use applier_thread::{ApplierHandle, ApplyBatch, ChangeBatch};
pub use kernel_applier::{ApplyError, KernelApplier};
pub use withdraw::{Withdrawn, withdraw_all};
