//! Which addresses are ours (R4): by a mark in the kernel, or by a record of our own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use nix::errno::Errno;
use rtnetlink::packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};

use crate::netlink::client::{DumpTries, NetlinkClient, NetlinkError};
use crate::netlink::dump_requests;
use crate::netlink::ownership::address_record::{AddressId, AddressRecord};
use crate::netlink::parse::{self, KernelAddress, KernelEvent};

/// The value of IFA_PROTO (Linux 5.18 and later) on every address we add: `p`. The
/// kernel's own are 1 to 3 (loopback, router advertisement, link-local).
pub const ADDRESS_MARK: u8 = 0x70;

/// Number of the attribute that carries it.
const IFA_PROTO: u16 = 11;
/// No interface has this number: the kernel hands them out from 1.
const NO_INTERFACE: u32 = i32::MAX as u32;

/// How addresses are marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MarkMode {
    /// By IFA_PROTO if the kernel knows it, else by a record in the run directory.
    #[default]
    Detect,
    Kernel,
    Record,
}

/// Cheap to clone; all clones share one record.
#[derive(Clone, Debug)]
pub struct AddressOwnership(OwnershipMark);

#[derive(Clone, Debug)]
enum OwnershipMark {
    Kernel,
    Record(Arc<RwLock<AddressRecord>>),
}

impl AddressOwnership {
    /// `run_directory` is only used, and then must exist, if a record is kept.
    pub fn open(mode: &MarkMode, run_directory: &Path) -> Result<Self, OwnershipError> {
        let kernel = match mode {
            MarkMode::Kernel => true,
            MarkMode::Record => false,
            MarkMode::Detect => kernel_marks_addresses().map_err(OwnershipError::Detect)?,
        };
        if kernel {
            return Ok(Self::kernel());
        }
        let record = AddressRecord::open(run_directory)
            .map_err(|error| OwnershipError::Record { directory: run_directory.to_owned(), error })?;
        Ok(Self(OwnershipMark::Record(Arc::new(RwLock::new(record)))))
    }

    pub fn kernel() -> Self {
        Self(OwnershipMark::Kernel)
    }

    /// Whether a record is kept since the kernel keeps no mark.
    pub fn uses_record(&self) -> bool {
        matches!(self.0, OwnershipMark::Record(_))
    }

    pub(crate) fn is_ours(&self, address: &KernelAddress) -> bool {
        match &self.0 {
            OwnershipMark::Kernel => address.proto == Some(ADDRESS_MARK),
            OwnershipMark::Record(record) => {
                record.read().unwrap_or_else(PoisonError::into_inner).contains(address)
            }
        }
    }

    /// Before these are added.
    pub(crate) fn begin(&self, keys: &[AddressId]) -> io::Result<()> {
        match &self.0 {
            OwnershipMark::Record(record) if !keys.is_empty() => {
                record.write().unwrap_or_else(PoisonError::into_inner).begin(keys)
            }
            _ => Ok(()),
        }
    }

    /// These were not added after all.
    pub(crate) fn forget(&self, refused: &[AddressId]) -> io::Result<()> {
        match &self.0 {
            OwnershipMark::Kernel => Ok(()),
            OwnershipMark::Record(record) => {
                record.write().unwrap_or_else(PoisonError::into_inner).forget(refused)
            }
        }
    }

    /// After a batch; see [`AddressRecord::settle`].
    pub(crate) fn settle(
        &self,
        now: &[KernelAddress],
        links: Option<purelb_core::ids::IfIndex>,
        refused: &[AddressId],
    ) -> io::Result<()> {
        match &self.0 {
            OwnershipMark::Kernel => Ok(()),
            OwnershipMark::Record(record) => {
                record.write().unwrap_or_else(PoisonError::into_inner).settle(now, links, refused)
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    #[error("asking the kernel whether it marks addresses: {0}; the daemon needs CAP_NET_ADMIN")]
    Detect(#[source] NetlinkError),
    #[error("the record of our addresses in {}: {error}", directory.display())]
    Record { directory: PathBuf, error: io::Error },
}

/// Kernels that know IFA_PROTO show it on addresses of their own. Where there are none
/// (loopback down), they are asked with a request that cannot succeed: an empty
/// IFA_PROTO on an interface that does not exist. Who knows the attribute objects to
/// its length; who does not, to the interface.
fn kernel_marks_addresses() -> Result<bool, NetlinkError> {
    let mut client = NetlinkClient::open()?;
    let shown =
        client.dump(&dump_requests::addresses(None), DumpTries::SEVERAL, |found: &mut bool, message| {
            if let Some(KernelEvent::Address(address)) = parse::event(message) {
                *found |= address.proto.is_some();
            }
        })?;
    Ok(shown.found || knows_attribute(&mut client, IFA_PROTO)?)
}

fn knows_attribute(client: &mut NetlinkClient, attribute: u16) -> Result<bool, NetlinkError> {
    let mut probe = AddressMessage::default();
    probe.header.family = AddressFamily::Inet;
    probe.header.prefix_len = 32;
    probe.header.index = NO_INTERFACE;
    let local = std::net::Ipv4Addr::LOCALHOST.into();
    probe.attributes =
        vec![AddressAttribute::Local(local), AddressAttribute::Other(DefaultNla::new(attribute, Vec::new()))];
    match client.change(RouteNetlinkMessage::NewAddress(probe), NLM_F_CREATE | NLM_F_EXCL) {
        Err(NetlinkError::Refused(no)) => match no.errno {
            Errno::ENODEV => Ok(false),
            Errno::EINVAL | Errno::ERANGE => Ok(true),
            _ => Err(NetlinkError::Refused(no)),
        },
        Err(error) => Err(error),
        Ok(()) => Ok(false),
    }
}

#[cfg(test)]
mod tests;
