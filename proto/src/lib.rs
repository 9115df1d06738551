//! The gRPC interfaces, as Rust: generated from the .proto files beside this crate.

pub mod reference;

/// The daemon's control API.
pub mod control {
    /// Version 1; changes are additive only.
    #[allow(missing_debug_implementations, clippy::all, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("purelb.control.v1");
    }
}

/// What an external address provider implements.
pub mod ipam {
    /// Version 1.
    #[allow(missing_debug_implementations, clippy::all, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("purelb.ipam.v1");
    }
}

/// All files with their comments, encoded: what the reflection service serves and the
/// reference is written from.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
