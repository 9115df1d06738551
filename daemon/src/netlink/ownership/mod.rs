//! Which addresses on this host are ours (R4).

mod address_ownership;
mod address_record;

pub use address_ownership::{ADDRESS_MARK, AddressOwnership, MarkMode, OwnershipError};
pub(crate) use address_record::AddressId;
