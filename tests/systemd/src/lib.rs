//! The packages as operators use them: nodes that boot systemd, in the lab's network,
//! on a real API server; `apt`, `dpkg`, `rpm`, `systemctl`, `journalctl` and `kubectl` as
//! a guide tells to use them.
//!
//! A node is a container (systemd-nspawn) whose root is an overlay over one small Debian,
//! made once, and whose network is a host of the lab: [`machine`]. The commands come from
//! `docs/install.md` itself: [`guide`].

pub mod cargo;
pub mod figures;
pub mod guide;
pub mod machine;
pub mod packages;
pub mod prepared;
pub mod site;
