//! Echo requests and replies: ICMP over IPv4 (RFC 792) and ICMPv6 over IPv6 (RFC 4443).
//!
//! ```text
//! IPv4 header (20, and options when reading)
//!  0       1       2               4               6
//! +-------+-------+---------------+---------------+---------------+
//! |4 | len|service| total length  | identification| flags,fragment|
//! +-------+-------+---------------+---------------+---------------+
//! | TTL   | pr = 1| checksum      | source (4)                    |
//! +-------+-------+---------------+-------------------------------+
//! | destination (4)               |
//! +-------------------------------+
//! ICMP: type 8 asks, 0 answers; ICMPv6: 128 asks, 129 answers
//! +-------+-------+---------------+---------------+---------------+---------
//! | type  | code 0| checksum      | identifier    | sequence      | payload
//! +-------+-------+---------------+---------------+---------------+---------
//! ```
//! The IPv6 header is drawn in `ipv6.rs`. ICMPv6 sums a pseudo header as well, ICMP does not.

use std::net::{IpAddr, Ipv4Addr};

use crate::MacAddr;
use crate::checksum;
use crate::ethernet::{self, ETHERNET_HEADER_LEN};
use crate::ipv6::Icmpv6Packet;

const IPV4_HEADER_LEN: usize = 20;
const ECHO_HEADER_LEN: usize = 8;
const PROTOCOL_ICMP: u8 = 1;
/// More fragments follow, or this is not the first one.
const FRAGMENT_BITS: u16 = 0x3fff;
/// The longest payload that fits into one Ethernet frame of either family.
pub const LONGEST_PAYLOAD: usize = 1400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoKind {
    Request,
    Reply,
}

/// An echo request or reply in a whole packet whose checksums hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoMessage<'a> {
    pub kind: EchoKind,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// How many routers may pass it on, and one more.
    pub hops: u8,
    pub id: u16,
    pub sequence: u16,
    pub payload: &'a [u8],
}

impl<'a> EchoMessage<'a> {
    /// Reads an IPv4 or IPv6 packet. `None` for anything else, and for what hosts must
    /// ignore: fragments, cut or damaged packets.
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_ipv4(packet),
            6 => Self::parse_ipv6(packet),
            _ => None,
        }
    }

    fn parse_ipv4(packet: &'a [u8]) -> Option<Self> {
        let header = packet.get(..usize::from(packet.first()? & 0x0f) * 4)?;
        let fixed = header.first_chunk::<IPV4_HEADER_LEN>()?;
        let field = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let ip = |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
        if fixed[9] != PROTOCOL_ICMP || field(6) & FRAGMENT_BITS != 0 || checksum::internet(header) != 0 {
            return None;
        }
        // What follows the packet is padding of short frames.
        let message = packet.get(header.len()..usize::from(field(2)))?;
        if checksum::internet(message) != 0 {
            return None;
        }
        let kinds = [(8, EchoKind::Request), (0, EchoKind::Reply)];
        Self::parse_message(message, kinds, ip(12).into(), ip(16).into(), fixed[8])
    }

    fn parse_ipv6(packet: &'a [u8]) -> Option<Self> {
        let Icmpv6Packet { source, destination, hop_limit, message } = Icmpv6Packet::parse(packet)?;
        if checksum::icmpv6(source, destination, message) != 0 {
            return None;
        }
        let kinds = [(128, EchoKind::Request), (129, EchoKind::Reply)];
        Self::parse_message(message, kinds, source.into(), destination.into(), hop_limit)
    }

    fn parse_message(
        message: &'a [u8],
        kinds: [(u8, EchoKind); 2],
        source: IpAddr,
        destination: IpAddr,
        hops: u8,
    ) -> Option<Self> {
        let (header, payload) = message.split_first_chunk::<ECHO_HEADER_LEN>()?;
        let [kind, code, _, _, id @ .., sequence_high, sequence_low] = *header;
        if code != 0 {
            return None;
        }
        let (_, kind) = kinds.into_iter().find(|(number, _)| *number == kind)?;
        let sequence = u16::from_be_bytes([sequence_high, sequence_low]);
        Some(Self { kind, source, destination, hops, id: u16::from_be_bytes(id), sequence, payload })
    }

    /// The message in an untagged frame. `None` if source and destination are of different
    /// families, or the payload is longer than [`LONGEST_PAYLOAD`].
    pub fn frame(&self, source: MacAddr, destination: MacAddr) -> Option<Vec<u8>> {
        if self.payload.len() > LONGEST_PAYLOAD {
            return None;
        }
        match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut message = self.message(if self.kind == EchoKind::Request { 8 } else { 0 });
                set_checksum(&mut message, 2, checksum::internet);
                let mut frame = vec![0; ETHERNET_HEADER_LEN];
                let header = frame.first_chunk_mut().expect("the header's own length");
                ethernet::write_header(header, destination, source, ethernet::ETHERTYPE_IPV4);
                frame.extend(self.ipv4_header(from, to, message.len()));
                frame.extend(message);
                Some(frame)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut message = self.message(if self.kind == EchoKind::Request { 128 } else { 129 });
                set_checksum(&mut message, 2, |bytes| checksum::icmpv6(from, to, bytes));
                let packet =
                    Icmpv6Packet { source: from, destination: to, hop_limit: self.hops, message: &message };
                Some(packet.frame(source, destination))
            }
            _ => None,
        }
    }

    fn message(&self, kind: u8) -> Vec<u8> {
        let mut message = vec![kind, 0, 0, 0];
        message.extend(self.id.to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(self.payload);
        message
    }

    fn ipv4_header(&self, from: Ipv4Addr, to: Ipv4Addr, message: usize) -> [u8; IPV4_HEADER_LEN] {
        let mut header = [0; IPV4_HEADER_LEN];
        let length = u16::try_from(IPV4_HEADER_LEN + message).expect("bounded by the longest payload");
        header[0] = 4 << 4 | 5;
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[8] = self.hops;
        header[9] = PROTOCOL_ICMP;
        header[12..16].copy_from_slice(&from.octets());
        header[16..20].copy_from_slice(&to.octets());
        set_checksum(&mut header, 10, checksum::internet);
        header
    }
}

/// `at` holds zeros still.
fn set_checksum(bytes: &mut [u8], at: usize, sum: impl Fn(&[u8]) -> u16) {
    let value = sum(bytes).to_be_bytes();
    bytes[at..at + 2].copy_from_slice(&value);
}

#[cfg(test)]
mod tests;
