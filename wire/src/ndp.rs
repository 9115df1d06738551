//! Neighbour solicitations and advertisements (RFC 4861) over IPv6 and Ethernet.
//!
//! ```text
//! IPv6 header (40)
//!  0               4               6       7       8
//! +---------------+---------------+-------+-------+
//! | 6 | class,flow| payload len   | next  | hop   |
//! +---------------+---------------+-------+-------+
//! | source (16) … | destination (16) …            |
//! +-----------------------------------------------+
//! ICMPv6 neighbour advertisement, type 136 (solicitation: type 135, no flags)
//! +-------+-------+---------------+---------------+
//! | type  | code 0| checksum      |R|S|O| reserved|
//! +-------+-------+---------------+---------------+
//! | target address (16)                           |
//! +-------+-------+-------------------------------+
//! | opt   | len 1 | link-layer address (6)        |  opt 2 = target's, 1 = source's
//! +-------+-------+-------------------------------+  len in units of 8 bytes
//! ```

use std::net::Ipv6Addr;

use crate::MacAddr;
use crate::ethernet::{self, ETHERNET_HEADER_LEN};

const IPV6_HEADER_LEN: usize = 40;
const NDP_MESSAGE_LEN: usize = 24;
const LINK_LAYER_OPTION_LEN: usize = 8;
pub const ADVERTISEMENT_FRAME_LEN: usize =
    ETHERNET_HEADER_LEN + IPV6_HEADER_LEN + NDP_MESSAGE_LEN + LINK_LAYER_OPTION_LEN;

const NEXT_HEADER_ICMPV6: u8 = 58;
const NDP_HOP_LIMIT: u8 = 255;
const ICMPV6_SOLICITATION: u8 = 135;
const ICMPV6_ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE_LINK_LAYER: u8 = 1;
const OPTION_TARGET_LINK_LAYER: u8 = 2;
const FLAG_ROUTER: u8 = 0x80;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;

/// All nodes on the link, and the group address Ethernet carries it on.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub const ALL_NODES_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

/// A neighbour solicitation or advertisement that passed the checks every receiver
/// must make: hop limit 255, code 0, checksum, whole options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpMessage {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub target: Ipv6Addr,
    pub body: NdpBody,
    /// The source's (solicitation) or target's (advertisement) link-layer address.
    pub link_layer: Option<MacAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpBody {
    Solicitation,
    Advertisement { router: bool, solicited: bool, overrides: bool },
}

impl NdpMessage {
    /// Reads an IPv6 packet. `None` for anything else, and for a message that hosts
    /// must ignore: counting it as a claim would blame an owner nobody believed.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (header, rest) = packet.split_first_chunk::<IPV6_HEADER_LEN>()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || header[6] != NEXT_HEADER_ICMPV6 || header[7] != NDP_HOP_LIMIT {
            return None;
        }
        // What follows the payload is padding of short frames.
        let icmp = rest.get(..length)?;
        let source = parse_ipv6(header.get(8..24)?)?;
        let destination = parse_ipv6(header.get(24..40)?)?;
        let (message, mut options) = icmp.split_first_chunk::<NDP_MESSAGE_LEN>()?;
        if message[1] != 0 || checksum(source, destination, icmp) != 0 {
            return None;
        }
        let (body, wanted) = match message[0] {
            ICMPV6_SOLICITATION => (NdpBody::Solicitation, OPTION_SOURCE_LINK_LAYER),
            ICMPV6_ADVERTISEMENT => {
                let set = |flag| message[4] & flag != 0;
                let body = NdpBody::Advertisement {
                    router: set(FLAG_ROUTER),
                    solicited: set(FLAG_SOLICITED),
                    overrides: set(FLAG_OVERRIDE),
                };
                (body, OPTION_TARGET_LINK_LAYER)
            }
            _ => return None,
        };
        let target = parse_ipv6(message.get(8..24)?)?;
        if target.is_multicast() {
            return None;
        }
        let mut link_layer = None;
        while let [kind, units, ..] = *options {
            // A length of zero would never end; hosts discard the whole packet.
            if units == 0 {
                return None;
            }
            let (option, rest) = options.split_at_checked(usize::from(units) * 8)?;
            if kind == wanted && units == 1 {
                link_layer = MacAddr::from_slice(option.get(2..8)?);
            }
            options = rest;
        }
        Some(Self { source, destination, target, body, link_layer })
    }

    /// Whether this asks if an address is taken (duplicate address detection) rather
    /// than saying that it is.
    pub fn is_dad_probe(&self) -> bool {
        self.body == NdpBody::Solicitation && self.source.is_unspecified()
    }
}

/// An unsolicited advertisement of `vip` at `mac` to all nodes: override set, so that
/// caches replace what they hold, and with the target link-layer option, without which
/// they could not.
pub fn unsolicited_advertisement(vip: Ipv6Addr, mac: MacAddr) -> [u8; ADVERTISEMENT_FRAME_LEN] {
    let mut frame = [0; ADVERTISEMENT_FRAME_LEN];
    let (header, packet) = frame.split_first_chunk_mut().expect("a frame is longer than its header");
    ethernet::write_header(header, ALL_NODES_MAC, mac, ethernet::ETHERTYPE_IPV6);

    let (ip, icmp) = packet.split_at_mut(IPV6_HEADER_LEN);
    let length = u16::try_from(icmp.len()).expect("32 bytes");
    ip[0] = 6 << 4;
    ip[4..6].copy_from_slice(&length.to_be_bytes());
    ip[6] = NEXT_HEADER_ICMPV6;
    ip[7] = NDP_HOP_LIMIT;
    ip[8..24].copy_from_slice(&vip.octets());
    ip[24..40].copy_from_slice(&ALL_NODES.octets());

    icmp[0] = ICMPV6_ADVERTISEMENT;
    icmp[4] = FLAG_OVERRIDE;
    icmp[8..24].copy_from_slice(&vip.octets());
    icmp[24] = OPTION_TARGET_LINK_LAYER;
    icmp[25] = 1;
    icmp[26..32].copy_from_slice(&mac.octets());
    let sum = checksum(vip, ALL_NODES, icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn parse_ipv6(bytes: &[u8]) -> Option<Ipv6Addr> {
    <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from)
}

/// The ICMPv6 checksum over the pseudo header and the message (RFC 4443, 2.3). Over a
/// message that carries a correct checksum it is zero.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, icmp: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u64 {
        bytes
            .chunks(2)
            .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
            .sum()
    };
    let mut sum = words(&source.octets())
        + words(&destination.octets())
        + icmp.len() as u64
        + u64::from(NEXT_HEADER_ICMPV6)
        + words(icmp);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
