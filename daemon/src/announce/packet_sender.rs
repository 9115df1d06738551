//! Tells the segment where an address lives now: gratuitous ARP and unsolicited
//! neighbour advertisements, from one packet socket opened once (CAP_NET_RAW).
//!
//! Nothing here waits: a frame goes out or the reason comes back, and the engine decides
//! about trying again.

use std::io;

use purelb_core::ids::{IfIndex, Vip};
use purelb_core::messages::Input;
use purelb_wire::MacAddr;
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};
use thiserror::Error;

use crate::netlink::{KernelLink, LinkTable};

#[derive(Debug, Error)]
pub enum PacketSocketError {
    #[error("opening a packet socket is not permitted: the daemon needs CAP_NET_RAW")]
    NotPermitted,
    #[error("opening a packet socket: {0}")]
    Io(#[from] io::Error),
}

/// Why an announcement did not go out.
#[derive(Debug, Error)]
pub enum AnnounceError {
    #[error("there is no interface {} any more", .0.0)]
    NoInterface(IfIndex),
    #[error("{0} has no Ethernet address: nothing can be announced there")]
    NotEthernet(String),
    #[error("{0} takes part in no neighbour resolution (no ARP): nothing can be announced there")]
    NoArp(String),
    #[error("{0} is down")]
    Down(String),
    #[error("its moment has passed: this process was held up, and another node may have the address by now")]
    TooLate,
    #[error("{0}: the transmit queue is full, the announcement was not sent")]
    QueueFull(String),
    #[error("sending on {interface}: {error}")]
    Io { interface: String, error: io::Error },
    #[error("listening on {interface}: {error}")]
    Listening { interface: String, error: io::Error },
}

#[derive(Debug)]
pub struct PacketSender {
    socket: Socket,
    links: LinkTable,
}

impl PacketSender {
    /// In the calling thread's network namespace. `links` is the monitor's table of the
    /// same namespace.
    pub fn open(links: LinkTable) -> Result<Self, PacketSocketError> {
        // Protocol 0: this socket only sends. With any other it would be handed, and
        // have to throw away, every frame the host receives.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).map_err(|error| {
            if error.kind() == io::ErrorKind::PermissionDenied {
                PacketSocketError::NotPermitted
            } else {
                PacketSocketError::Io(error)
            }
        })?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, links })
    }

    /// Carries out one `Effect::Announce`.
    pub fn carry_out(&self, id: u64, vip: Vip, index: IfIndex) -> Input {
        Input::Announced { id, result: self.announce(vip, index).map_err(|error| error.to_string()) }
    }

    /// Sends one announcement of `vip` on one interface: an ARP request and a reply, or
    /// a neighbour advertisement.
    pub fn announce(&self, vip: Vip, index: IfIndex) -> Result<(), AnnounceError> {
        let link = self.links.get(index).ok_or(AnnounceError::NoInterface(index))?;
        let mac = usable_mac(&link)?;
        purelb_wire::announcement_frames(vip.ip(), mac)
            .iter()
            .try_for_each(|frame| self.send_frame(&link, frame))
    }

    /// Sends a whole frame out of an interface.
    pub(super) fn send_frame(&self, link: &KernelLink, frame: &[u8]) -> Result<(), AnnounceError> {
        let sent = self.socket.send_to(frame, &link_address(link.facts.index, 0));
        sent.map(drop).map_err(|error| send_error(link.facts.name.to_string(), error))
    }
}

/// What frames of ours come from there.
pub(super) fn usable_mac(link: &KernelLink) -> Result<MacAddr, AnnounceError> {
    let name = || link.facts.name.to_string();
    let mac = link.facts.mac.map(MacAddr).filter(|mac| mac.is_unicast());
    let mac = mac.ok_or_else(|| AnnounceError::NotEthernet(name()))?;
    if link.no_arp {
        return Err(AnnounceError::NoArp(name()));
    }
    Ok(mac)
}

fn send_error(interface: String, error: io::Error) -> AnnounceError {
    match error.raw_os_error() {
        Some(libc::ENETDOWN) => AnnounceError::Down(interface),
        Some(libc::ENOBUFS | libc::EAGAIN) => AnnounceError::QueueFull(interface),
        _ => AnnounceError::Io { interface, error },
    }
}

/// An interface, as packet sockets are told: where a frame goes that brings its own header,
/// and which frames (of which `ethertype`; 0 = none) one that is bound to it is given.
#[allow(unsafe_code)]
pub(super) fn link_address(index: IfIndex, ethertype: u16) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is one of the address types that `sockaddr_storage` is made
    // to hold, all of whose bit patterns are valid; the length given is its own.
    unsafe {
        let address: &mut libc::sockaddr_ll = storage.view_as();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ethertype.to_be();
        address.sll_ifindex = index.0.cast_signed();
        SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    }
}
