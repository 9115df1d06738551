//! R12: a silent owner's addresses are taken before its Lease has run out, and only if the
//! segment says so.

use std::collections::BTreeMap;
use std::time::Duration;

use super::world::*;
use crate::election::score;
use crate::facts::*;
use crate::ids::Vip;
use crate::messages::*;
use crate::reason::*;
use crate::segment::*;

pub(super) const PEER: HardwareAddr = [2, 0, 0, 0, 0, 1];
pub(super) const OTHER: HardwareAddr = [2, 0, 0, 0, 0, 2];
pub(super) const STRANGER: HardwareAddr = [2, 0, 0, 0, 0, 9];

/// An address whose candidates are in this order.
pub(super) fn address_of(order: [&str; 3], prefix: &str) -> String {
    let best_first = |ip: &String| {
        let mut nodes = order;
        nodes.sort_by_key(|node| score(node, ip));
        nodes == order
    };
    let all = (1..250)
        .map(|n| if prefix.contains(':') { format!("{prefix}{n:x}") } else { format!("{prefix}{n}") });
    all.filter(|ip| !ip.ends_with(":10") && !ip.ends_with(".10")).find(best_first).expect("one of 249")
}

pub(super) fn lease(name: &str, mac: HardwareAddr, renewal: u64, announced: &[&str]) -> LeaseFacts {
    LeaseFacts { macs: Some([mac].into()), ..mk_peer(name, renewal, announced) }
}

fn node_at(name: &str, address: &str) -> Input {
    let addresses = [address.parse().unwrap()].into();
    Input::Nodes(FactsUpdate::Set(NodeFacts { addresses, ..mk_node(name) }))
}

impl World {
    pub(super) fn renews(&mut self, name: &str, mac: HardwareAddr, announced: &[&str]) {
        let renewal = self.now.as_nanos();
        self.feed(Input::Leases(FactsUpdate::Set(lease(name, mac, renewal, announced))));
    }

    pub(super) fn answers(&mut self, text: &str, mac: Option<HardwareAddr>) {
        let hosts = &mut self.segment.as_mut().unwrap().hosts;
        match mac {
            Some(mac) => hosts.insert(vip(text), mac),
            None => hosts.remove(&vip(text)),
        };
    }

    fn asked(&self) -> &[SegmentQuestion] {
        &self.segment.as_ref().unwrap().asked
    }

    pub(super) fn counters(&self) -> crate::snapshot::Counters {
        self.engine.clone().snapshot(self.now).counters
    }
}

/// `peer` has the address and answers for it, we are next in line; `other` is a witness.
pub(super) fn watched() -> (World, String) {
    watched_in("192.168.1.", |_| {})
}

pub(super) fn watched_in(prefix: &str, change: impl FnOnce(&mut LeaseFacts)) -> (World, String) {
    let ip = address_of(["peer", "me", "other"], prefix);
    let mut world = World::new();
    let hosts = BTreeMap::from([(vip(&ip), PEER), (vip("192.168.1.203"), OTHER)]);
    world.segment = Some(TestSegment { hosts, ..TestSegment::default() });
    let mut peer = lease("peer", PEER, 1, &[&ip]);
    change(&mut peer);
    let mut world = world.listed(vec![], vec![peer.clone(), lease("other", OTHER, 1, &[])]);
    world.feed(node_at("other", "192.168.1.203"));
    world.ms(1_000);
    // Both live for ten seconds from here on.
    world.feed(Input::Leases(FactsUpdate::Set(LeaseFacts { renewal: "2".to_owned(), ..peer })));
    world.renews("other", OTHER, &[]);
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(1_000);
    assert_eq!(world.reason(&ip), Reason::NotWinner { winner: node("peer") });
    (world, ip)
}

#[test]
fn a_silent_owner_is_replaced_in_half_a_second() {
    let (mut world, ip) = watched();
    world.answers(&ip, None);
    world.ms(350);
    assert!(!world.holds(&ip), "three silences, and two more questions");
    world.ms(160);
    assert!(world.holds(&ip));
    assert!(matches!(world.reason(&ip), Reason::Announcing { .. }));
    assert_eq!(world.announcements(&ip), 1);
    assert_eq!(world.counters().early_takeovers, 1);
    assert!(world.lease.as_ref().unwrap().announced.contains(&vip(&ip)), "and says so");
    let last: Vec<QuestionKind> = world.asked().iter().rev().take(4).map(|q| q.kind).collect();
    assert!(last.contains(&QuestionKind::Resolve) && last.contains(&QuestionKind::Echo));
    // Its Lease runs out, and nothing changes.
    world.ms(15_000);
    assert!(world.holds(&ip) && world.counters().early_withdrawals == 0);
}

#[test]
fn at_rest_an_owner_is_asked_ten_times_a_second() {
    let (mut world, ip) = watched();
    let before = world.asked().len();
    world.ms(1_000);
    let asked: Vec<_> = world.asked()[before..].to_vec();
    assert!(asked.iter().all(|q| q.target == vip(&ip) && q.kind == QuestionKind::Echo && q.to == Some(PEER)));
    assert_eq!(asked.len(), 10);
    assert_eq!(asked[0].from, Some("192.168.1.10".parse().unwrap()));
}

#[test]
fn without_a_witness_the_lease_decides() {
    let (mut world, ip) = watched();
    world.answers(&ip, None);
    world.answers("192.168.1.203", None);
    world.ms(5_000);
    assert!(!world.holds(&ip));
    assert_eq!(world.counters().witness_missing, 1);
    // Somebody is there after all.
    world.answers("192.168.1.203", Some(OTHER));
    world.ms(400);
    assert!(world.holds(&ip));
}

#[test]
fn the_silent_owner_is_no_witness_against_itself() {
    let (mut world, ip) = watched();
    world.answers(&ip, None);
    world.answers("192.168.1.203", Some(PEER));
    world.ms(5_000);
    assert!(!world.holds(&ip));
}

#[test]
fn an_owner_that_never_answered_is_not_silent() {
    let (mut world, _) = watched();
    let ip = address_of(["peer", "me", "other"], "192.168.1.");
    // Another owner, unheard of so far.
    world.answers(&ip, None);
    let mut fresh = World::new();
    fresh.segment = world.segment.clone();
    let mut fresh = fresh.listed(vec![], vec![lease("peer", PEER, 1, &[&ip]), lease("other", OTHER, 1, &[])]);
    fresh.feed(node_at("other", "192.168.1.203"));
    fresh.renews("peer", PEER, &[&ip]);
    fresh.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    fresh.ms(8_000);
    assert!(!fresh.holds(&ip));
}

#[test]
fn an_address_that_somebody_answers_for_stays_where_it_is() {
    let (mut world, ip) = watched();
    // The owner's address is another host's, all of a sudden.
    world.answers(&ip, Some(STRANGER));
    world.ms(5_000);
    assert!(!world.holds(&ip));
    assert_eq!(world.counters().early_takeovers, 0);
}

#[test]
fn two_lost_answers_are_no_silence() {
    let (mut world, ip) = watched();
    for _ in 0..20 {
        world.answers(&ip, None);
        world.ms(200);
        world.answers(&ip, Some(PEER));
        world.ms(200);
        world.renews("peer", PEER, &[&ip]);
    }
    assert_eq!(world.counters().early_takeovers, 0);
}

#[test]
fn who_is_not_next_in_line_leaves_it() {
    let mut world = World::new();
    let ip = address_of(["peer", "other", "me"], "192.168.1.");
    let hosts = BTreeMap::from([(vip(&ip), PEER), (vip("192.168.1.203"), OTHER)]);
    world.segment = Some(TestSegment { hosts, ..TestSegment::default() });
    let peers = vec![lease("peer", PEER, 1, &[&ip]), lease("other", OTHER, 1, &[])];
    let mut world = world.listed(vec![mk_service("a", &[&ip])], peers);
    world.feed(node_at("other", "192.168.1.203"));
    world.ms(1_000);
    world.answers(&ip, None);
    world.ms(4_000);
    assert!(!world.holds(&ip));
    assert!(world.asked().iter().all(|q| q.target != vip(&ip)), "nor asks");
    // The one before us is gone: we are next.
    world.renews("peer", PEER, &[&ip]);
    world.answers(&ip, Some(PEER));
    world.feed(Input::Leases(FactsUpdate::Gone(node("other"))));
    world.ms(1_000);
    assert!(world.asked().iter().any(|q| q.target == vip(&ip)));
}

#[test]
fn an_owner_that_answers_again_gets_it_back_at_once() {
    let (mut world, ip) = watched();
    world.answers(&ip, None);
    world.ms(600);
    assert!(world.holds(&ip));
    world.renews("peer", PEER, &[&ip]);
    world.ms(2_000);
    assert!(world.holds(&ip), "its daemon lives; it does not answer");
    world.answers(&ip, Some(PEER));
    world.ms(110);
    assert!(!world.holds(&ip));
    assert_eq!(world.reason(&ip), Reason::NotWinner { winner: node("peer") });
    assert_eq!(world.counters().early_withdrawals, 1);
    // And falls silent once more.
    world.ms(2_000);
    world.answers(&ip, None);
    world.ms(600);
    assert!(world.holds(&ip));
}

#[test]
fn an_owner_that_defends_gets_it_back_at_once() {
    let (mut world, ip) = watched();
    world.answers(&ip, None);
    world.ms(600);
    world.sees(&ip, PEER, SightingKind::Announcement);
    assert!(!world.holds(&ip));
}

#[test]
fn where_nobody_listens_only_leases_count() {
    let (mut world, ip) = watched();
    world.feed(Input::Listening { index: ETH0, result: Err("no socket".to_owned()) });
    world.answers(&ip, None);
    world.ms(7_000);
    assert!(!world.holds(&ip));
    let segments = world.engine.snapshot(world.now).segments;
    let trouble = segments.values().next().unwrap().trouble.clone();
    assert_eq!(trouble, Some(crate::snapshot::DetectorTrouble::Failed("no socket".to_owned())));
}

#[test]
fn an_lbnodeagent_turns_it_off() {
    let (mut world, ip) = watched();
    world.configure(AgentConfig { detector: false, ..world.agent() });
    assert!(
        matches!(world.log.iter().rev().find(|e| matches!(e, Effect::Listen(_))), Some(Effect::Listen(i)) if i.is_empty())
    );
    world.answers(&ip, None);
    world.ms(5_000);
    assert!(!world.holds(&ip));
}

#[test]
fn lost_frames_are_no_silence() {
    let (mut world, ip) = watched();
    world.answers(&ip, None);
    world.segment.as_mut().unwrap().overrun = true;
    world.ms(5_000);
    assert!(!world.holds(&ip));
    world.segment.as_mut().unwrap().overrun = false;
    world.ms(600);
    assert!(world.holds(&ip));
}

#[test]
fn a_stall_of_ours_is_no_silence_of_theirs() {
    let (mut world, ip) = watched();
    world.answers(&ip, None);
    for _ in 0..20 {
        world.ms(210);
        world.now += Duration::from_millis(180);
        world.feed(Input::Tick);
    }
    assert!(!world.holds(&ip));
}

#[test]
fn an_address_that_is_being_handed_over_is_no_business_of_ours() {
    let (mut world, ip) = watched();
    world.renews("other", OTHER, &[&ip]);
    world.ms(100);
    world.answers(&ip, None);
    world.ms(3_000);
    assert!(!world.holds(&ip));
}

#[test]
fn what_its_owner_does_not_say_it_has_is_not_there_yet() {
    let (mut world, ip) = watched();
    // Somebody removed it there; the owner says so, and puts it back.
    world.answers(&ip, None);
    world.ms(100);
    world.renews("peer", PEER, &[]);
    world.ms(5_000);
    assert!(!world.holds(&ip));
}

#[test]
fn who_leaves_takes_nothing() {
    let (mut world, ip) = watched();
    world.feed(Input::Command(Command::Drain { since: "2026-01-01T00:00:00Z".to_owned(), force: false }));
    world.answers(&ip, None);
    world.ms(5_000);
    assert!(!world.holds(&ip));
}

#[test]
fn who_is_fenced_takes_nothing() {
    let (mut world, ip) = watched();
    world.api = None;
    world.feed(Input::Leases(FactsUpdate::Gone(node("me"))));
    world.answers(&ip, None);
    world.ms(5_000);
    assert!(!world.holds(&ip));
}

#[test]
fn a_member_of_the_older_format_is_watched_by_what_it_wins() {
    let older = |lease: &mut LeaseFacts| {
        (lease.announced, lease.declined, lease.rank, lease.macs) = (None, None, None, None);
    };
    let (mut world, ip) = watched_in("192.168.1.", older);
    world.answers(&ip, None);
    world.ms(600);
    assert!(world.holds(&ip));
}

#[test]
fn an_ipv6_address_is_taken_without_another_detection() {
    let (mut world, ip) = watched_in("fd00:1::", |_| {});
    world.answers(&ip, None);
    world.ms(600);
    assert!(world.spec(&ip).no_dad);
}

/// Alone, with a segment that is asked.
fn asking(hosts: &[(&str, HardwareAddr)]) -> World {
    let mut world = World::new();
    let hosts: BTreeMap<Vip, HardwareAddr> = hosts.iter().map(|(ip, mac)| (vip(ip), *mac)).collect();
    world.segment = Some(TestSegment { hosts, ..TestSegment::default() });
    world.listed(vec![], vec![])
}

#[test]
fn we_detect_duplicates_faster_than_the_kernel() {
    let mut world = asking(&[]);
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &["fd00:1::f0"]))));
    assert_eq!(world.reason("fd00:1::f0"), Reason::Pending { missing: PendingCause::DuplicateDetection });
    world.ms(99);
    assert!(!world.holds("fd00:1::f0"));
    world.ms(2);
    assert!(world.spec("fd00:1::f0").no_dad);
    assert_eq!(world.asked().len(), 4, "both ways, twice");
}

#[test]
fn a_duplicate_that_we_found_is_one() {
    let mut world = asking(&[("fd00:1::f0", STRANGER)]);
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &["fd00:1::f0"]))));
    world.ms(200);
    assert_eq!(world.reason("fd00:1::f0").name(), "Duplicate");
    world.answers("fd00:1::f0", None);
    world.ms(5_200);
    assert!(world.holds("fd00:1::f0"), "it is gone, and looked for again");
}

#[test]
fn a_group_without_detection_is_not_asked_for() {
    let group = GroupFacts { skip_ipv6_dad: true, ..mk_local_group() };
    let mut world = World::of_groups(vec![group]);
    world.segment = Some(TestSegment::default());
    let mut world = world.listed(vec![], vec![]);
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &["fd00:1::f0"]))));
    assert!(world.holds("fd00:1::f0"));
}
