//! What the kernel shows just before a batch, changed along with the batch as it is
//! planned: the guard against touching what is not ours (R4) looks here.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use nix::errno::Errno;
use purelb_core::ids::IfIndex;

use crate::netlink::client::{DumpResult, DumpTries, NetlinkClient, NetlinkError};
use crate::netlink::dump_requests;
use crate::netlink::message::RawMessage;
use crate::netlink::ownership::AddressOwnership;
use crate::netlink::parse::{self, KernelAddress, KernelEvent};

pub(crate) fn dump_addresses(
    client: &mut NetlinkClient,
    only: Option<IfIndex>,
) -> Result<DumpResult<Vec<KernelAddress>>, NetlinkError> {
    let take = |found: &mut Vec<KernelAddress>, message: &RawMessage<'_>| {
        if let Some(KernelEvent::Address(address)) = parse::event(message)
            && only.is_none_or(|index| index == address.index)
        {
            found.push(address);
        }
    };
    match client.dump(&dump_requests::addresses(only), DumpTries::SEVERAL, take) {
        // The filter names an interface that is gone: so are its addresses.
        Err(NetlinkError::Refused(no)) if only.is_some() && no.errno == Errno::ENODEV => {
            Ok(DumpResult { found: Vec::new(), whole: true })
        }
        other => other,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownAddress {
    pub(crate) prefix: u8,
    pub(crate) ours: bool,
    pub(crate) no_prefix_route: bool,
    /// IPv4: others of its subnet came before it.
    pub(crate) secondary: bool,
}

#[derive(Debug, Default)]
pub(crate) struct AddressView {
    known: BTreeMap<(IfIndex, IpAddr), Vec<ShownAddress>>,
    /// Everything that is there is in it.
    whole: bool,
}

impl AddressView {
    pub(crate) fn new(shown: &DumpResult<Vec<KernelAddress>>, ownership: &AddressOwnership) -> Self {
        let mut view = Self { known: BTreeMap::new(), whole: shown.whole };
        for address in &shown.found {
            view.put(
                address.index,
                address.net,
                ShownAddress {
                    prefix: address.net.prefix_len(),
                    ours: ownership.is_ours(address),
                    no_prefix_route: address.no_prefix_route(),
                    secondary: address.secondary(),
                },
            );
        }
        view
    }

    /// What is not in it may still be there.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.whole
    }

    /// Everything on that interface with this address, whatever its prefix length.
    pub(crate) fn same_address(&self, index: IfIndex, net: IpNet) -> &[ShownAddress] {
        self.known.get(&(index, net.addr())).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn exact(&self, index: IfIndex, net: IpNet) -> Option<ShownAddress> {
        let mut same = self.same_address(index, net).iter();
        same.find(|known| known.prefix == net.prefix_len()).copied()
    }

    pub(crate) fn put(&mut self, index: IfIndex, net: IpNet, known: ShownAddress) {
        let same = self.known.entry((index, net.addr())).or_default();
        // Point-to-point addresses can stand there twice with different far ends: if
        // one of them is not ours, none is.
        match same.iter_mut().find(|other| other.prefix == known.prefix) {
            Some(other) => {
                *other = ShownAddress { ours: other.ours && known.ours, ..known };
            }
            None => same.push(known),
        }
    }

    pub(crate) fn remove(&mut self, index: IfIndex, net: IpNet) {
        if let Some(same) = self.known.get_mut(&(index, net.addr())) {
            same.retain(|known| known.prefix != net.prefix_len());
        }
    }
}
