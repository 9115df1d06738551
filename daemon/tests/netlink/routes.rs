//! Default routes: both families, several next hops, and nothing else.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use purelb_core::facts::DefaultRoute;
use purelb_core::ids::{Family, IfIndex};

use crate::mirror::Mirror;
use crate::ns::{index_of, ip, isolated, pair};

fn route(family: Family, metric: u32, index: IfIndex, gateway: &str) -> DefaultRoute {
    DefaultRoute { family, metric, index, gateway: Some(gateway.parse().unwrap()) }
}

fn two_links() -> (IfIndex, IfIndex) {
    pair("a0", "a1");
    pair("b0", "b1");
    ip("addr add 192.0.2.1/24 dev a0");
    ip("addr add 198.51.100.1/24 dev b0");
    ip("-6 addr add 2001:db8:a::1/64 dev a0 nodad");
    ip("-6 addr add 2001:db8:b::1/64 dev b0 nodad");
    (index_of("a0"), index_of("b0"))
}

#[test]
fn both_families_with_metrics() {
    isolated(|| async {
        let (a, b) = two_links();
        ip("route add default via 192.0.2.254 metric 100");
        let mut mirror = Mirror::start().await;
        assert_eq!(mirror.routes, [route(Family::V4, 100, a, "192.0.2.254")], "from the first dump");

        ip("route add default via 198.51.100.254 metric 50");
        ip("-6 route add default via 2001:db8:a::fe dev a0 metric 20");
        let three = [
            route(Family::V4, 50, b, "198.51.100.254"),
            route(Family::V4, 100, a, "192.0.2.254"),
            route(Family::V6, 20, a, "2001:db8:a::fe"),
        ];
        mirror.until("three", |m| m.routes == three).await;

        ip("route del default via 192.0.2.254 metric 100");
        mirror.until("two", |m| m.routes == [three[0], three[2]]).await;
        ip("-6 route del default");
        mirror.until("one", |m| m.routes == [three[0]]).await;
    });
}

#[test]
fn every_next_hop_counts() {
    isolated(|| async {
        let (a, b) = two_links();
        let mut mirror = Mirror::start().await;
        ip("route add default nexthop via 192.0.2.254 nexthop via 198.51.100.254");
        ip(
            "-6 route add default metric 7 nexthop via 2001:db8:a::fe dev a0 nexthop via 2001:db8:b::fe dev b0",
        );
        let all = [
            route(Family::V4, 0, a, "192.0.2.254"),
            route(Family::V4, 0, b, "198.51.100.254"),
            route(Family::V6, 7, a, "2001:db8:a::fe"),
            route(Family::V6, 7, b, "2001:db8:b::fe"),
        ];
        mirror.until("two hops in each family", |m| m.routes == all).await;
        // One leg of the IPv6 route goes; the other stays.
        ip("-6 route del default metric 7 via 2001:db8:a::fe dev a0");
        mirror.until("one hop less", |m| m.routes == [all[0], all[1], all[3]]).await;
    });
}

#[test]
fn other_tables_kinds_and_sources_do_not_count() {
    isolated(|| async {
        let (a, _) = two_links();
        let mut mirror = Mirror::start().await;
        ip("route add default via 192.0.2.254 table 100");
        ip("route add default via 192.0.2.254 table 5000");
        ip("route add blackhole default metric 900");
        ip("-6 route add unreachable default metric 900");
        ip("-6 route add default from 2001:db8:a::/64 via 2001:db8:a::fe dev a0");
        ip("route add 0.0.0.0/1 via 192.0.2.254");
        ip("route add default via 192.0.2.254 metric 3");
        mirror.until("the one that counts", |m| m.routes == [route(Family::V4, 3, a, "192.0.2.254")]).await;
        assert_eq!(mirror.log.iter().filter(|l| l.contains("DefaultRoutes")).count(), 1, "{:#?}", mirror.log);
    });
}

/// The kernel says nothing of routes that end with a link or an address.
#[test]
fn routes_that_vanish_silently_are_noticed() {
    isolated(|| async {
        let (a, b) = two_links();
        ip("route add default via 192.0.2.254 metric 1");
        ip("route add default via 198.51.100.254 metric 2 src 198.51.100.1");
        let both = [route(Family::V4, 1, a, "192.0.2.254"), route(Family::V4, 2, b, "198.51.100.254")];
        let mut mirror = Mirror::start().await;
        assert_eq!(mirror.routes, both);
        ip("link set a0 down");
        mirror.until("the link's route gone", |m| m.routes == [both[1]]).await;
        ip("addr del 198.51.100.1/24 dev b0");
        mirror.until("the address's route gone", |m| m.routes.is_empty()).await;
    });
}

/// Routes through objects made with `ip nexthop`, alone and in a group, also where the kernel
/// does not spell them out in the route.
#[test]
fn nexthop_objects_are_followed() {
    isolated(|| async {
        let (a, b) = two_links();
        std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").unwrap();
        ip("nexthop add id 1 via 192.0.2.254 dev a0");
        ip("nexthop add id 2 via 198.51.100.254 dev b0");
        ip("nexthop add id 3 group 1/2");
        ip("nexthop add id 61 via 2001:db8:a::fe dev a0");
        ip("route add default nhid 1 metric 5");
        let mut mirror = Mirror::start().await;
        assert_eq!(mirror.routes, [route(Family::V4, 5, a, "192.0.2.254")], "from the first dump");

        ip("-6 route add default nhid 61 metric 9");
        ip("route add default nhid 3 metric 6");
        let all = [
            route(Family::V4, 5, a, "192.0.2.254"),
            route(Family::V4, 6, a, "192.0.2.254"),
            route(Family::V4, 6, b, "198.51.100.254"),
            route(Family::V6, 9, a, "2001:db8:a::fe"),
        ];
        mirror.until("a group, and IPv6", |m| m.routes == all).await;
        // The object changes, and no route says so.
        ip("nexthop replace id 1 via 198.51.100.254 dev b0");
        let moved = [
            route(Family::V4, 5, b, "198.51.100.254"),
            route(Family::V4, 6, b, "198.51.100.254"),
            route(Family::V6, 9, a, "2001:db8:a::fe"),
        ];
        mirror.until("another interface", |m| m.routes == moved).await;
        // And so it does when the object goes, with its routes.
        ip("nexthop del id 61");
        mirror.until("no IPv6", |m| m.routes == moved[..2]).await;
    });
}

/// A router's table is not read for links and addresses that no default route hangs on.
#[test]
fn routes_are_read_only_for_what_can_change_them() {
    isolated(|| async {
        two_links();
        ip("route add default via 192.0.2.254 metric 100");
        let mut mirror = Mirror::start().await;
        // The second reading belongs to the first dump.
        ip("addr add 10.9.0.1/32 dev lo");
        mirror.until("the first sentinel", |m| m.address("10.9.0.1/32").is_some()).await;
        crate::ns::until("quiet", crate::ns::DEADLINE, || {
            let reads = mirror.monitor.stats().route_reads.load(Ordering::Relaxed);
            if reads == 2 { Ok(()) } else { Err(reads) }
        })
        .await;
        pair("c0", "c1");
        ip("addr add 203.0.113.1/24 dev c0");
        ip("link set c1 down");
        ip("link set b0 down");
        ip("addr add 192.0.2.77/24 dev a0");
        ip("addr del 192.0.2.77/24 dev a0");
        ip("route add 10.0.0.0/8 via 192.0.2.254");
        ip("route add default via 192.0.2.254 table 100");
        ip("link del c0");
        ip("addr add 10.9.0.2/32 dev lo");
        mirror.until("the sentinel", |m| m.address("10.9.0.2/32").is_some() && m.link("c0").is_none()).await;
        assert_eq!(mirror.monitor.stats().route_reads.load(Ordering::Relaxed), 2);
        ip("link set a0 down");
        mirror.until("the route gone with its link", |m| m.routes.is_empty()).await;
        assert_eq!(mirror.monitor.stats().route_reads.load(Ordering::Relaxed), 3);
    });
}

/// Two hundred thousand routes take a while to walk. Whatever else happens is told meanwhile.
#[test]
fn a_long_table_does_not_hold_up_anything_else() {
    isolated(|| async {
        let (a, b) = two_links();
        let mut batch = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut lines = String::new();
        for n in 0..200_000_u32 {
            let net = std::net::Ipv4Addr::from_bits(0x0b00_0000 + (n << 4));
            lines.push_str(&format!("route add {net}/28 via 192.0.2.254\n"));
        }
        batch.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(batch.wait().unwrap().success());
        ip("route add default via 192.0.2.254 metric 100");
        let mut mirror = Mirror::start().await;
        assert_eq!(mirror.routes, [route(Family::V4, 100, a, "192.0.2.254")]);
        mirror.log.clear();
        ip("route add default via 198.51.100.254 metric 50");
        ip("addr add 192.0.2.77/24 dev a0");
        mirror.until("both", |m| m.routes.len() == 2 && m.address("192.0.2.77/24").is_some()).await;
        assert_eq!(mirror.routes[0], route(Family::V4, 50, b, "198.51.100.254"));
        let position = |word: &str| mirror.log.iter().position(|line| line.contains(word)).unwrap();
        assert!(position("192.0.2.77") < position("DefaultRoutes"), "{:#?}", mirror.log);
    });
}
