//! Which claim a frame makes: "this IP address is at this link-layer address".

use std::fmt;
use std::net::IpAddr;

use crate::MacAddr;
use crate::arp::{self, ArpOperation};
use crate::ethernet::{self, EthernetFrame};
use crate::ndp::{self, NdpBody};

/// In which way a claim is made. All of them put the sender into somebody's
/// neighbour cache; they differ in who hears them and what they prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClaimKind {
    /// ARP request with sender = target: an announcement.
    GarpRequest,
    /// ARP reply with sender = target: an announcement.
    GarpReply,
    /// The answer to somebody's question.
    ArpReply,
    /// A question about another address; its sender fields claim the asker's own.
    ArpRequestSender,
    /// Advertisement nobody asked for; with `overrides` caches replace what they hold.
    UnsolicitedAdvertisement { overrides: bool },
    /// Advertisement that answers a solicitation.
    SolicitedAdvertisement { overrides: bool },
    /// Solicitation for another address; its source option claims the asker's own.
    SolicitationSource,
}

impl ClaimKind {
    /// Sent to tell everybody, not because somebody asked.
    pub fn is_announcement(self) -> bool {
        matches!(self, Self::GarpRequest | Self::GarpReply | Self::UnsolicitedAdvertisement { .. })
    }
}

impl fmt::Display for ClaimKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GarpRequest => "gratuitous ARP request",
            Self::GarpReply => "gratuitous ARP reply",
            Self::ArpReply => "ARP reply",
            Self::ArpRequestSender => "sender of an ARP request",
            Self::UnsolicitedAdvertisement { overrides: true } => "unsolicited advertisement",
            Self::UnsolicitedAdvertisement { overrides: false } => {
                "unsolicited advertisement without override"
            }
            Self::SolicitedAdvertisement { .. } => "solicited advertisement",
            Self::SolicitationSource => "source of a neighbour solicitation",
        })
    }
}

/// `ip` is said to be at `mac`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressClaim {
    pub ip: IpAddr,
    /// The address caches learn. Usually, not always, that of the frame's sender.
    pub mac: MacAddr,
    pub kind: ClaimKind,
}

/// What a frame is, for somebody who watches who owns which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    Claim(AddressClaim),
    /// Asks whether `ip` is taken (RFC 5227 probe, duplicate address detection), and
    /// claims nothing yet.
    Probe {
        ip: IpAddr,
        mac: MacAddr,
    },
    /// Neither ARP nor neighbour discovery, or not well-formed.
    Other,
}

impl FrameClass {
    pub fn claim(self) -> Option<AddressClaim> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Probe { .. } | Self::Other => None,
        }
    }
}

/// Reads any Ethernet frame, tagged or not.
pub fn classify(frame: &[u8]) -> FrameClass {
    let Some(frame) = EthernetFrame::parse(frame) else {
        return FrameClass::Other;
    };
    match frame.ethertype {
        ethernet::ETHERTYPE_ARP => {
            arp::ArpPacket::parse(frame.payload).map_or(FrameClass::Other, |packet| classify_arp(&packet))
        }
        ethernet::ETHERTYPE_IPV6 => ndp::NdpMessage::parse(frame.payload)
            .map_or(FrameClass::Other, |message| classify_ndp(&message, frame.source)),
        _ => FrameClass::Other,
    }
}

fn classify_arp(packet: &arp::ArpPacket) -> FrameClass {
    let mac = packet.sender_mac;
    if packet.sender_ip.is_unspecified() {
        return match packet.operation {
            ArpOperation::Request => FrameClass::Probe { ip: packet.target_ip.into(), mac },
            ArpOperation::Reply => FrameClass::Other,
        };
    }
    let kind = match (packet.operation, packet.sender_ip == packet.target_ip) {
        (ArpOperation::Request, true) => ClaimKind::GarpRequest,
        (ArpOperation::Reply, true) => ClaimKind::GarpReply,
        (ArpOperation::Request, false) => ClaimKind::ArpRequestSender,
        (ArpOperation::Reply, false) => ClaimKind::ArpReply,
    };
    FrameClass::Claim(AddressClaim { ip: packet.sender_ip.into(), mac, kind })
}

fn classify_ndp(message: &ndp::NdpMessage, frame_source: MacAddr) -> FrameClass {
    let claim =
        |ip: std::net::Ipv6Addr, mac, kind| FrameClass::Claim(AddressClaim { ip: ip.into(), mac, kind });
    match message.body {
        NdpBody::Solicitation if message.is_dad_probe() => {
            FrameClass::Probe { ip: message.target.into(), mac: frame_source }
        }
        // Without the option nobody learns the asker's address.
        NdpBody::Solicitation => message
            .link_layer
            .map_or(FrameClass::Other, |mac| claim(message.source, mac, ClaimKind::SolicitationSource)),
        NdpBody::Advertisement { solicited, overrides, .. } => {
            let kind = if solicited {
                ClaimKind::SolicitedAdvertisement { overrides }
            } else {
                ClaimKind::UnsolicitedAdvertisement { overrides }
            };
            // An answer to a unicast question may leave the option out: the asker has
            // the address already, and it is that of the frame.
            claim(message.target, message.link_layer.unwrap_or(frame_source), kind)
        }
    }
}

#[cfg(test)]
mod tests;
