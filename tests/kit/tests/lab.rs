//! The lab tells the truth: what its instruments report is what was done by hand.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use ipnet::IpNet;
use purelb_kit::lab::{
    AddressFlags, Cut, DataPlane, Lab, NeighbourState, NewAddress, Node, Prober, Probing, VipReport,
};
use purelb_kit::wait::eventually;
use purelb_wire::{ClaimKind, MacAddr};

const WITHIN: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(1);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Two nodes and a client on one segment of both families.
fn mk_lab() -> Result<Lab> {
    Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .client("c", ["lan"])
        .build()
}

fn mac_of(node: &Node) -> MacAddr {
    node.ports()[0].mac
}

/// Waits until the prober's report on `vip` is as wished.
async fn until(
    what: &str,
    prober: &Prober,
    vip: IpAddr,
    wished: impl Fn(&VipReport) -> bool,
) -> Result<VipReport> {
    eventually(what, WITHIN, || {
        let report = prober.report();
        let found = report.vip(vip).clone();
        let state = if wished(&found) { Ok(found) } else { Err(report.to_string()) };
        async { state }
    })
    .await
}

/// Waits until `node` has answered `more` probes beyond those it had answered before.
async fn until_answers(prober: &Prober, vip: IpAddr, node: &str, more: u64) -> Result<VipReport> {
    let count = |report: &VipReport| report.answers_by_node().get(node).copied().unwrap_or(0);
    let before = count(prober.report().vip(vip));
    until(&format!("answers from {node}"), prober, vip, |report| count(report) >= before + more).await
}

async fn until_lost(prober: &Prober, vip: IpAddr, more: u64) -> Result<VipReport> {
    let before = prober.report().vip(vip).lost;
    until("lost probes", prober, vip, |report| report.lost >= before + more).await
}

/// Moves `vip` from a to b as an owner does: there first, announced, then gone here.
async fn move_by_hand(vip: IpNet, probing: Probing) -> Result<()> {
    let lab = mk_lab()?;
    let (a, b, c) = (lab.node("a"), lab.node("b"), lab.node("c"));
    let (wire, kernel) = (lab.observe()?, lab.watch_addresses()?);
    let address = NewAddress::new(vip).no_dad();
    let vip = vip.addr();
    a.add_address("eth0", &address)?;
    let prober = c.probe(probing)?;
    until_answers(&prober, vip, "a", 200).await?;
    b.add_address("eth0", &address)?;
    b.announce("eth0", vip)?;
    until_answers(&prober, vip, "b", 100).await?;
    a.del_address("eth0", vip)?;
    until_answers(&prober, vip, "b", 100).await?;
    let report = prober.stop();
    let found = report.vip(vip);

    assert_eq!((found.lost, found.in_flight), (0, 0), "{report}");
    let turns: Vec<_> = found.turns.iter().map(|turn| turn.node.as_str()).collect();
    assert_eq!(turns, ["a", "b"], "{report}");
    assert_eq!(found.sent, found.answered);

    let announced: Vec<_> =
        wire.announcements(vip).iter().map(|c| (c.host.clone().unwrap(), c.kind)).collect();
    let expected = match vip {
        IpAddr::V4(_) => vec![ClaimKind::GarpRequest, ClaimKind::GarpReply],
        IpAddr::V6(_) => vec![ClaimKind::UnsolicitedAdvertisement { overrides: true }],
    };
    assert_eq!(announced, expected.iter().map(|kind| ("b".to_owned(), *kind)).collect::<Vec<_>>());
    let owners: Vec<_> = wire.owners(vip).into_iter().map(|holding| holding.mac).collect();
    assert_eq!(owners, [mac_of(&a), mac_of(&b)], "{:#?}", wire.claims(vip));
    assert_eq!(wire.duplicates(vip, WINDOW), []);

    let timeline = kernel.owners_timeline(vip)?;
    let spans: Vec<_> = timeline.spans.iter().map(|span| span.owners.join("+")).collect();
    assert_eq!(spans, ["", "a", "a+b", "b"], "{timeline}");
    assert_eq!(timeline.no_owner().count(), 0);
    let moved = found.turns[1].first;
    assert!(
        timeline.first_held_by("b").unwrap() <= moved,
        "b answered before it held the address: {timeline}"
    );
    Ok(())
}

#[tokio::test]
async fn an_ipv4_address_moved_with_a_garp_loses_nothing() -> Result<()> {
    let vip = net("192.0.2.100/24");
    move_by_hand(vip, Probing::udp([vip.addr()])).await
}

#[tokio::test]
async fn an_ipv6_address_moved_with_an_advertisement_loses_nothing() -> Result<()> {
    let vip = net("2001:db8:1::100/64");
    move_by_hand(vip, Probing::udp([vip.addr()])).await
}

#[tokio::test]
async fn an_address_moved_without_a_word_is_lost_until_announced() -> Result<()> {
    let lab = mk_lab()?;
    let (a, b, c) = (lab.node("a"), lab.node("b"), lab.node("c"));
    let vip = ip("192.0.2.100");
    let wire = lab.observe()?;
    a.add("eth0", net("192.0.2.100/24"))?;
    let prober = c.probe(Probing::udp([vip]).timeout(Duration::from_millis(200)))?;
    until_answers(&prober, vip, "a", 100).await?;
    b.add("eth0", net("192.0.2.100/24"))?;
    a.del_address("eth0", vip)?;
    let silent = until_lost(&prober, vip, 100).await?;
    assert_eq!(silent.owner(), Some("a"), "the client still asks the old owner");
    assert_eq!(wire.announcements(vip), []);
    b.announce("eth0", vip)?;
    until_answers(&prober, vip, "b", 100).await?;
    let report = prober.stop();
    let announced = wire.announcements(vip)[0].at;
    let back = report.vip(vip).turns.last().unwrap().first;
    assert!(back.since(announced) < Duration::from_secs(1), "{report}");
    Ok(())
}

#[tokio::test]
async fn a_removed_address_shows_as_loss_of_the_same_length() -> Result<()> {
    let lab = mk_lab()?;
    let (a, c) = (lab.node("a"), lab.node("c"));
    let vip = ip("192.0.2.100");
    let kernel = lab.watch_addresses()?;
    a.add("eth0", net("192.0.2.100/24"))?;
    let prober = c.probe(Probing::udp([vip]).timeout(Duration::from_millis(200)))?;
    until_answers(&prober, vip, "a", 100).await?;
    a.del_address("eth0", vip)?;
    until_lost(&prober, vip, 200).await?;
    a.add("eth0", net("192.0.2.100/24"))?;
    a.announce("eth0", vip)?;
    until_answers(&prober, vip, "a", 100).await?;
    let report = prober.stop();
    let found = report.vip(vip);

    let timeline = kernel.owners_timeline(vip)?;
    let hole = timeline.no_owner_time();
    let loss = found.losses.first().unwrap();
    assert_eq!(found.losses.len(), 1, "{report}");
    assert!(found.gap() >= hole.saturating_sub(Duration::from_millis(20)), "{report}, {timeline}");
    // Lost are exactly the probes sent while nobody held it.
    let span = timeline.no_owner().next().unwrap();
    let slack = Duration::from_millis(20);
    assert!(loss.first + slack >= span.from && loss.last <= span.to + slack, "{loss:?} but {span:?}");
    assert_eq!(found.lost, loss.probes);
    assert!(
        Duration::from_millis(found.lost) + report.lag.worst + slack >= hole.mul_f64(0.9),
        "{report}, {timeline}"
    );
    Ok(())
}

#[tokio::test]
async fn a_deliberate_duplicate_is_two_owners() -> Result<()> {
    let lab = mk_lab()?;
    let (a, b, c) = (lab.node("a"), lab.node("b"), lab.node("c"));
    let vip = ip("192.0.2.100");
    let (wire, kernel) = (lab.observe()?, lab.watch_addresses()?);
    a.add("eth0", net("192.0.2.100/24"))?;
    b.add("eth0", net("192.0.2.100/24"))?;
    let prober = c.probe(Probing::udp([vip]))?;
    // Each time the client asks, both answer.
    let duplicates = eventually("two owners on the wire", WITHIN, || {
        let asked = c.forget_neighbour("eth0", vip);
        let found = wire.duplicates(vip, WINDOW);
        async {
            match (asked, found) {
                (Ok(()), found) if !found.is_empty() => Ok(found),
                state => Err(state),
            }
        }
    })
    .await?;
    prober.stop();
    let mut macs = [mac_of(&a), mac_of(&b)];
    macs.sort_unstable();
    assert_eq!(duplicates[0].macs, macs);
    assert!(duplicates[0].from < duplicates[0].to);
    let timeline = kernel.owners_timeline(vip)?;
    assert_eq!(timeline.owners(), ["a", "b"]);
    assert!(timeline.two_owner_time() >= duplicates[0].length(), "{timeline}");
    Ok(())
}

#[tokio::test]
async fn the_kernel_refuses_an_ipv6_duplicate_and_the_lab_says_so() -> Result<()> {
    let lab = mk_lab()?;
    let (a, b) = (lab.node("a"), lab.node("b"));
    let vip = ip("2001:db8:1::100");
    let kernel = lab.watch_addresses()?;
    a.add_address("eth0", &NewAddress::new(net("2001:db8:1::100/64")).no_dad())?;
    b.add("eth0", net("2001:db8:1::100/64"))?;
    let held = b.address(vip)?.unwrap();
    assert!(!held.usable(), "detection runs: {held:?}");
    eventually("the detection to fail", WITHIN, || {
        let found = b.address(vip);
        async {
            match found {
                Ok(Some(found)) if found.flags.contains(AddressFlags::Dadfailed) => Ok(()),
                other => Err(other),
            }
        }
    })
    .await?;
    let timeline = kernel.owners_timeline(vip)?;
    assert_eq!(timeline.owners(), ["a"]);
    assert_eq!(timeline.two_owners().count(), 0);
    Ok(())
}

#[tokio::test]
async fn tcp_probes_see_who_answers_and_what_is_lost() -> Result<()> {
    let lab = mk_lab()?;
    let (a, b, c) = (lab.node("a"), lab.node("b"), lab.node("c"));
    let (v4, v6) = (ip("192.0.2.100"), ip("2001:db8:1::100"));
    a.add("eth0", net("192.0.2.100/24"))?;
    b.add_address("eth0", &NewAddress::new(net("2001:db8:1::100/64")).no_dad())?;
    let prober = c.probe(Probing::tcp([v4, v6]))?;
    until_answers(&prober, v4, "a", 200).await?;
    until_answers(&prober, v6, "b", 100).await?;
    let clean = prober.report();
    assert_eq!(clean.lost(), 0, "{clean}");
    a.del_address("eth0", v4)?;
    until_lost(&prober, v4, 50).await?;
    let report = prober.stop();
    assert_eq!(report.vip(v6).answers_by_node().into_keys().collect::<Vec<_>>(), ["b"], "{report}");
    assert_eq!(report.vip(v6).lost, 0, "{report}");
    Ok(())
}

/// A client that has the wrong node in its cache: with `Host` nobody answers, with
/// `Proxy` the wrong node does.
#[tokio::test]
async fn only_the_proxy_data_plane_answers_where_the_address_is_not() -> Result<()> {
    let lab = mk_lab()?;
    let (a, b, c) = (lab.node("a"), lab.node("b"), lab.node("c"));
    let vips = [net("192.0.2.100/24"), net("2001:db8:1::100/64")];
    for vip in vips {
        a.add_address("eth0", &NewAddress::new(vip).no_dad())?;
        c.set_neighbour("eth0", vip.addr(), mac_of(&b), NeighbourState::Permanent)?;
    }
    let [v4, v6] = vips.map(|vip| vip.addr());
    for probing in [Probing::udp([v4, v6]), Probing::tcp([v4, v6])] {
        lab.set_data_plane(DataPlane::Host)?;
        let timeout = Duration::from_millis(200);
        let prober = c.probe(probing.clone().timeout(timeout))?;
        until_lost(&prober, v4, 50).await?;
        let report = prober.stop();
        assert_eq!(report.lost(), report.sent(), "{report}");

        lab.set_data_plane(DataPlane::Proxy)?;
        let prober = c.probe(probing)?;
        until_answers(&prober, v4, "b", 50).await?;
        until_answers(&prober, v6, "b", 50).await?;
        let report = prober.stop();
        assert_eq!(report.lost(), 0, "{report}");
    }
    Ok(())
}

#[tokio::test]
async fn a_host_cut_off_the_segment_is_silent_and_comes_back() -> Result<()> {
    let lab = mk_lab()?;
    let (a, c) = (lab.node("a"), lab.node("c"));
    let vip = ip("192.0.2.100");
    let wire = lab.observe()?;
    a.add("eth0", net("192.0.2.100/24"))?;
    let prober = c.probe(Probing::udp([vip]).timeout(Duration::from_millis(200)))?;
    until_answers(&prober, vip, "a", 100).await?;

    a.cut(Cut::segment("lan"))?;
    until_lost(&prober, vip, 100).await?;
    a.announce("eth0", vip)?;
    a.heal(&Cut::segment("lan"))?;
    until_answers(&prober, vip, "a", 100).await?;
    assert_eq!(wire.announcements(vip), [], "what is said behind a cut is not on the segment");

    // Without discovery those who know each other go on; a newcomer finds nobody.
    a.cut(Cut::discovery("lan"))?;
    until_answers(&prober, vip, "a", 100).await?;
    c.forget_neighbour("eth0", vip)?;
    until_lost(&prober, vip, 100).await?;
    a.heal_all()?;
    until_answers(&prober, vip, "a", 100).await?;

    a.set_loss("lan", 50.0)?;
    let before = prober.report();
    until("a thousand probes", &prober, vip, |report| report.sent >= before.sent() + 1000).await?;
    a.set_loss("lan", 0.0)?;
    let report = prober.stop();
    // Half each way: three quarters.
    let lost = report.lost() - before.lost();
    assert!((400..1100).contains(&lost), "{lost} of about 1000 lost");
    Ok(())
}

#[tokio::test]
async fn a_pulled_carrier_is_seen_by_the_node() -> Result<()> {
    let lab = mk_lab()?;
    let a = lab.node("a");
    let carrier = |wished: bool| {
        let a = a.clone();
        async move {
            eventually("the carrier to change", WITHIN, || {
                let links = a.links();
                async {
                    match links {
                        Ok(links)
                            if links.iter().any(|l| l.name == "eth0" && l.up && l.carrier == wished) =>
                        {
                            Ok(())
                        }
                        other => Err(other),
                    }
                }
            })
            .await
        }
    };
    carrier(true).await?;
    a.pull_carrier("lan")?;
    carrier(false).await?;
    assert!(a.address(ip("192.0.2.11"))?.is_some(), "addresses stay, as on a real host");
    a.restore_carrier("lan")?;
    carrier(true).await
}

#[tokio::test]
async fn a_dual_homed_node_answers_on_both_segments() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["192.0.2.0/24"])
        .segment("back", ["198.51.100.0/24", "2001:db8:2::/64"])
        .node("a", ["lan"])
        .node("b", ["lan", "back"])
        .client("c", ["lan", "back"])
        .build()?;
    let (b, c) = (lab.node("b"), lab.node("c"));
    let wire = lab.observe()?;
    let (front, back) = (ip("192.0.2.100"), ip("198.51.100.100"));
    b.add("eth0", net("192.0.2.100/24"))?;
    b.add("eth1", net("198.51.100.100/24"))?;
    let prober = c.probe(Probing::udp([front, back]))?;
    until_answers(&prober, front, "b", 50).await?;
    until_answers(&prober, back, "b", 50).await?;
    let report = prober.stop();
    assert_eq!(report.lost(), 0, "{report}");
    assert!(wire.claims(back).iter().all(|claim| claim.segment == "back"));
    assert!(!wire.claims(back).is_empty() && !wire.claims(front).is_empty());
    let defaults: Vec<_> = b
        .routes()?
        .into_iter()
        .filter(|route| route.destination.prefix_len() == 0)
        .map(|route| route.dev)
        .collect();
    assert_eq!(defaults, [Some("eth0".to_owned())]);
    Ok(())
}

#[tokio::test]
async fn two_labs_with_the_same_addresses_do_not_meet() -> Result<()> {
    let vip = ip("192.0.2.100");
    let (one, two) = (mk_lab()?, mk_lab()?);
    one.node("a").add("eth0", net("192.0.2.100/24"))?;
    two.node("b").add("eth0", net("192.0.2.100/24"))?;
    let first = one.node("c").probe(Probing::udp([vip]))?;
    let second = two.node("c").probe(Probing::udp([vip]))?;
    until_answers(&first, vip, "a", 50).await?;
    until_answers(&second, vip, "b", 50).await?;
    let report = first.stop();
    assert_eq!(report.vip(vip).answers_by_node().into_keys().collect::<Vec<_>>(), ["a"]);
    drop(one);
    until_answers(&second, vip, "b", 50).await?;
    let report = second.stop();
    assert_eq!(report.vip(vip).answers_by_node().into_keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(report.lost(), 0, "{report}");
    Ok(())
}

#[tokio::test]
async fn probes_keep_their_rate() -> Result<()> {
    let lab = mk_lab()?;
    let vips = ["192.0.2.100", "192.0.2.101"].map(ip);
    for vip in vips {
        lab.node("a").add("eth0", IpNet::new(vip, 24)?)?;
    }
    let prober = lab.node("c").probe(Probing::udp(vips))?;
    let started = std::time::Instant::now();
    until_answers(&prober, vips[0], "a", 500).await?;
    let report = prober.stop();
    let places = report.sent() + report.lag.skipped;
    let expected = started.elapsed().as_millis() as u64;
    // Stopping takes a moment more; sending more than asked for is never right.
    assert!(places <= expected + 20 && places >= expected * 7 / 10, "{places} in {expected} ms; {report}");
    let [one, other] = vips.map(|vip| report.vip(vip).sent);
    assert!(one.abs_diff(other) <= 1 + report.lag.skipped, "VIPs take turns: {report}");
    Ok(())
}
