//! Which claim a frame makes: "this IP address is at this link-layer address".

use std::fmt;
use std::net::IpAddr;

use crate::MacAddr;
use crate::arp::{self, Operation};
use crate::ethernet::{self, Frame};
use crate::ndp::{self, Body};

/// In which way a claim is made. All of them put the sender into somebody's
/// neighbour cache; they differ in who hears them and what they prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
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

impl Kind {
    /// Sent to tell everybody, not because somebody asked.
    pub fn is_announcement(self) -> bool {
        matches!(self, Self::GarpRequest | Self::GarpReply | Self::UnsolicitedAdvertisement { .. })
    }
}

impl fmt::Display for Kind {
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
pub struct Claim {
    pub ip: IpAddr,
    /// The address caches learn. Usually, not always, that of the frame's sender.
    pub mac: MacAddr,
    pub kind: Kind,
}

/// What a frame is, for somebody who watches who owns which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Claim(Claim),
    /// Asks whether `ip` is taken (RFC 5227 probe, duplicate address detection), and
    /// claims nothing yet.
    Probe {
        ip: IpAddr,
        mac: MacAddr,
    },
    /// Neither ARP nor neighbour discovery, or not well-formed.
    Other,
}

impl Seen {
    pub fn claim(self) -> Option<Claim> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Probe { .. } | Self::Other => None,
        }
    }
}

/// Reads any Ethernet frame, tagged or not.
pub fn classify(frame: &[u8]) -> Seen {
    let Some(frame) = Frame::parse(frame) else {
        return Seen::Other;
    };
    match frame.ethertype {
        ethernet::TYPE_ARP => {
            arp::Packet::parse(frame.payload).map_or(Seen::Other, |packet| seen_arp(&packet))
        }
        ethernet::TYPE_IPV6 => {
            ndp::Message::parse(frame.payload).map_or(Seen::Other, |message| seen_ndp(&message, frame.source))
        }
        _ => Seen::Other,
    }
}

fn seen_arp(packet: &arp::Packet) -> Seen {
    let mac = packet.sender_mac;
    if packet.sender_ip.is_unspecified() {
        return match packet.operation {
            Operation::Request => Seen::Probe { ip: packet.target_ip.into(), mac },
            Operation::Reply => Seen::Other,
        };
    }
    let kind = match (packet.operation, packet.sender_ip == packet.target_ip) {
        (Operation::Request, true) => Kind::GarpRequest,
        (Operation::Reply, true) => Kind::GarpReply,
        (Operation::Request, false) => Kind::ArpRequestSender,
        (Operation::Reply, false) => Kind::ArpReply,
    };
    Seen::Claim(Claim { ip: packet.sender_ip.into(), mac, kind })
}

fn seen_ndp(message: &ndp::Message, frame_source: MacAddr) -> Seen {
    let claim = |ip: std::net::Ipv6Addr, mac, kind| Seen::Claim(Claim { ip: ip.into(), mac, kind });
    match message.body {
        Body::Solicitation if message.is_dad_probe() => {
            Seen::Probe { ip: message.target.into(), mac: frame_source }
        }
        // Without the option nobody learns the asker's address.
        Body::Solicitation => {
            message.link_layer.map_or(Seen::Other, |mac| claim(message.source, mac, Kind::SolicitationSource))
        }
        Body::Advertisement { solicited, overrides, .. } => {
            let kind = if solicited {
                Kind::SolicitedAdvertisement { overrides }
            } else {
                Kind::UnsolicitedAdvertisement { overrides }
            };
            // An answer to a unicast question may leave the option out: the asker has
            // the address already, and it is that of the frame.
            claim(message.target, message.link_layer.unwrap_or(frame_source), kind)
        }
    }
}

#[cfg(test)]
mod tests;
