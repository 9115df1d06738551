//! Tells the network where an address is, and asks it. Today by packets on the segment:
//! gratuitous ARP and unsolicited neighbour advertisements, requests and solicitations.

mod packet_sender;
mod segment;

pub use packet_sender::{AnnounceError, PacketSender, PacketSocketError};
pub use segment::{SIGHTING_KINDS, SegmentListener, SegmentStats};
