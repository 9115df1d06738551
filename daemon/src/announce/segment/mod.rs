//! Asking the segment who has an address, and hearing what hosts say of addresses.
//!
//! ```text
//!   Effect::Listen ─▶ SegmentListener ─▶ for each interface: InterfaceSockets
//!   Effect::Ask ───▶    │      ▲                claims   ARP, IPv6   wake the engine's task
//!                   one frame  │ batches        the rest ARP, IPv4, IPv6   do not
//!                              │
//!       before a tick, for a claim, and once a second: Input::Heard
//! ```
//! What everybody is told (announcements, probes) wakes the engine's task. What is said to
//! us alone (answers) and what is said in passing (the sender of a question) waits in its
//! socket for the next tick: whoever asks wakes up to ask again, and reads the answers then.
//! Otherwise each answer would cost a wake-up of its own.
//!
//! **Which frames.** Each socket is bound to one interface and one type of frame. So it sees
//! no outgoing frames, and none of other interfaces, and the kernel has put the frame where
//! it belongs before: a bond's and a bridge's frames are the bond's and the bridge's, and a
//! VLAN's have lost their tag. Promiscuity is not needed: answers are addressed to us, and
//! what everybody is told reaches every host. Frames of our own hardware addresses, which a
//! loop or another interface on the same segment brings back, are left out.

mod arrival_clock;
mod frame_filter;
mod interface_sockets;
mod packet_socket;
mod segment_listener;
mod segment_stats;

pub use segment_listener::SegmentListener;
pub use segment_stats::{SIGHTING_KINDS, SegmentStats};
