use std::sync::Arc;

use purelb_core::config::EngineConfig;
use purelb_core::facts::Rank;
use purelb_core::snapshot::MemberView;
use purelb_core::{Engine, IfName, InstanceId, Mono, ObjectKey};

use super::*;

const IP: &str = "192.0.2.9";

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn mk_member(name: &str, announced: Option<&[&str]>) -> MemberView {
    MemberView {
        node: node(name),
        live: true,
        expires: None,
        draining: name == "me",
        excluded: false,
        rank: Rank::First,
        out_of_service: false,
        announced: announced.map(|ips| Arc::new(ips.iter().map(|ip| ip.parse().unwrap()).collect())),
        declined: BTreeSet::new(),
        subnets: ["192.0.2.0/24".parse().unwrap()].into(),
        control_endpoint: None,
    }
}

/// `me` drains and holds the address, for `peer`.
fn mk_snapshot(peer: MemberView) -> Snapshot {
    let config = EngineConfig::new(node("me"), InstanceId::new("one").unwrap());
    let mut snapshot = Engine::new(config).snapshot(Mono::ZERO);
    snapshot.unsynced.clear();
    snapshot.fence = FenceView::Healthy { until: Mono::from_millis(7_000) };
    snapshot.draining = Some("2026-01-01T00:00:00Z".into());
    snapshot.members = [mk_member("me", Some(&[])), peer].into_iter().collect();
    snapshot.vips.set(VipView {
        vip: IP.parse().unwrap(),
        group: None,
        pool: PoolType::Local,
        services: vec![ObjectKey::of("default", "web").unwrap()],
        reason: Reason::HandingOver { to: node("peer") },
        winner: Some(node("peer")),
        slot: Some(node("me")),
        on_interface: IfName::new("eth0").ok(),
        announced: true,
    });
    snapshot
}

/// Changes the one address in the snapshot.
fn edit(snapshot: &mut Snapshot, change: impl FnOnce(&mut VipView)) {
    let mut view = snapshot.vips.iter().next().unwrap().clone();
    change(&mut view);
    snapshot.vips.set(view);
}

fn let_go(snapshot: &mut Snapshot) {
    edit(snapshot, |v| {
        v.on_interface = None;
        v.reason = Reason::NotWinner { winner: node("peer") };
    });
}

fn result(progress: &mut DrainTracker, snapshot: &Snapshot) -> Option<R> {
    progress.next_message(snapshot).map(|p| p.result())
}

#[test]
fn a_drain_is_over_when_the_next_owner_says_that_it_has_it() {
    let mut snapshot = mk_snapshot(mk_member("peer", Some(&[])));
    let mut progress = DrainTracker::new(&snapshot, false);
    assert_eq!(result(&mut progress, &snapshot), Some(R::Unspecified));
    let_go(&mut snapshot);
    let waiting = progress.next_message(&snapshot).unwrap();
    assert_eq!(waiting.result(), R::Unspecified, "the address is on nobody");
    assert_eq!(waiting.message, "0 of 1 addresses to go; waiting for peer to announce 192.0.2.9");
    assert_eq!(progress.next_message(&snapshot), None, "said once");
    // A slot is what anybody with a node's token might write; its Lease is its own.
    edit(&mut snapshot, |v| v.slot = Some(node("peer")));
    assert_eq!(progress.next_message(&snapshot), None, "whatever the Service says");
    snapshot.members.set(mk_member("peer", Some(&[IP])));
    assert_eq!(result(&mut progress, &snapshot), Some(R::Drained));
}

#[test]
fn a_member_of_the_older_format_says_so_on_the_service() {
    let mut snapshot = mk_snapshot(mk_member("peer", None));
    let mut progress = DrainTracker::new(&snapshot, false);
    progress.next_message(&snapshot);
    let_go(&mut snapshot);
    assert_eq!(result(&mut progress, &snapshot), Some(R::Unspecified));
    edit(&mut snapshot, |v| v.slot = Some(node("peer")));
    assert_eq!(result(&mut progress, &snapshot), Some(R::Drained));
}

#[test]
fn what_nobody_can_take_is_waited_for_unless_forced() {
    for force in [false, true] {
        let mut snapshot = mk_snapshot(mk_member("peer", Some(&[])));
        let mut progress = DrainTracker::new(&snapshot, force);
        progress.next_message(&snapshot);
        let_go(&mut snapshot);
        edit(&mut snapshot, |v| (v.winner, v.reason) = (None, Reason::NoEligibleNode));
        let expected = if force { R::Drained } else { R::Unspecified };
        assert_eq!(result(&mut progress, &snapshot), Some(expected));
    }
}
