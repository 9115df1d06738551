use std::net::{Ipv4Addr, Ipv6Addr};

use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteNextHop, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use proptest::prelude::*;

use super::*;
use crate::netlink::message::{NetlinkRequest, messages};
use crate::netlink::ownership::ADDRESS_MARK;

fn bytes(message: RouteNetlinkMessage) -> Vec<u8> {
    let mut datagram = Vec::new();
    assert!(NetlinkRequest::new(message, 0).encode(purelb_core::Mono::ZERO, 1, &mut datagram));
    datagram
}

/// What our reading makes of a message that another library wrote.
fn read(message: RouteNetlinkMessage) -> Option<KernelEvent> {
    event(&messages(&bytes(message)).next().unwrap())
}

fn routes(message: RouteMessage) -> Vec<(Family, u32, u32)> {
    let datagram = bytes(RouteNetlinkMessage::NewRoute(message));
    let found = default_route(&messages(&datagram).next().unwrap());
    let found =
        found.into_iter().flat_map(|r| r.hops.into_iter().map(move |h| (r.family, r.metric, h.index.0)));
    found.collect()
}

fn mk_route(family: AddressFamily, attributes: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.table = 254;
    message.header.kind = RouteType::Unicast;
    message.attributes = attributes;
    message
}

fn mk_link(layer: LinkLayerType, mac: &[u8]) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = 3;
    message.header.link_layer_type = layer;
    message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    message.attributes = vec![
        LinkAttribute::IfName("eth0".to_owned()),
        LinkAttribute::Address(mac.to_vec()),
        LinkAttribute::IfAlias("purelb".to_owned()),
    ];
    message
}

#[test]
fn a_link_with_its_hardware_address() {
    let Some(KernelEvent::Link(link)) =
        read(RouteNetlinkMessage::NewLink(mk_link(LinkLayerType::Ether, &[2, 0, 0, 0, 0, 1])))
    else {
        panic!("not read as a link");
    };
    assert_eq!((link.facts.index, link.facts.name.as_str()), (IfIndex(3), "eth0"));
    assert!(link.facts.usable() && !link.no_arp);
    assert_eq!(link.facts.mac, Some([2, 0, 0, 0, 0, 1]));
    assert!(!link.facts.ours, "an alias is anybody's to set");
}

/// Only what purelb makes, and marks, is its to remove.
#[test]
fn a_link_is_ours_by_its_kind_and_its_alias() {
    let ours = |kind: Option<InfoKind>, alias: &str, flags: LinkFlags| {
        let mut message = mk_link(LinkLayerType::Ether, &[2, 0, 0, 0, 0, 1]);
        message.header.flags |= flags;
        message.attributes.retain(|a| !matches!(a, LinkAttribute::IfAlias(_)));
        message.attributes.push(LinkAttribute::IfAlias(alias.to_owned()));
        message.attributes.extend(kind.map(|kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])));
        match read(RouteNetlinkMessage::NewLink(message)) {
            Some(KernelEvent::Link(link)) => link.facts.ours,
            _ => panic!("not read as a link"),
        }
    };
    assert!(ours(Some(InfoKind::Dummy), "purelb", LinkFlags::Noarp));
    assert!(ours(Some(InfoKind::Bridge), "purelb", LinkFlags::Noarp));
    assert!(!ours(Some(InfoKind::Bridge), "purelb", LinkFlags::Up), "somebody's bridge");
    assert!(!ours(Some(InfoKind::Vlan), "purelb", LinkFlags::Noarp));
    assert!(!ours(Some(InfoKind::Dummy), "uplink", LinkFlags::Noarp));
    assert!(!ours(None, "purelb", LinkFlags::Noarp));
}

#[test]
fn what_is_not_an_ethernet_address_is_none() {
    for (layer, mac) in [
        (LinkLayerType::Ether, &[1; 4][..]),
        (LinkLayerType::Tunnel, &[10, 0, 0, 1]),
        (LinkLayerType::Loopback, &[0; 6]),
        (LinkLayerType::Infiniband, &[1; 20]),
    ] {
        match read(RouteNetlinkMessage::NewLink(mk_link(layer, mac))) {
            Some(KernelEvent::Link(link)) => assert_eq!(link.facts.mac, None, "{layer:?}"),
            other => panic!("{layer:?}: {other:?}"),
        }
    }
}

#[test]
fn a_bridge_speaking_of_its_port_does_not_remove_it() {
    let mut message = mk_link(LinkLayerType::Ether, &[2; 6]);
    assert_eq!(read(RouteNetlinkMessage::DelLink(message.clone())), Some(KernelEvent::LinkGone(IfIndex(3))));
    message.header.interface_family = AddressFamily::Bridge;
    assert_eq!(read(RouteNetlinkMessage::DelLink(message)), None);
}

fn hop(index: u32) -> RouteNextHop {
    let mut hop = RouteNextHop::default();
    hop.interface_index = index;
    hop
}

#[test]
fn default_routes_of_the_main_table_only() {
    let one = |family, metric, index: u32| (family, metric, index);
    let simple = vec![RouteAttribute::Oif(4), RouteAttribute::Priority(100)];
    assert_eq!(routes(mk_route(AddressFamily::Inet, simple.clone())), [one(Family::V4, 100, 4)]);
    assert_eq!(routes(mk_route(AddressFamily::Inet6, simple.clone())), [one(Family::V6, 100, 4)]);
    let hops = vec![RouteAttribute::MultiPath(vec![hop(4), hop(5)])];
    assert_eq!(routes(mk_route(AddressFamily::Inet, hops)), [one(Family::V4, 0, 4), one(Family::V4, 0, 5)]);

    let mut other = mk_route(AddressFamily::Inet, simple.clone());
    other.header.destination_prefix_length = 1;
    assert!(routes(other).is_empty());
    let mut other = mk_route(AddressFamily::Inet, simple.clone());
    other.header.kind = RouteType::BlackHole;
    assert!(routes(other).is_empty());
    let mut other = mk_route(AddressFamily::Inet, simple.clone());
    other.header.table = 252;
    other.attributes.push(RouteAttribute::Table(5000));
    assert!(routes(other).is_empty());
    assert!(routes(mk_route(AddressFamily::Mpls, simple)).is_empty());
}

/// As `ip nexthop add id 10 group 1/2` and `ip nexthop add id 1 dev eth0` make them.
#[test]
fn nexthop_objects_have_an_interface_or_members() {
    let attribute = |kind: u16, value: &[u8]| {
        let length = u16::try_from(value.len() + 4).unwrap().to_ne_bytes();
        [&length[..], &kind.to_ne_bytes(), value].concat()
    };
    let object = |kind, attributes: &[Vec<u8>]| {
        let body = [vec![0; NEXTHOP_OBJECT_HEADER], attributes.concat()].concat();
        nexthop(&RawMessage { kind, flags: 0, seq: 0, body: &body })
    };
    let id = attribute(NHA_ID, &10_u32.to_ne_bytes());
    let one = object(RTM_NEWNEXTHOP, &[id.clone(), attribute(NHA_OIF, &4_u32.to_ne_bytes())]).unwrap();
    let hop = |gateway| Some(NextHop { index: IfIndex(4), gateway });
    assert_eq!(one, NexthopObject { id: 10, hop: hop(None), group: vec![] });
    let members: Vec<u8> = [1_u32, 2].iter().flat_map(|id| [id.to_ne_bytes(), [0; 4]].concat()).collect();
    let group = object(RTM_DELNEXTHOP, &[id, attribute(NHA_GROUP, &members)]).unwrap();
    assert_eq!(group, NexthopObject { id: 10, hop: None, group: vec![1, 2] });
    // Through a router: the header says of which family it is.
    let gateway: Ipv6Addr = "fe80::1".parse().unwrap();
    let mut body = vec![0; NEXTHOP_OBJECT_HEADER];
    body[0] = AF_INET6;
    for (kind, value) in [
        (NHA_ID, &10_u32.to_ne_bytes()[..]),
        (NHA_OIF, &4_u32.to_ne_bytes()),
        (NHA_GATEWAY, &gateway.octets()),
    ] {
        body.extend(attribute(kind, value));
    }
    let routed = nexthop(&RawMessage { kind: RTM_NEWNEXTHOP, flags: 0, seq: 0, body: &body }).unwrap();
    assert_eq!(routed.hop, hop(Some(gateway.into())));
    assert_eq!(object(RTM_NEWNEXTHOP, &[]), None, "without a number it is none");
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).into()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).into()),
    ]
}

fn any_attribute() -> impl Strategy<Value = AddressAttribute> {
    prop_oneof![
        any_ip().prop_map(AddressAttribute::Address),
        any_ip().prop_map(AddressAttribute::Local),
        "[a-z:0-9]{0,15}".prop_map(AddressAttribute::Label),
        any::<u32>().prop_map(|bits| AddressAttribute::Flags(AddressFlags::from_bits_retain(bits))),
        any::<u8>().prop_map(|proto| AddressAttribute::Protocol(AddressProtocol::from(proto))),
        any::<[u32; 4]>().prop_map(|[a, b, c, d]| {
            let mut info = CacheInfo::default();
            (info.ifa_preferred, info.ifa_valid, info.cstamp, info.tstamp) = (a, b, c, d);
            AddressAttribute::CacheInfo(info)
        }),
    ]
}

proptest! {
    /// Whatever attributes come, in whatever order and number: facts or nothing, and
    /// the facts are those of the message.
    #[test]
    fn any_attributes(
        family in prop_oneof![Just(AddressFamily::Inet), Just(AddressFamily::Inet6), any::<u8>().prop_map(AddressFamily::from)],
        prefix in any::<u8>(),
        index in any::<u32>(),
        attributes in prop::collection::vec(any_attribute(), 0..6),
    ) {
        let mut message = AddressMessage::default();
        (message.header.family, message.header.prefix_len, message.header.index) = (family, prefix, index);
        message.attributes = attributes.clone();
        if let Some(KernelEvent::Address(address)) = read(RouteNetlinkMessage::NewAddress(message)) {
            let facts = address.facts(&AddressOwnership::kernel());
            prop_assert_eq!(facts.index, IfIndex(index));
            prop_assert_eq!(facts.net.prefix_len(), prefix);
            prop_assert_eq!(facts.net.addr().is_ipv4(), family == AddressFamily::Inet);
            let marked = attributes.iter().rev().find_map(|a| match a {
                AddressAttribute::Protocol(proto) => Some(u8::from(*proto) == ADDRESS_MARK),
                _ => None,
            });
            prop_assert_eq!(facts.ours, marked == Some(true));
            let ips = attributes.iter().any(|a| {
                matches!(a, AddressAttribute::Address(ip) | AddressAttribute::Local(ip) if *ip == facts.net.addr())
            });
            prop_assert!(ips);
        }
    }

    #[test]
    fn a_whole_address_is_always_read(ip in any_ip(), cut in 0_u8..=32, index in 1_u32.., flags in any::<u32>()) {
        let mut message = AddressMessage::default();
        message.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.prefix_len = cut;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(ip),
            AddressAttribute::Flags(AddressFlags::from_bits_retain(flags)),
        ];
        let Some(KernelEvent::Address(address)) = read(RouteNetlinkMessage::NewAddress(message)) else {
            return Err(TestCaseError::fail("not read"));
        };
        let facts = address.facts(&AddressOwnership::kernel());
        prop_assert_eq!(facts.net.addr(), ip);
        prop_assert_eq!(facts.tentative, flags & 0x40 != 0);
        prop_assert_eq!(facts.no_prefix_route, flags & 0x200 != 0);
    }

    /// Any bytes behind any of the message types we read.
    #[test]
    fn any_body(kind in prop_oneof![14_u16..30, 103_u16..107], body in prop::collection::vec(any::<u8>(), 0..120)) {
        let message = RawMessage { kind, flags: 0, seq: 0, body: &body };
        let _ = event(&message);
        let _ = (default_route(&message), nexthop(&message));
    }

    /// Well-formed headers with attributes of any contents and of wrong lengths.
    #[test]
    fn any_attribute_contents(
        kind in prop::sample::select(vec![16_u16, 20, 24, 104]),
        head in any::<[u8; 16]>(),
        attributes in prop::collection::vec((0_u16..40, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
    ) {
        for header in [8, 12, 16] {
            let mut body = head[..header].to_vec();
            // A default route, so that it is not passed over at once.
            (body[1], body[2]) = (0, 0);
            for (kind, value) in &attributes {
                body.extend(u16::try_from(value.len() + 4).unwrap().to_ne_bytes());
                body.extend(kind.to_ne_bytes());
                body.extend(value);
                body.resize(body.len().next_multiple_of(4), 0);
            }
            let message = RawMessage { kind, flags: 0, seq: 0, body: &body };
            let _ = event(&message);
            let _ = (default_route(&message), nexthop(&message));
        }
    }
}
