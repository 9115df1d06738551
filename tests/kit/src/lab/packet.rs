//! Raw frames sent from inside a namespace.

use std::io;
use std::net::IpAddr;

use anyhow::{Context, Result};
use purelb_wire::MacAddr;
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

use super::kernel;
use super::netns::Netns;

/// Sends the announcement of `vip` at `mac` out of `dev`.
pub(super) fn announce(netns: &Netns, dev: &str, vip: IpAddr, mac: MacAddr) -> Result<()> {
    send(netns, dev, &purelb_wire::announcement_frames(vip, mac))
}

/// Sends Ethernet frames out of `dev`.
pub(super) fn send(netns: &Netns, dev: &str, frames: &[Vec<u8>]) -> Result<()> {
    let to = link_address(kernel::index_of(netns, dev)?);
    netns
        .enter(|| {
            // Protocol 0: this socket sends and never receives.
            let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
            for frame in frames {
                socket.send_to(frame, &to)?;
            }
            Ok::<_, io::Error>(())
        })?
        .with_context(|| format!("sending a frame out of {dev} of {}", netns.name()))
}

/// The interface as a packet socket's address. socket2 has no safe way to write one.
#[allow(unsafe_code)]
fn link_address(index: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_ll is plain old data that fits into a zeroed sockaddr_storage
    // (all zeros is a valid value of it), and the length given is that of what is written.
    unsafe {
        let address: &mut libc::sockaddr_ll = storage.view_as();
        address.sll_family = libc::AF_PACKET as libc::sa_family_t;
        address.sll_ifindex = index as libc::c_int;
        SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    }
}
