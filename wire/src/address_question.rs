//! Asking a segment who has an address.
//!
//! ```text
//!              to one host                  to whoever hears it
//!  IPv4 echo   its MAC                      broadcast
//!       ARP    its MAC                      broadcast
//!  IPv6 echo   its MAC                      the MAC of the target's solicited-node group
//!       NS     its MAC                      the same
//! ```
//! An echo request may not be passed on (one hop): a host that had the address a moment
//! ago, and routes, would otherwise hand the question to the one that has it now, and look
//! like the owner.

use std::net::IpAddr;

use thiserror::Error;

use crate::arp::{ArpOperation, ArpPacket};
use crate::echo::{EchoKind, EchoMessage};
use crate::ipv6::{group_mac, solicited_node};
use crate::ndp::{NdpBody, NdpMessage};
use crate::{MacAddr, echo};

/// So many hops does an echo request have.
const ECHO_HOPS: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressQuestion {
    pub target: IpAddr,
    /// Our own address. `None`: a probe, which claims nothing (RFC 5227; RFC 4862).
    pub from: Option<IpAddr>,
    pub mac: MacAddr,
    /// `None`: whoever hears it.
    pub to: Option<MacAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuestionError {
    #[error("{0} is no address that one host has")]
    NotOneHost(IpAddr),
    #[error("{from} cannot ask for {target}: they are of different families")]
    OtherFamily { from: IpAddr, target: IpAddr },
    #[error("an echo request needs an address to be answered at")]
    NoSource,
    #[error("an echo request carries {} bytes at most", echo::LONGEST_PAYLOAD)]
    TooLong,
}

impl AddressQuestion {
    /// An ARP request or a neighbour solicitation.
    pub fn resolve_frame(&self) -> Result<Vec<u8>, QuestionError> {
        self.check()?;
        let to = self.destination();
        match (self.target, self.from) {
            (IpAddr::V4(target), from) => {
                let sender = match from {
                    Some(IpAddr::V4(from)) => from,
                    _ => std::net::Ipv4Addr::UNSPECIFIED,
                };
                let packet = ArpPacket {
                    operation: ArpOperation::Request,
                    sender_mac: self.mac,
                    sender_ip: sender,
                    target_mac: MacAddr::ZERO,
                    target_ip: target,
                };
                Ok(packet.frame(to).to_vec())
            }
            (IpAddr::V6(target), from) => {
                let source = match from {
                    Some(IpAddr::V6(from)) => from,
                    _ => std::net::Ipv6Addr::UNSPECIFIED,
                };
                // Hosts ignore a probe that is not sent to the group, also where one of them
                // alone gets the frame (RFC 4862, 5.4.3; RFC 6085).
                let alone = self.to.is_some() && !source.is_unspecified();
                let message = NdpMessage {
                    source,
                    destination: if alone { target } else { solicited_node(target) },
                    target,
                    body: NdpBody::Solicitation,
                    // With the unspecified source there is nothing to learn, and it is not allowed.
                    link_layer: (!source.is_unspecified()).then_some(self.mac),
                };
                Ok(message.frame(self.mac, to))
            }
        }
    }

    pub fn echo_frame(&self, id: u16, sequence: u16, payload: &[u8]) -> Result<Vec<u8>, QuestionError> {
        self.check()?;
        let source = self.from.ok_or(QuestionError::NoSource)?;
        let message = EchoMessage {
            kind: EchoKind::Request,
            source,
            destination: self.target,
            hops: ECHO_HOPS,
            id,
            sequence,
            payload,
        };
        // The families were compared.
        message.frame(self.mac, self.destination()).ok_or(QuestionError::TooLong)
    }

    fn check(&self) -> Result<(), QuestionError> {
        let many = |ip: IpAddr| {
            ip.is_multicast() || ip.is_unspecified() || matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
        };
        if let Some(ip) = [Some(self.target), self.from].into_iter().flatten().find(|ip| many(*ip)) {
            return Err(QuestionError::NotOneHost(ip));
        }
        match self.from {
            Some(from) if from.is_ipv4() != self.target.is_ipv4() => {
                Err(QuestionError::OtherFamily { from, target: self.target })
            }
            _ => Ok(()),
        }
    }

    fn destination(&self) -> MacAddr {
        self.to.unwrap_or_else(|| match self.target {
            IpAddr::V4(_) => MacAddr::BROADCAST,
            IpAddr::V6(target) => group_mac(solicited_node(target)),
        })
    }
}

#[cfg(test)]
mod tests;
