//! Default routes: both families, several next hops, and nothing else.

use purelb_core::facts::DefaultRoute;
use purelb_core::ids::{Family, IfIndex};

use crate::mirror::Mirror;
use crate::ns::{index_of, ip, isolated, pair};

fn route(family: Family, metric: u32, index: IfIndex) -> DefaultRoute {
    DefaultRoute { family, metric, index }
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
        assert_eq!(mirror.routes, [route(Family::V4, 100, a)], "from the first dump");

        ip("route add default via 198.51.100.254 metric 50");
        ip("-6 route add default via 2001:db8:a::fe dev a0 metric 20");
        let three = [route(Family::V4, 50, b), route(Family::V4, 100, a), route(Family::V6, 20, a)];
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
            route(Family::V4, 0, a),
            route(Family::V4, 0, b),
            route(Family::V6, 7, a),
            route(Family::V6, 7, b),
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
        mirror.until("the one that counts", |m| m.routes == [route(Family::V4, 3, a)]).await;
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
        let both = [route(Family::V4, 1, a), route(Family::V4, 2, b)];
        let mut mirror = Mirror::start().await;
        assert_eq!(mirror.routes, both);
        ip("link set a0 down");
        mirror.until("the link's route gone", |m| m.routes == [both[1]]).await;
        ip("addr del 198.51.100.1/24 dev b0");
        mirror.until("the address's route gone", |m| m.routes.is_empty()).await;
    });
}
