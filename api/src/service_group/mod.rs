//! ServiceGroup: where Services get their addresses from. Its types, and how one is read.

mod config;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "KubeSchema repeats the type inside a function; each printer column has a type"
)]
mod spec;

pub(crate) use config::object_key;
pub use config::{External, GroupConfig, Netbox, Ranges, Source, parse, retained};
pub use spec::{
    AddressPool, ExternalSource, NetboxSource, PoolSet, SecretKey, ServiceGroup, ServiceGroupSpec,
    ServiceGroupStatus,
};
