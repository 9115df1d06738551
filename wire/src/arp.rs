//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! ```text
//!  0               2               4       5       6               8
//! +---------------+---------------+-------+-------+---------------+
//! | hardware = 1  | proto = 0800  | hl=6  | pl=4  | operation     |
//! +---------------+---------------+-------+-------+---------------+
//! | sender hardware address (6)                   | sender proto… |
//! +-----------------------------------------------+---------------+
//! | …col address  | target hardware address (6)                   |
//! +---------------+-----------------------------------------------+
//! | target protocol address (4)   |                      28 bytes
//! +-------------------------------+
//! ```

use std::net::Ipv4Addr;

use crate::MacAddr;
use crate::ethernet::{self, ETHERNET_HEADER_LEN};

pub const ARP_PACKET_LEN: usize = 28;
pub const ARP_FRAME_LEN: usize = ETHERNET_HEADER_LEN + ARP_PACKET_LEN;

const HARDWARE_ETHERNET: u16 = 1;
const PROTOCOL_IPV4: u16 = 0x0800;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    Request,
    Reply,
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    pub operation: ArpOperation,
    pub sender_mac: MacAddr,
    pub sender_ip: Ipv4Addr,
    pub target_mac: MacAddr,
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// `None` for a packet that is too short, of another hardware or protocol, or
    /// neither a request nor a reply (RARP and the like).
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let packet: &[u8; ARP_PACKET_LEN] = bytes.first_chunk()?;
        let field = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let ip = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
        if field(0) != HARDWARE_ETHERNET || field(2) != PROTOCOL_IPV4 || packet[4] != 6 || packet[5] != 4 {
            return None;
        }
        let operation = match field(6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return None,
        };
        Some(Self {
            operation,
            sender_mac: MacAddr::from_slice(&packet[8..14])?,
            sender_ip: ip(14),
            target_mac: MacAddr::from_slice(&packet[18..24])?,
            target_ip: ip(24),
        })
    }

    /// The packet in an untagged frame from its sender to `destination`.
    pub fn frame(&self, destination: MacAddr) -> [u8; ARP_FRAME_LEN] {
        let mut frame = [0; ARP_FRAME_LEN];
        let (header, packet) = frame.split_first_chunk_mut().expect("a frame is longer than its header");
        ethernet::write_header(header, destination, self.sender_mac, ethernet::ETHERTYPE_ARP);
        packet[..2].copy_from_slice(&HARDWARE_ETHERNET.to_be_bytes());
        packet[2..4].copy_from_slice(&PROTOCOL_IPV4.to_be_bytes());
        packet[4] = 6;
        packet[5] = 4;
        let operation: u16 = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        packet[6..8].copy_from_slice(&operation.to_be_bytes());
        packet[8..14].copy_from_slice(&self.sender_mac.octets());
        packet[14..18].copy_from_slice(&self.sender_ip.octets());
        packet[18..24].copy_from_slice(&self.target_mac.octets());
        packet[24..28].copy_from_slice(&self.target_ip.octets());
        frame
    }
}

/// A gratuitous ARP in its request form: broadcast, sender and target are the VIP,
/// the target hardware address is not known and so zero.
pub fn gratuitous_request(vip: Ipv4Addr, mac: MacAddr) -> [u8; ARP_FRAME_LEN] {
    gratuitous(ArpOperation::Request, vip, mac, MacAddr::ZERO)
}

/// A gratuitous ARP in its reply form: broadcast also inside, sender and target are
/// the VIP.
pub fn gratuitous_reply(vip: Ipv4Addr, mac: MacAddr) -> [u8; ARP_FRAME_LEN] {
    gratuitous(ArpOperation::Reply, vip, mac, MacAddr::BROADCAST)
}

fn gratuitous(
    operation: ArpOperation,
    vip: Ipv4Addr,
    mac: MacAddr,
    target_mac: MacAddr,
) -> [u8; ARP_FRAME_LEN] {
    let packet = ArpPacket { operation, sender_mac: mac, sender_ip: vip, target_mac, target_ip: vip };
    packet.frame(MacAddr::BROADCAST)
}
