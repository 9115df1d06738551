//! The checksum of the Internet protocols (RFC 1071), and the pseudo header that ICMPv6
//! puts in front (RFC 8200, 8.1).
//!
//! ```text
//! +-----------------------+-----------------------+---------------+---------------+
//! | source (16)           | destination (16)      | length (4)    | zero    | 58  |
//! +-----------------------+-----------------------+---------------+---------------+
//! ```

use std::net::Ipv6Addr;

use crate::ipv6::NEXT_HEADER_ICMPV6;

/// Over something that carries a correct checksum it is zero.
pub(crate) fn internet(bytes: &[u8]) -> u16 {
    fold(words(bytes))
}

/// Of an ICMPv6 message.
pub(crate) fn icmpv6(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let pseudo = words(&source.octets()) + words(&destination.octets()) + message.len() as u64;
    fold(pseudo + u64::from(NEXT_HEADER_ICMPV6) + words(message))
}

fn words(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    bytes.chunks(2).map(word).sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
