use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{Icmpv6Type, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::{announcement_frames, arp, ndp};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const VIP4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);
const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x100);

fn mk_arp(operation: ArpOperation, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Vec<u8> {
    let packet = arp::ArpPacket { operation, sender_mac: MAC, sender_ip, target_mac: OTHER, target_ip };
    packet.frame(OTHER).to_vec()
}

/// The same frame with VLAN tags in front of its type.
fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut out = frame[..12].to_vec();
    for (tpid, tci) in tags {
        out.extend(tpid.to_be_bytes());
        out.extend(tci.to_be_bytes());
    }
    out.extend(&frame[12..]);
    out
}

/// Writes the checksum a changed message needs, through the independent parser.
fn resum(frame: &mut [u8]) {
    frame[56..58].fill(0);
    let sum = {
        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) = (sliced.net, sliced.transport)
        else {
            panic!("not ICMPv6");
        };
        let ip = ip.header();
        icmp.icmp_type().calc_checksum(ip.source(), ip.destination(), icmp.payload()).unwrap()
    };
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
}

/// A solicitation made from the advertisement: same layout, other type and option.
fn mk_solicitation(source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let mut frame = ndp::unsolicited_advertisement(target, MAC);
    frame[22..38].copy_from_slice(&source.octets());
    frame[54] = 135;
    frame[58] = 0;
    frame[78] = 1;
    resum(&mut frame);
    frame
}

#[test]
fn an_announcement_is_both_arp_forms_or_one_advertisement() {
    let kinds = |vip: IpAddr| {
        let frames = announcement_frames(vip, MAC);
        frames
            .iter()
            .map(|frame| {
                let claim = classify(frame).claim().unwrap();
                assert_eq!((claim.ip, claim.mac), (vip, MAC));
                assert!(claim.kind.is_announcement());
                claim.kind
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(VIP4.into()), [ClaimKind::GarpRequest, ClaimKind::GarpReply]);
    assert_eq!(kinds(VIP6.into()), [ClaimKind::UnsolicitedAdvertisement { overrides: true }]);
}

#[test]
fn answers_and_questions_are_told_apart() {
    let asker = Ipv4Addr::new(192, 0, 2, 1);
    let claim = |frame: &[u8]| classify(frame).claim().map(|c| (c.ip, c.kind));
    assert_eq!(claim(&mk_arp(ArpOperation::Reply, VIP4, asker)), Some((VIP4.into(), ClaimKind::ArpReply)));
    assert_eq!(
        claim(&mk_arp(ArpOperation::Request, asker, VIP4)),
        Some((asker.into(), ClaimKind::ArpRequestSender))
    );

    let solicited = {
        let mut frame = ndp::unsolicited_advertisement(VIP6, MAC);
        frame[58] |= 0x40;
        resum(&mut frame);
        frame
    };
    let kind = ClaimKind::SolicitedAdvertisement { overrides: true };
    assert_eq!(claim(&solicited), Some((VIP6.into(), kind)));
    let asker = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    assert_eq!(claim(&mk_solicitation(asker, VIP6)), Some((asker.into(), ClaimKind::SolicitationSource)));
}

#[test]
fn asking_whether_an_address_is_free_claims_nothing() {
    let probe = mk_arp(ArpOperation::Request, Ipv4Addr::UNSPECIFIED, VIP4);
    assert_eq!(classify(&probe), FrameClass::Probe { ip: VIP4.into(), mac: MAC });
    let dad = mk_solicitation(Ipv6Addr::UNSPECIFIED, VIP6);
    assert_eq!(classify(&dad), FrameClass::Probe { ip: VIP6.into(), mac: MAC });
}

#[test]
fn what_hosts_must_ignore_is_no_claim() {
    let good = ndp::unsolicited_advertisement(VIP6, MAC);
    assert!(classify(&good).claim().is_some());
    let spoiled = |at: usize, value: u8, fix_sum: bool| {
        let mut frame = good.clone();
        frame[at] = value;
        if fix_sum {
            resum(&mut frame);
        }
        classify(&frame)
    };
    assert_eq!(spoiled(21, 254, false), FrameClass::Other, "hop limit: came through a router");
    assert_eq!(spoiled(57, good[57] ^ 1, false), FrameClass::Other, "checksum");
    assert_eq!(spoiled(55, 1, true), FrameClass::Other, "code");
    assert_eq!(spoiled(79, 0, true), FrameClass::Other, "an option of no length");
    assert_eq!(spoiled(79, 9, true), FrameClass::Other, "an option past the end");
    assert_eq!(spoiled(62, 0xff, true), FrameClass::Other, "a group as target");
}

#[test]
fn without_the_option_the_frame_names_the_owner() {
    let mut frame = ndp::unsolicited_advertisement(VIP6, MAC)[..78].to_vec();
    frame[19] = 24;
    resum(&mut frame);
    assert_eq!(classify(&frame).claim().unwrap().mac, MAC);
}

#[test]
fn short_frames_are_padded_on_the_wire() {
    for vip in [IpAddr::from(VIP4), VIP6.into()] {
        for mut frame in announcement_frames(vip, MAC) {
            let bare = classify(&frame);
            frame.extend([0xee; 18]);
            assert_eq!(classify(&frame), bare);
        }
    }
}

#[test]
fn another_parser_reads_our_arp() {
    for (frame, operation, target) in
        [(arp::gratuitous_request(VIP4, MAC), 1, [0; 6]), (arp::gratuitous_reply(VIP4, MAC), 2, [0xff; 6])]
    {
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        let header = sliced.link.as_ref().unwrap().to_header().unwrap().ethernet2().unwrap();
        assert_eq!((header.destination, header.source), ([0xff; 6], MAC.octets()));
        let Some(NetSlice::Arp(packet)) = sliced.net else { panic!("not ARP: {sliced:?}") };
        let packet = packet.to_packet().try_eth_ipv4().unwrap();
        assert_eq!(packet.operation.0, operation);
        assert_eq!((packet.sender_mac, packet.sender_ipv4), (MAC.octets(), VIP4.octets()));
        assert_eq!((packet.target_mac, packet.target_ipv4), (target, VIP4.octets()));
    }
}

#[test]
fn another_parser_reads_our_advertisement() {
    let frame = ndp::unsolicited_advertisement(VIP6, MAC);
    let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
    let header = sliced.link.as_ref().unwrap().to_header().unwrap().ethernet2().unwrap();
    assert_eq!((header.destination, header.source), ([0x33, 0x33, 0, 0, 0, 1], MAC.octets()));
    let Some(NetSlice::Ipv6(ip)) = sliced.net else { panic!("not IPv6: {sliced:?}") };
    let ip = ip.header();
    assert_eq!(ip.hop_limit(), 255);
    assert_eq!((ip.source_addr(), ip.destination_addr()), (VIP6, "ff02::1".parse().unwrap()));
    let Some(TransportSlice::Icmpv6(icmp)) = sliced.transport else { panic!("not ICMPv6") };
    assert!(icmp.is_checksum_valid(ip.source(), ip.destination()));
    let Icmpv6Type::NeighborAdvertisement(flags) = icmp.icmp_type() else { panic!("not an advertisement") };
    assert_eq!((flags.router, flags.solicited, flags.r#override), (false, false, true));
    assert_eq!(icmp.payload()[..16], VIP6.octets());
    assert_eq!(icmp.payload()[16..], [2, 1, 2, 0, 0, 0, 0, 7]);
}

fn any_mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn any_tags() -> impl Strategy<Value = Vec<(u16, u16)>> {
    let tpid = prop_oneof![Just(ethernet::ETHERTYPE_VLAN), Just(ethernet::ETHERTYPE_QINQ)];
    proptest::collection::vec((tpid, any::<u16>()), 0..3)
}

proptest! {
    #[test]
    fn arp_survives_the_wire(
        mac in any_mac(), to in any_mac(), sender: Ipv4Addr, target: Ipv4Addr, reply: bool, tags in any_tags(),
    ) {
        let operation = if reply { ArpOperation::Reply } else { ArpOperation::Request };
        let sent = arp::ArpPacket { operation, sender_mac: mac, sender_ip: sender, target_mac: to, target_ip: target };
        let frame = tagged(&sent.frame(to), &tags);
        let parsed = EthernetFrame::parse(&frame).unwrap();
        prop_assert_eq!((parsed.source, parsed.destination), (mac, to));
        prop_assert_eq!(parsed.vlan, tags.last().map(|(_, tci)| tci & 0xfff));
        prop_assert_eq!(arp::ArpPacket::parse(parsed.payload), Some(sent));
    }

    #[test]
    fn advertisements_survive_the_wire(mac in any_mac(), octets: [u8; 16], tags in any_tags()) {
        let vip = Ipv6Addr::from(octets);
        prop_assume!(!vip.is_multicast());
        let frame = tagged(&ndp::unsolicited_advertisement(vip, mac), &tags);
        let kind = ClaimKind::UnsolicitedAdvertisement { overrides: true };
        prop_assert_eq!(classify(&frame), FrameClass::Claim(AddressClaim { ip: vip.into(), mac, kind }));
    }

    #[test]
    fn the_checksum_agrees_with_another_implementation(octets: [u8; 16], mac in any_mac()) {
        let frame = ndp::unsolicited_advertisement(Ipv6Addr::from(octets), mac);
        let mut again = frame.clone();
        resum(&mut again);
        prop_assert_eq!(frame, again);
    }

    #[test]
    fn any_bytes_are_classified(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        classify(&bytes);
    }

    /// Random bytes seldom get past the type field: start from good frames.
    #[test]
    fn damaged_frames_are_classified(
        v6: bool, tags in any_tags(), cut in 0usize..120,
        damage in proptest::collection::vec((0usize..120, any::<u8>()), 0..6),
    ) {
        let vip: IpAddr = if v6 { VIP6.into() } else { VIP4.into() };
        for frame in announcement_frames(vip, MAC) {
            let mut frame = tagged(&frame, &tags);
            for (at, value) in &damage {
                if let Some(byte) = frame.get_mut(*at) {
                    *byte = *value;
                }
            }
            frame.truncate(cut);
            classify(&frame);
        }
    }

    /// Behind the checksum too: bodies and options of any content, with a good sum.
    #[test]
    fn any_message_with_a_good_sum_is_classified(advert: bool, rest in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut frame = ndp::unsolicited_advertisement(VIP6, MAC)[..58].to_vec();
        frame.extend(&rest);
        frame.resize(frame.len().max(62), 0);
        // The other implementation sums reserved bits as zero.
        let flags = if advert { frame[58] & 0xe0 } else { 0 };
        frame[58..62].copy_from_slice(&[flags, 0, 0, 0]);
        frame[54] = if advert { 136 } else { 135 };
        let length = u16::try_from(frame.len() - 54).unwrap();
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        resum(&mut frame);
        classify(&frame);
    }
}
