//! The packets by which a host says "this address is mine", and is asked for it: ARP (RFC
//! 826, RFC 5227), neighbour discovery (RFC 4861) and echo, as Ethernet frames.
//!
//! [`arp`] and [`ndp`] build what an owner sends when it takes a VIP; [`address_claim`] reads
//! any frame and says which claim it makes, if it makes one. [`address_question`] asks who
//! has an address, and [`echo`] reads one kind of answer. No sockets and no clock,
//! and no input makes a decoder panic: frames come from strangers.

pub mod address_claim;
pub mod address_question;
pub mod arp;
mod checksum;
pub mod echo;
pub mod ethernet;
mod ipv6;
pub mod mac_addr;
pub mod ndp;

use std::net::IpAddr;

pub use address_claim::{AddressClaim, ClaimKind, FrameClass, classify};
pub use address_question::{AddressQuestion, QuestionError};
pub use echo::{EchoKind, EchoMessage};
pub use mac_addr::{MacAddr, ParseMacError};

/// The frames that announce `vip` at `mac`, in the order they are to be sent: for
/// IPv4 the request form and the reply form, since hosts differ in which of the two
/// they believe; for IPv6 one unsolicited advertisement.
pub fn announcement_frames(vip: IpAddr, mac: MacAddr) -> Vec<Vec<u8>> {
    match vip {
        IpAddr::V4(ip) => {
            vec![arp::gratuitous_request(ip, mac).to_vec(), arp::gratuitous_reply(ip, mac).to_vec()]
        }
        IpAddr::V6(ip) => vec![ndp::unsolicited_advertisement(ip, mac)],
    }
}
