//! Fuzz targets: one function for every parser of what others write.
//!
//! A target takes any bytes. It may refuse them, but not panic, and what it accepts has
//! to keep a promise: what is read prints and reads again as the same, bounds hold, a
//! decoded packet's fields are in the frame.
//!
//! Two drivers share the targets and `fuzz/corpus`: [`driver`], on the stable compiler,
//! which `make test` runs for two seconds per target; and libFuzzer by `cargo fuzz` (see
//! `fuzz/Cargo.toml`), guided by coverage, where there is a nightly compiler.

pub mod corpus;
pub mod driver;
pub mod mutator;
pub mod targets;

/// A parser under test.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Also the name of its corpus, and of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Panics if the parser breaks a promise.
    pub run: fn(&[u8]),
}

macro_rules! fuzz_targets {
    ($($module:ident: $($name:ident),+;)+) => {
        pub const TARGETS: &[FuzzTarget] = &[
            $($(FuzzTarget { name: stringify!($name), run: targets::$module::$name },)+)+
        ];
    };
}

fuzz_targets! {
    wire: ethernet_frame, arp_packet, ndp_message, echo_message, frame_class, mac_addr;
    core: duration, vip, address_span, object_names, pool_range;
    api: announcing_slots, requested_addresses, lease_subnets, lease_announced, lease, service,
        service_group, node_agent, node, endpoint_slice;
    daemon: daemon_config;
    ctl: saved_documents, migrate_convert;
}

#[cfg(test)]
mod tests;
