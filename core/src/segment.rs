//! What is asked and heard on a segment: who has this address?
//!
//! ```text
//!   Effect::Listen(interfaces) ──▶ sockets are opened and closed ──▶ Input::Listening
//!   Effect::Ask(question) ───────▶ a frame goes out ───────────────▶ Input::Asked (when it left)
//!                                  sockets are read in batches ────▶ Input::Heard(report)
//! ```
//!
//! An answer tells that somebody is there. Silence tells something only of a question that
//! left, and whose time to be answered passed while we were listening: that is what a
//! report's `listened_until` is for.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ids::{IfIndex, IfName, Vip};
use crate::time::Mono;

/// A hardware address on an Ethernet segment.
pub type HardwareAddr = [u8; 6];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QuestionKind {
    /// An ICMP or ICMPv6 echo request: only the owner's kernel answers it.
    Echo,
    /// An ARP request or a neighbour solicitation.
    Resolve,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentQuestion {
    pub id: u64,
    pub index: IfIndex,
    pub interface: IfName,
    pub target: Vip,
    pub kind: QuestionKind,
    /// Our own address there. `None` only for [`QuestionKind::Resolve`]: a probe that claims
    /// nothing (RFC 5227; for IPv6 the unspecified source of RFC 4862).
    pub from: Option<IpAddr>,
    /// The host that answered last; `None`: whoever hears it.
    pub to: Option<HardwareAddr>,
}

/// How somebody showed that it has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SightingKind {
    /// It answered an echo request of ours.
    EchoReply,
    /// It answered a question, ours or another's.
    ResolveReply,
    /// It told everybody, unasked.
    Announcement,
    /// It asked for another address, from this one.
    Asker,
    /// It asked whether anybody has the address, and claims nothing yet.
    Probe,
}

/// Somebody on the segment showed that it has, or wants, an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentSighting {
    pub index: IfIndex,
    pub address: Vip,
    pub mac: HardwareAddr,
    pub kind: SightingKind,
    /// When the frame arrived, by the kernel's stamp.
    pub at: Mono,
}

/// What the sockets held when they were read. Our own frames are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentReport {
    pub sightings: Vec<SegmentSighting>,
    /// Every frame that arrived by then, on an interface we listen on, has been read.
    pub listened_until: Mono,
    /// Frames were lost here: ask again, this is no silence.
    pub overrun: Vec<IfIndex>,
}
