use etherparse::{Icmpv4Type, Icmpv6Type, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::ethernet::EthernetFrame;

const HERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const THERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn mk_echo(v6: bool, kind: EchoKind, payload: &[u8]) -> EchoMessage<'_> {
    let [source, destination] = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] }
        .map(|ip| ip.parse().unwrap());
    EchoMessage { kind, source, destination, hops: 1, id: 0xbeef, sequence: 7, payload }
}

fn read(frame: &[u8]) -> Option<EchoMessage<'_>> {
    EchoMessage::parse(EthernetFrame::parse(frame)?.payload)
}

#[test]
fn another_parser_reads_our_questions() {
    for v6 in [false, true] {
        let sent = mk_echo(v6, EchoKind::Request, b"twelve bytes");
        let frame = sent.frame(HERE, THERE).unwrap();
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        match (sliced.net.unwrap(), sliced.transport.unwrap()) {
            (NetSlice::Ipv4(ip), TransportSlice::Icmpv4(icmp)) => {
                let header = ip.header().to_header();
                assert_eq!(header.calc_header_checksum(), header.header_checksum);
                assert_eq!(IpAddr::from(ip.header().source_addr()), sent.source);
                assert_eq!(header.time_to_live, 1);
                let Icmpv4Type::EchoRequest(echo) = icmp.icmp_type() else { panic!("{icmp:?}") };
                assert_eq!((echo.id, echo.seq), (0xbeef, 7));
                assert_eq!(icmp.payload(), b"twelve bytes");
                assert_eq!(icmp.icmp_type().calc_checksum(icmp.payload()), icmp.checksum());
            }
            (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
                let header = ip.header();
                assert_eq!(IpAddr::from(header.source_addr()), sent.source);
                assert_eq!(header.hop_limit(), 1);
                let Icmpv6Type::EchoRequest(echo) = icmp.icmp_type() else { panic!("{icmp:?}") };
                assert_eq!((echo.id, echo.seq), (0xbeef, 7));
                assert_eq!(icmp.payload(), b"twelve bytes");
                assert!(icmp.is_checksum_valid(header.source(), header.destination()));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_hosts_must_ignore_is_nothing() {
    for v6 in [false, true] {
        let good = mk_echo(v6, EchoKind::Reply, b"payload").frame(HERE, THERE).unwrap();
        assert!(read(&good).is_some());
        let header = if v6 { 40 } else { 20 };
        let spoiled = |at: usize| {
            let mut frame = good.clone();
            frame[14 + at] ^= 1;
            frame
        };
        assert_eq!(read(&spoiled(header + 8)), None, "a damaged payload");
        assert_eq!(read(&spoiled(header + 2)), None, "another checksum");
        assert_eq!(read(&spoiled(header + 1)), None, "another code");
        assert_eq!(read(&good[..good.len() - 1]), None, "cut short");
    }
    let mut frame = mk_echo(false, EchoKind::Reply, b"payload").frame(HERE, THERE).unwrap();
    frame[14 + 8] += 1;
    assert_eq!(read(&frame), None, "a damaged IPv4 header");
}

#[test]
fn fragments_are_passed_over() {
    let mut frame = mk_echo(false, EchoKind::Reply, b"").frame(HERE, THERE).unwrap();
    frame[14 + 6] = 0x20;
    // The header's sum without its own field.
    frame[14 + 10..14 + 12].fill(0);
    let sum = checksum::internet(&frame[14..34]);
    frame[14 + 10..14 + 12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(checksum::internet(&frame[14..34]), 0);
    assert_eq!(read(&frame), None);
}

#[test]
fn options_of_ipv4_are_stepped_over() {
    let plain = mk_echo(false, EchoKind::Reply, b"payload").frame(HERE, THERE).unwrap();
    let mut packet = plain[14..34].to_vec();
    packet[0] = 4 << 4 | 6;
    packet[2..4].copy_from_slice(&u16::try_from(plain.len() - 14 + 4).unwrap().to_be_bytes());
    packet.extend([1; 4]);
    packet[10..12].fill(0);
    let sum = checksum::internet(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(&plain[34..]);
    assert_eq!(EchoMessage::parse(&packet).unwrap().payload, b"payload");
}

#[test]
fn what_does_not_fit_together_is_not_written() {
    let mut message = mk_echo(false, EchoKind::Request, b"");
    message.destination = "2001:db8::2".parse().unwrap();
    assert_eq!(message.frame(HERE, THERE), None);
    let long = [0; LONGEST_PAYLOAD + 1];
    assert_eq!(mk_echo(true, EchoKind::Request, &long).frame(HERE, THERE), None);
    assert!(mk_echo(true, EchoKind::Request, &long[1..]).frame(HERE, THERE).is_some());
}

proptest! {
    #[test]
    fn echoes_survive_the_wire(
        v6: bool, reply: bool, id: u16, sequence: u16, hops: u8,
        payload in proptest::collection::vec(any::<u8>(), 0..64), padding in 0usize..20,
    ) {
        let kind = if reply { EchoKind::Reply } else { EchoKind::Request };
        let sent = EchoMessage { id, sequence, hops, ..mk_echo(v6, kind, &payload) };
        let mut frame = sent.frame(HERE, THERE).unwrap();
        frame.resize(frame.len() + padding, 0xee);
        prop_assert_eq!(read(&frame), Some(sent));
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        EchoMessage::parse(&bytes);
    }

    #[test]
    fn damaged_packets_are_read(
        v6: bool, cut in 0usize..120, damage in proptest::collection::vec((0usize..100, any::<u8>()), 0..6),
    ) {
        let mut frame = mk_echo(v6, EchoKind::Reply, b"payload").frame(HERE, THERE).unwrap();
        for (at, value) in &damage {
            if let Some(byte) = frame.get_mut(*at) {
                *byte = *value;
            }
        }
        frame.truncate(cut);
        read(&frame);
    }
}
