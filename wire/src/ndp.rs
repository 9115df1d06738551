//! Neighbour solicitations and advertisements (RFC 4861) over IPv6 and Ethernet.
//!
//! ```text
//! ICMPv6 neighbour advertisement, type 136 (solicitation: type 135, no flags)
//! +-------+-------+---------------+---------------+
//! | type  | code 0| checksum      |R|S|O| reserved|
//! +-------+-------+---------------+---------------+
//! | target address (16)                           |
//! +-------+-------+-------------------------------+
//! | opt   | len 1 | link-layer address (6)        |  opt 2 = target's, 1 = source's
//! +-------+-------+-------------------------------+  len in units of 8 bytes
//! ```
//! The IPv6 header in front of it is drawn in `ipv6.rs`.

use std::net::Ipv6Addr;

use crate::MacAddr;
use crate::checksum;
use crate::ipv6::{self, Icmpv6Packet};

const NDP_MESSAGE_LEN: usize = 24;
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
        let Icmpv6Packet { source, destination, hop_limit, message: icmp } = Icmpv6Packet::parse(packet)?;
        if hop_limit != NDP_HOP_LIMIT {
            return None;
        }
        let (message, mut options) = icmp.split_first_chunk::<NDP_MESSAGE_LEN>()?;
        if message[1] != 0 || checksum::icmpv6(source, destination, icmp) != 0 {
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
        let target = ipv6::address(message.get(8..24)?)?;
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

    /// The message in an untagged frame.
    pub fn frame(&self, source: MacAddr, destination: MacAddr) -> Vec<u8> {
        let (kind, flags, option) = match self.body {
            NdpBody::Solicitation => (ICMPV6_SOLICITATION, 0, OPTION_SOURCE_LINK_LAYER),
            NdpBody::Advertisement { router, solicited, overrides } => {
                let flag = |set: bool, bit: u8| if set { bit } else { 0 };
                let flags = flag(router, FLAG_ROUTER)
                    | flag(solicited, FLAG_SOLICITED)
                    | flag(overrides, FLAG_OVERRIDE);
                (ICMPV6_ADVERTISEMENT, flags, OPTION_TARGET_LINK_LAYER)
            }
        };
        let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
        message.extend(self.target.octets());
        if let Some(mac) = self.link_layer {
            message.extend([option, 1]);
            message.extend(mac.octets());
        }
        let sum = checksum::icmpv6(self.source, self.destination, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let packet = Icmpv6Packet {
            source: self.source,
            destination: self.destination,
            hop_limit: NDP_HOP_LIMIT,
            message: &message,
        };
        packet.frame(source, destination)
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
pub fn unsolicited_advertisement(vip: Ipv6Addr, mac: MacAddr) -> Vec<u8> {
    let message = NdpMessage {
        source: vip,
        destination: ALL_NODES,
        target: vip,
        body: NdpBody::Advertisement { router: false, solicited: false, overrides: true },
        link_layer: Some(mac),
    };
    message.frame(mac, ALL_NODES_MAC)
}
