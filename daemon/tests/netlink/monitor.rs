//! The monitor sees what `ip` does, and never loses track.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use purelb_core::facts::LinkFacts;
use purelb_core::ids::IfIndex;
use purelbd::netlink::{AddressOwnership, MonitorSettings};

use crate::mirror::Mirror;
use crate::ns::{Other, applier, apply_all, index_of, ip, ip_json, isolated, pair, put, remove, spec};

#[test]
fn links_come_change_and_go() {
    isolated(|| async {
        let mut mirror = Mirror::start().await;
        assert!(mirror.link("lo").unwrap().loopback);

        pair("a0", "a1");
        mirror
            .until("both ends up", |m| {
                ["a0", "a1"].iter().all(|name| m.link(name).is_some_and(LinkFacts::usable))
            })
            .await;
        let index = index_of("a0");
        let known = mirror.monitor.links().get(index).unwrap();
        let shown = ip_json("link show dev a0");
        let mac = known.facts.mac.unwrap().map(|byte| format!("{byte:02x}")).join(":");
        assert_eq!(shown[0]["address"], mac, "the hardware address for packets");

        ip("link set a1 down");
        mirror.until("no carrier", |m| m.link("a0").is_some_and(|l| l.up && !l.carrier)).await;
        // Kernels before 6.2 rename only what is down.
        ip("link set a0 down");
        ip("link set a0 name b0");
        ip("link set b0 up");
        mirror.until("the new name", |m| m.links[&index].name.as_str() == "b0").await;

        ip("addr add 192.0.2.1/24 dev b0");
        mirror.until("an address", |m| m.address("192.0.2.1/24").is_some()).await;
        ip("link del b0");
        mirror.until("gone with its address", |m| m.link("b0").is_none() && m.addresses.is_empty()).await;
        assert!(mirror.monitor.links().get(index).is_none());
    });
}

#[test]
fn a_port_that_leaves_its_bridge_is_still_there() {
    isolated(|| async {
        pair("a0", "a1");
        ip("link add bridge0 type bridge");
        ip("link set a0 master bridge0");
        let mut mirror = Mirror::start().await;
        ip("link set a0 nomaster");
        // The sentinel comes after whatever the above led to.
        ip("link add bridge1 type bridge");
        mirror.until("the sentinel", |m| m.link("bridge1").is_some()).await;
        assert!(mirror.link("a0").is_some(), "{mirror:#?}");
    });
}

#[test]
fn addresses_with_labels_far_ends_and_flags() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let mut mirror = Mirror::start().await;
        ip("addr add 192.0.2.1/24 dev a0 label a0:web");
        ip("addr add 192.0.2.9 peer 198.51.100.9/32 dev a0");
        ip("addr add 192.0.2.9 peer 198.51.100.10/32 dev a0");
        ip("addr add 192.0.2.77/24 dev a0 noprefixroute valid_lft 100 preferred_lft 50");
        ip("-6 addr add 2001:db8::7/64 dev a0 nodad valid_lft 100 preferred_lft 0");
        mirror
            .until("all of them", |m| {
                ["192.0.2.1/24", "192.0.2.9/32", "192.0.2.77/24", "2001:db8::7/64"]
                    .iter()
                    .all(|a| m.address(a).is_some())
                    && m.addresses.values().any(|a| a.link_local && !a.tentative)
            })
            .await;
        let permanent = mirror.address("192.0.2.1/24").unwrap();
        assert!(
            permanent.permanent && !permanent.ours && !permanent.no_prefix_route && permanent.index == index
        );
        let lifetimes = mirror.address("192.0.2.77/24").unwrap();
        assert!(!lifetimes.permanent && lifetimes.no_prefix_route && !lifetimes.deprecated);
        let six = mirror.address("2001:db8::7/64").unwrap();
        assert!(six.deprecated && !six.tentative && !six.link_local);

        ip("addr del 192.0.2.9 peer 198.51.100.9/32 dev a0");
        ip("addr del 192.0.2.1/24 dev a0");
        mirror.until("one less", |m| m.address("192.0.2.1/24").is_none()).await;
        assert!(mirror.address("192.0.2.9/32").is_some(), "it still has another far end");
        ip("addr del 192.0.2.9 peer 198.51.100.10/32 dev a0");
        mirror.until("the far ends gone", |m| m.address("192.0.2.9/32").is_none()).await;
    });
}

#[test]
fn duplicate_address_detection_is_seen_to_fail() {
    isolated(|| async {
        let other = Other::new();
        other.cable("a0", "b0");
        other.ip("-6 addr add 2001:db8::5/64 dev b0 nodad");
        let mut mirror = Mirror::start().await;
        mirror
            .until("link-local addresses settled", |m| {
                m.addresses.values().any(|a| a.link_local && !a.tentative)
            })
            .await;
        ip("-6 addr add 2001:db8::5/64 dev a0");
        mirror.until("a duplicate", |m| m.address("2001:db8::5/64").is_some_and(|a| a.dad_failed)).await;
        let tentative =
            mirror.log.iter().any(|line| line.contains("2001:db8::5/64") && line.contains("tentative: true"));
        assert!(tentative, "it was tentative before: {:#?}", mirror.log);
    });
}

#[test]
fn an_overrun_leads_to_a_dump_and_the_right_end() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let settings = MonitorSettings { receive_buffer: 4096 };
        let mut mirror = Mirror::start_with(settings, 64, AddressOwnership::kernel());
        mirror.until("the first dump", |m| m.dumps >= 1).await;
        // All of this happens without the monitor getting to run.
        let mut applier = applier();
        for round in 0..4 {
            let vips = (0..250).map(|n| format!("10.{round}.0.{n}/32"));
            apply_all(&mut applier, vips.map(|vip| put(index, &vip)).collect());
        }
        let odd = (0..250).filter(|n| n % 2 == 1).map(|n| format!("10.0.0.{n}/32"));
        apply_all(&mut applier, odd.map(|vip| remove(index, &vip)).collect());

        mirror.until("875 of ours", |m| m.addresses.values().filter(|a| a.ours).count() == 875).await;
        let overruns = mirror.monitor.stats().overruns.load(Ordering::Relaxed);
        assert!(overruns >= 1, "the buffer was too large for this test: {:?}", mirror.monitor.stats());
        assert!(mirror.dumps >= 2, "no dump after the overrun");
        // And it goes on from there.
        ip("addr add 192.0.2.1/24 dev a0");
        mirror.until("the next change", |m| m.address("192.0.2.1/24").is_some()).await;
    });
}

#[test]
fn a_full_queue_ends_in_one_dump() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let mut mirror = Mirror::start_with(MonitorSettings::default(), 4, AddressOwnership::kernel());
        mirror.until("the first dump", |m| m.dumps == 1).await;
        apply_all(&mut applier(), (0..200).map(|n| put(index, &format!("10.0.0.{n}/32"))).collect());
        // Let the monitor run into the full queue before anything is taken from it.
        let stats = mirror.monitor.clone();
        crate::ns::until("a full queue", crate::ns::DEADLINE, || {
            let full = stats.stats().queue_full.load(Ordering::Relaxed);
            if full > 0 { Ok(()) } else { Err(full) }
        })
        .await;
        mirror.until("all 200", |m| m.addresses.values().filter(|a| a.ours).count() == 200).await;
        assert_eq!(mirror.dumps, 2, "gathered into one");
    });
}

#[test]
fn resync_dumps_again() {
    isolated(|| async {
        let mut mirror = Mirror::start().await;
        mirror.monitor.resync();
        mirror.until("a second dump", |m| m.dumps == 2).await;
        assert!(mirror.link("lo").is_some());
    });
}

#[test]
fn refreshing_lifetimes_says_nothing_to_the_engine() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let vips = ["10.0.0.1/24", "10.0.0.2/24", "2001:db8::1/64"];
        let puts = |valid| {
            let specs = vips
                .iter()
                .map(|vip| purelb_core::messages::AddressSpec { valid: Some(valid), ..spec(index, vip) });
            specs.map(purelb_core::messages::KernelChange::Put).collect::<Vec<_>>()
        };
        let mut applier = applier();
        apply_all(&mut applier, puts(300));
        let mut mirror = Mirror::start().await;
        mirror
            .until("link-local addresses settled", |m| {
                m.addresses.values().filter(|a| a.link_local && !a.tentative).count() == 2
            })
            .await;
        mirror.log.clear();
        apply_all(&mut applier, puts(200));
        ip("addr add 192.0.2.1/24 dev a0");
        mirror.until("the sentinel", |m| m.address("192.0.2.1/24").is_some()).await;
        assert_eq!(mirror.log.len(), 1, "{:#?}", mirror.log);
    });
}

#[test]
fn what_happens_before_the_monitor_runs_is_in_its_first_dump() {
    isolated(|| async {
        pair("a0", "a1");
        let (sender, mut inputs) = tokio::sync::mpsc::channel(16);
        let monitor = purelbd::netlink::KernelMonitor::open(
            &MonitorSettings::default(),
            AddressOwnership::kernel(),
            sender,
        )
        .unwrap();
        ip("addr add 192.0.2.1/24 dev a0");
        ip("addr add 192.0.2.2/24 dev a0");
        ip("addr del 192.0.2.2/24 dev a0");
        tokio::spawn(monitor.run());
        let Some(purelb_core::messages::Input::Kernel(dump)) = inputs.recv().await else {
            panic!("the first input is a dump");
        };
        let v4: BTreeSet<_> = dump
            .addresses
            .iter()
            .filter(|a| a.net.addr().is_ipv4())
            .map(|a| (a.index, a.net.to_string()))
            .collect();
        let index: IfIndex = index_of("a0");
        assert_eq!(v4, BTreeSet::from([(index, "192.0.2.1/24".to_owned())]));
    });
}
