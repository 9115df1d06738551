//! The Ethernet header, with any number of VLAN tags when reading.
//!
//! ```text
//!  0                   6                   12      14
//! +-------------------+-------------------+-------+---------
//! | destination       | source            | type  | payload
//! +-------------------+-------------------+-------+---------
//!
//! with a tag, 4 bytes before the type:    +-------+-------+-------+---------
//!                                         | TPID  | TCI   | type  | payload
//!                                         +-------+-------+-------+---------
//!                                   TPID 0x8100 (802.1Q) or 0x88a8 (802.1ad);
//!                                   TCI: priority 3 | DEI 1 | VLAN id 12 bits
//! ```

use crate::MacAddr;

pub const ETHERNET_HEADER_LEN: usize = 14;

pub const ETHERTYPE_IPV4: u16 = 0x0800;
pub const ETHERTYPE_ARP: u16 = 0x0806;
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
pub const ETHERTYPE_VLAN: u16 = 0x8100;
pub const ETHERTYPE_QINQ: u16 = 0x88a8;

/// A frame's addresses, its innermost type and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetFrame<'a> {
    pub destination: MacAddr,
    pub source: MacAddr,
    /// The innermost VLAN id, if the frame is tagged.
    pub vlan: Option<u16>,
    pub ethertype: u16,
    pub payload: &'a [u8],
}

impl<'a> EthernetFrame<'a> {
    /// `None` if the frame ends before its payload begins.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (destination, rest) = frame.split_at_checked(6)?;
        let (source, mut rest) = rest.split_at_checked(6)?;
        let mut vlan = None;
        let mut ethertype = take_u16(&mut rest)?;
        // Each turn takes four bytes, so a frame of nothing but tags ends the loop.
        while matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ) {
            vlan = Some(take_u16(&mut rest)? & 0x0fff);
            ethertype = take_u16(&mut rest)?;
        }
        Some(Self {
            destination: MacAddr::from_slice(destination)?,
            source: MacAddr::from_slice(source)?,
            vlan,
            ethertype,
            payload: rest,
        })
    }
}

fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let (head, tail) = rest.split_first_chunk::<2>()?;
    *rest = tail;
    Some(u16::from_be_bytes(*head))
}

/// Writes an untagged header at the start of `frame`.
pub(crate) fn write_header(
    frame: &mut [u8; ETHERNET_HEADER_LEN],
    destination: MacAddr,
    source: MacAddr,
    ethertype: u16,
) {
    frame[..6].copy_from_slice(&destination.octets());
    frame[6..12].copy_from_slice(&source.octets());
    frame[12..].copy_from_slice(&ethertype.to_be_bytes());
}
