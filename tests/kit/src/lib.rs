//! The test lab. Real parts wherever they can run: network namespaces, packets,
//! a real kube-apiserver; and an embedded API for what must be fast.
//!
//! Nothing here is linked into the shipped programs.

pub mod controlplane;
pub mod embedded;
pub mod faults;
pub mod ipam;
pub mod lab;
pub mod netbox;
pub mod signals;
pub mod wait;
