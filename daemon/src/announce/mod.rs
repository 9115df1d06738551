//! Tells the network where an address is. Today by packets on the segment: gratuitous ARP
//! and unsolicited neighbour advertisements.

mod packet_sender;

pub use packet_sender::{AnnounceError, PacketSender, PacketSocketError};
