//! Addresses as they stand in the kernel after we put them there, by the word of `ip`
//! and of a netlink client that shares nothing with ours.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressProtocol};
use purelb_core::messages::{AddressSpec, KernelChange};
use purelbd::netlink::ADDRESS_MARK;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;

use crate::mirror::Mirror;
use crate::ns::{
    DEADLINE, address_on, addresses_on, applier, apply, apply_all, ip, isolated, pair, put, remove, spec,
    until,
};

/// The protocol marks of all addresses of an interface.
async fn protocols(index: u32) -> Vec<Option<AddressProtocol>> {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let mut found = Vec::new();
    let mut dump = handle.address().get().set_link_index_filter(index).execute();
    while let Some(message) = dump.try_next().await.unwrap() {
        found.push(message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Protocol(protocol) => Some(*protocol),
            _ => None,
        }));
    }
    found
}

#[test]
fn lifetimes_flags_and_mark_are_as_asked() {
    isolated(|| async {
        let index = pair("a0", "a1");
        ip("link set a0 addrgenmode none");
        ip("-6 addr flush dev a0");
        apply_all(
            &mut applier(),
            vec![
                put(index, "192.0.2.10/24"),
                put(index, "2001:db8::10/64"),
                KernelChange::Put(AddressSpec {
                    valid: None,
                    preferred: None,
                    no_prefix_route: false,
                    ..spec(index, "198.51.100.1/28")
                }),
                // Preferred beyond valid is cut, not refused.
                KernelChange::Put(AddressSpec { preferred: Some(1000), ..spec(index, "198.51.100.99/32") }),
            ],
        );
        let four = address_on("a0", "192.0.2.10").unwrap();
        assert_eq!(four["prefixlen"], 24);
        assert_eq!(four["noprefixroute"], true, "{four}");
        assert!((298..=300).contains(&four["valid_life_time"].as_u64().unwrap()), "{four}");
        let six = address_on("a0", "2001:db8::10").unwrap();
        assert_eq!((&six["nodad"], &six["noprefixroute"]), (&true.into(), &true.into()), "{six}");
        assert_eq!((&six["preferred_life_time"], &six["deprecated"]), (&0.into(), &true.into()), "{six}");
        assert!(six.get("tentative").is_none(), "{six}");
        let permanent = address_on("a0", "198.51.100.1").unwrap();
        assert_eq!(permanent["valid_life_time"], u32::MAX, "{permanent}");
        assert!(permanent.get("noprefixroute").is_none(), "{permanent}");
        let cut = address_on("a0", "198.51.100.99").unwrap();
        assert!(cut["preferred_life_time"].as_u64().unwrap() <= 300, "{cut}");

        let marks = protocols(index.0).await;
        assert_eq!(marks, vec![Some(AddressProtocol::Other(ADDRESS_MARK)); 4]);
    });
}

#[test]
fn a_refresh_extends_the_lifetime_and_never_removes() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        let (connection, _, mut events) = rtnetlink::new_multicast_connection(&groups).unwrap();
        tokio::spawn(connection);
        let vips = ["192.0.2.10/24", "2001:db8::10/64"];
        let refresh = |valid| {
            let specs = vips.iter().map(|vip| AddressSpec { valid: Some(valid), ..spec(index, vip) });
            specs.map(KernelChange::Put).collect::<Vec<_>>()
        };
        let mut applier = applier();
        for valid in [5, 50, 20, 600] {
            apply_all(&mut applier, refresh(valid));
            for vip in ["192.0.2.10", "2001:db8::10"] {
                let shown = address_on("a0", vip).unwrap()["valid_life_time"].as_u64().unwrap();
                assert!(
                    (u64::from(valid) - 2..=u64::from(valid)).contains(&shown),
                    "{vip}: {shown} of {valid}"
                );
            }
        }
        // Permanent and back: a replace too.
        let permanent = vips
            .iter()
            .map(|vip| KernelChange::Put(AddressSpec { valid: None, preferred: None, ..spec(index, vip) }));
        apply_all(&mut applier, permanent.collect());
        apply_all(&mut applier, refresh(300));
        apply_all(&mut applier, vips.iter().map(|vip| remove(index, vip)).collect());

        // Up to the two removals at the end there is not one.
        let (mut news, mut gone) = (0, Vec::new());
        while gone.len() < 2 {
            let (message, _) = tokio::time::timeout(DEADLINE, events.next()).await.unwrap().unwrap();
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(_)) => news += 1,
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(m))
                    if m.header.index == index.0 =>
                {
                    gone.push(news);
                }
                _ => {}
            }
        }
        assert!(gone[0] >= 12, "a removal after {gone:?} changes, of 12 before the end");
    });
}

#[test]
fn what_is_not_refreshed_ends_by_itself() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let short =
            |vip: &str, valid| KernelChange::Put(AddressSpec { valid: Some(valid), ..spec(index, vip) });
        let mut applier = applier();
        let mut mirror = Mirror::start().await;
        let vips = ["192.0.2.10/24", "192.0.2.11/24", "2001:db8::10/64", "2001:db8::11/64"];
        apply_all(&mut applier, vips.iter().map(|vip| short(vip, 2)).collect());
        mirror.until("four of ours", |m| m.addresses.values().filter(|a| a.ours).count() == 4).await;
        // Two of them are kept alive.
        apply_all(&mut applier, vec![short(vips[1], 60), short(vips[3], 60)]);
        mirror.until("two expired", |m| m.address(vips[0]).is_none() && m.address(vips[2]).is_none()).await;
        assert!(mirror.address(vips[1]).is_some() && mirror.address(vips[3]).is_some());
        // The primary went first; its neighbour in the subnet did not go with it.
        assert!(address_on("a0", "192.0.2.11").is_some());
    });
}

#[test]
fn removing_what_is_gone_is_fine() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let mut applier = applier();
        apply_all(&mut applier, vec![remove(index, "192.0.2.1/24"), remove(index, "2001:db8::1/64")]);
        let nowhere = purelb_core::ids::IfIndex(4711);
        apply_all(&mut applier, vec![remove(nowhere, "192.0.2.1/24")]);
        apply_all(&mut applier, vec![put(index, "192.0.2.1/24")]);
        ip("link del a0");
        apply_all(&mut applier, vec![remove(index, "192.0.2.1/24")]);
    });
}

#[test]
fn failures_have_words_and_do_not_stop_the_rest() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let nowhere = purelb_core::ids::IfIndex(4711);
        let results = apply(
            &mut applier(),
            vec![
                put(nowhere, "192.0.2.1/24"),
                put(index, "192.0.2.2/24"),
                KernelChange::Put(AddressSpec { valid: Some(0), ..spec(index, "192.0.2.3/24") }),
                remove(index, "192.0.2.2/24"),
                put(index, "192.0.2.4/24"),
            ],
        );
        let words = |at: usize| results[at].as_ref().unwrap_err();
        assert!(words(0).contains("no interface 4711"), "{results:?}");
        assert!(words(2).contains("would end before it begins"), "{results:?}");
        assert!([1, 3, 4].iter().all(|at| results[*at].is_ok()), "{results:?}");
        assert!(address_on("a0", "192.0.2.2").is_none(), "put, then removed, in order");
        assert!(address_on("a0", "192.0.2.4").is_some());

        std::fs::write("/proc/sys/net/ipv6/conf/a0/disable_ipv6", "1").unwrap();
        let refused = apply(&mut applier(), vec![put(index, "2001:db8::1/64")]);
        assert!(refused[0].as_ref().unwrap_err().contains("disable_ipv6"), "{refused:?}");
    });
}

#[test]
fn the_prefix_route_can_be_switched() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let mut applier = applier();
        for wanted in [true, false, true] {
            let ops = ["192.0.2.10/24", "2001:db8::10/64"]
                .map(|vip| KernelChange::Put(AddressSpec { no_prefix_route: wanted, ..spec(index, vip) }));
            apply_all(&mut applier, ops.to_vec());
            for vip in ["192.0.2.10", "2001:db8::10"] {
                let shown = address_on("a0", vip).unwrap();
                assert_eq!(shown.get("noprefixroute").is_some(), wanted, "{shown}");
            }
            let routes = crate::ns::ip_json("route show dev a0");
            let present = routes.as_array().unwrap().iter().any(|r| r["dst"] == "192.0.2.0/24");
            assert_eq!(present, !wanted, "{routes}");
        }
    });
}

#[test]
fn removing_the_first_of_a_subnet_keeps_the_others() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let mut applier = applier();
        apply_all(&mut applier, (1..=4).map(|n| put(index, &format!("192.0.2.{n}/24"))).collect());
        ip("addr add 192.0.2.200/24 dev a0");
        apply_all(&mut applier, vec![remove(index, "192.0.2.1/24")]);
        let left: Vec<_> = addresses_on("a0")
            .into_iter()
            .filter(|a| a["family"] == "inet")
            .map(|a| a["local"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(left.len(), 4, "{left:?}");
        assert!(left.contains(&"192.0.2.200".to_owned()), "the operator's went too: {left:?}");
    });
}

/// The expiry of a primary is the kernel's own doing; it must spare the others as well.
#[test]
fn an_expiring_primary_spares_an_operators_address() {
    isolated(|| async {
        let index = pair("a0", "a1");
        apply_all(
            &mut applier(),
            vec![KernelChange::Put(AddressSpec { valid: Some(1), ..spec(index, "192.0.2.1/24") })],
        );
        ip("addr add 192.0.2.200/24 dev a0");
        until("our address expired", Duration::from_secs(10), || {
            address_on("a0", "192.0.2.1").map_or(Ok(()), Err)
        })
        .await;
        assert!(address_on("a0", "192.0.2.200").is_some());
    });
}
