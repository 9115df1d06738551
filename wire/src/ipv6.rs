//! The IPv6 header (RFC 8200), without extension headers.
//!
//! ```text
//!  0               4               6       7       8
//! +---------------+---------------+-------+-------+
//! | 6 | class,flow| payload len   | next  | hop   |
//! +---------------+---------------+-------+-------+
//! | source (16) … | destination (16) …            |
//! +-----------------------------------------------+
//! ```

use std::net::Ipv6Addr;

use crate::MacAddr;
use crate::ethernet::{self, ETHERNET_HEADER_LEN};

pub(crate) const IPV6_HEADER_LEN: usize = 40;
pub(crate) const NEXT_HEADER_ICMPV6: u8 = 58;

/// An IPv6 packet that carries an ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Icmpv6Packet<'a> {
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) hop_limit: u8,
    pub(crate) message: &'a [u8],
}

impl<'a> Icmpv6Packet<'a> {
    /// `None` for another payload, and for one that is cut short. The message's checksum is
    /// still to be verified.
    pub(crate) fn parse(packet: &'a [u8]) -> Option<Self> {
        let (header, rest) = packet.split_first_chunk::<IPV6_HEADER_LEN>()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || header[6] != NEXT_HEADER_ICMPV6 {
            return None;
        }
        Some(Self {
            source: address(header.get(8..24)?)?,
            destination: address(header.get(24..40)?)?,
            hop_limit: header[7],
            // What follows the payload is padding of short frames.
            message: rest.get(..length)?,
        })
    }

    /// The packet in an untagged frame.
    pub(crate) fn frame(&self, source: MacAddr, destination: MacAddr) -> Vec<u8> {
        let mut header = [0; ETHERNET_HEADER_LEN];
        ethernet::write_header(&mut header, destination, source, ethernet::ETHERTYPE_IPV6);
        let length = u16::try_from(self.message.len()).unwrap_or(u16::MAX);
        let mut frame = Vec::with_capacity(ETHERNET_HEADER_LEN + IPV6_HEADER_LEN + self.message.len());
        frame.extend(header);
        frame.extend([6 << 4, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([NEXT_HEADER_ICMPV6, self.hop_limit]);
        frame.extend(self.source.octets());
        frame.extend(self.destination.octets());
        frame.extend(self.message);
        frame
    }
}

pub(crate) fn address(bytes: &[u8]) -> Option<Ipv6Addr> {
    <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from)
}

/// The group on which a host hears neighbour solicitations for `target` (RFC 4291, 2.7.1).
pub(crate) fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// Where Ethernet carries a group (RFC 2464, 7).
pub(crate) fn group_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}
