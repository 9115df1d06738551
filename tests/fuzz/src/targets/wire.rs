use purelb_wire::arp::ArpPacket;
use purelb_wire::ethernet::EthernetFrame;
use purelb_wire::ndp::NdpMessage;
use purelb_wire::{EchoMessage, FrameClass, MacAddr, classify};

use super::text;

/// What is read of a frame is in the frame.
pub fn ethernet_frame(data: &[u8]) {
    let Some(frame) = EthernetFrame::parse(data) else { return };
    assert_eq!(frame.destination.octets(), data[..6]);
    assert_eq!(frame.source.octets(), data[6..12]);
    assert!(data.ends_with(frame.payload));
    assert!(frame.vlan.is_none_or(|vlan| vlan < 4096));
    let tags = (data.len() - frame.payload.len() - 14) / 4;
    assert_eq!(data.len(), 14 + 4 * tags + frame.payload.len());
    assert_eq!(frame.vlan.is_some(), tags > 0);
}

/// A packet that is read is written as the same bytes.
pub fn arp_packet(data: &[u8]) {
    let Some(packet) = ArpPacket::parse(data) else { return };
    let written = packet.frame(MacAddr::BROADCAST);
    let frame = EthernetFrame::parse(&written).expect("a whole frame");
    assert_eq!(frame.payload, &data[..frame.payload.len()]);
    assert_eq!(ArpPacket::parse(frame.payload), Some(packet));
}

/// The fields are where the protocol has them, and what is written is read as the same.
pub fn ndp_message(data: &[u8]) {
    let Some(message) = NdpMessage::parse(data) else { return };
    assert_eq!(message.source.octets(), data[8..24]);
    assert_eq!(message.destination.octets(), data[24..40]);
    assert_eq!(message.target.octets(), data[48..64]);
    assert!(!message.target.is_multicast());
    if let Some(mac) = message.link_layer {
        assert!(data[64..].windows(6).any(|bytes| bytes == mac.octets()));
    }
    let written = message.frame(MacAddr::ZERO, MacAddr::BROADCAST);
    assert_eq!(NdpMessage::parse(&written[14..]), Some(message));
}

/// The fields are where the protocol has them, and what is written is read as the same.
pub fn echo_message(data: &[u8]) {
    let Some(message) = EchoMessage::parse(data) else { return };
    let addresses = |at: usize, len: usize| (&data[at..at + len], &data[at + len..at + 2 * len]);
    let (source, destination) = if message.source.is_ipv4() { addresses(12, 4) } else { addresses(8, 16) };
    for (ip, bytes) in [(message.source, source), (message.destination, destination)] {
        match ip {
            std::net::IpAddr::V4(ip) => assert_eq!(ip.octets(), bytes),
            std::net::IpAddr::V6(ip) => assert_eq!(ip.octets(), bytes),
        }
    }
    assert!(data.windows(message.payload.len().max(1)).any(|bytes| bytes.starts_with(message.payload)));
    let Some(written) = message.frame(MacAddr::ZERO, MacAddr::BROADCAST) else { return };
    assert_eq!(EchoMessage::parse(&written[14..]), Some(message));
}

/// Nobody is blamed for a claim that is not in the frame.
pub fn frame_class(data: &[u8]) {
    let (ip, mac) = match classify(data) {
        FrameClass::Claim(claim) => (claim.ip, claim.mac),
        FrameClass::Probe { ip, mac } => (ip, mac),
        FrameClass::Other => return,
    };
    let contains = |wanted: &[u8]| data.windows(wanted.len()).any(|bytes| bytes == wanted);
    assert!(contains(&mac.octets()), "{mac}");
    match ip {
        std::net::IpAddr::V4(ip) => assert!(contains(&ip.octets()), "{ip}"),
        std::net::IpAddr::V6(ip) => assert!(contains(&ip.octets()), "{ip}"),
    }
}

/// There is one way to write an address, but for capitals.
pub fn mac_addr(data: &[u8]) {
    let Ok(mac) = text(data).parse::<MacAddr>() else { return };
    assert_eq!(mac.to_string(), text(data).to_ascii_lowercase());
    assert_eq!(mac.to_string().parse(), Ok(mac));
}
