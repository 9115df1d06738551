//! Announcements as the other end of the cable sees them.

use std::io::Read;
use std::time::Duration;

use etherparse::{ArpOperation, NetSlice, SlicedPacket, TransportSlice};
use purelb_core::ids::{IfIndex, Vip};
use purelb_core::messages::Input;
use purelbd::announce::PacketSender;
use socket2::{Domain, Protocol, Socket, Type};

use crate::mirror::Mirror;
use crate::ns::{DEADLINE, Other, index_of, ip, ip_json, isolated, pair, until};

/// ETH_P_ALL.
const ALL_FRAMES: u16 = 0x0003;

/// A socket that sees every frame of the calling thread's namespace.
fn capture() -> Socket {
    let protocol = Protocol::from(i32::from(ALL_FRAMES.to_be()));
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

fn mac_of(interface: &str) -> String {
    ip_json(&format!("link show dev {interface}"))[0]["address"].as_str().unwrap().to_owned()
}

fn mac_text(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

/// Reads frames until `pick` recognises one.
fn next_frame<T>(socket: &mut Socket, pick: impl Fn(&SlicedPacket<'_>) -> Option<T>) -> T {
    let mut buffer = [0; 2048];
    loop {
        let length = socket.read(&mut buffer).expect("the frame did not arrive within 5 s");
        let parsed = SlicedPacket::from_ethernet(&buffer[..length]);
        if let Some(found) = parsed.ok().and_then(|packet| pick(&packet)) {
            return found;
        }
    }
}

#[test]
fn frames_arrive_as_an_independent_parser_reads_them() {
    isolated(|| async {
        let other = Other::new();
        other.cable("a0", "b0");
        let mirror = Mirror::start().await;
        let index = index_of("a0");
        let announcer = PacketSender::open(mirror.monitor.links()).unwrap();
        let mut seen = other.run(capture);

        let sent = announcer.carry_out(7, vip("192.0.2.10"), index);
        assert_eq!(sent, Input::Announced { id: 7, result: Ok(()) });
        for operation in [ArpOperation::REQUEST, ArpOperation::REPLY] {
            let (destination, sender, sender_ip, target_ip) = next_frame(&mut seen, |packet| {
                let NetSlice::Arp(arp) = packet.net.as_ref()? else {
                    return None;
                };
                let ethernet = packet.link.as_ref()?.to_header()?;
                let destination = ethernet.ethernet2()?.destination;
                (arp.operation() == operation).then(|| {
                    (
                        mac_text(&destination),
                        mac_text(arp.sender_hw_addr()),
                        arp.sender_protocol_addr().to_vec(),
                        arp.target_protocol_addr().to_vec(),
                    )
                })
            });
            assert_eq!(destination, "ff:ff:ff:ff:ff:ff");
            assert_eq!(sender, mac_of("a0"));
            assert_eq!((sender_ip, target_ip), (vec![192, 0, 2, 10], vec![192, 0, 2, 10]));
        }

        announcer.announce(vip("2001:db8::10"), index).unwrap();
        let target = std::net::Ipv6Addr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10]);
        let (hops, sum_holds, icmp) = next_frame(&mut seen, |packet| {
            let NetSlice::Ipv6(six) = packet.net.as_ref()? else {
                return None;
            };
            let TransportSlice::Icmpv6(icmp) = packet.transport.as_ref()? else {
                return None;
            };
            let header = six.header();
            let ours = icmp.type_u8() == 136 && header.source_addr() == target;
            ours.then(|| {
                let holds = icmp.is_checksum_valid(header.source(), header.destination());
                (header.hop_limit(), holds, icmp.slice().to_vec())
            })
        });
        assert_eq!((hops, sum_holds), (255, true));
        assert_eq!(icmp[4] & 0xe0, 0x20, "override, neither router nor solicited");
        assert_eq!(icmp[8..24], target.octets());
        assert_eq!(mac_text(&icmp[26..32]), mac_of("a0"));
    });
}

/// What a client's cache says of an address.
fn cached(address: &str) -> Option<String> {
    let shown = ip_json(&format!("neigh show to {address} dev b0"));
    shown[0]["lladdr"].as_str().map(str::to_owned)
}

#[test]
fn a_client_with_a_stale_cache_learns_the_new_place() {
    isolated(|| async {
        let client = Other::new();
        client.cable("a0", "b0");
        client.ip("addr add 192.0.2.100/24 dev b0");
        client.ip("-6 addr add 2001:db8::100/64 dev b0 nodad");
        let mirror = Mirror::start().await;
        let announcer = PacketSender::open(mirror.monitor.links()).unwrap();
        let index = index_of("a0");
        for address in ["192.0.2.10", "2001:db8::10"] {
            // As after the old owner answered a moment ago, and as long ago.
            for state in ["reachable", "stale"] {
                client.ip(&format!("neigh replace {address} lladdr 02:00:00:00:00:99 dev b0 nud {state}"));
                assert_eq!(client.run(move || cached(address)).as_deref(), Some("02:00:00:00:00:99"));
                announcer.announce(vip(address), index).unwrap();
                let here = mac_of("a0");
                until(&format!("{address} ({state}) at its new place"), DEADLINE, || {
                    let now = client.run(move || cached(address));
                    if now.as_deref() == Some(here.as_str()) { Ok(()) } else { Err(now) }
                })
                .await;
            }
        }
    });
}

#[test]
fn where_nothing_can_be_announced_says_why() {
    isolated(|| async {
        pair("a0", "a1");
        ip("link set lo up");
        ip("link add bridge0 type bridge");
        ip("link set bridge0 up arp off");
        ip("tuntap add dev tun0 mode tun");
        ip("link set tun0 up");
        let mirror = Mirror::start().await;
        let announcer = PacketSender::open(mirror.monitor.links()).unwrap();
        let refused = |index| announcer.announce(vip("192.0.2.10"), index).unwrap_err().to_string();
        assert!(refused(index_of("lo")).contains("no Ethernet address"));
        assert!(refused(index_of("tun0")).contains("no Ethernet address"));
        assert!(refused(index_of("bridge0")).contains("no ARP"));
        assert!(refused(IfIndex(4711)).contains("no interface 4711"));
        ip("link set a0 down");
        assert!(refused(index_of("a0")).contains("a0 is down"));
        ip("link del a0");
        let answer = announcer.carry_out(3, vip("2001:db8::1"), IfIndex(4711));
        assert!(matches!(answer, Input::Announced { id: 3, result: Err(_) }), "{answer:?}");
    });
}
