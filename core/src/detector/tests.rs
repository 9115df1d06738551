//! The detector alone: what it asks, and what it makes of answers and silences.

use super::*;
use crate::segment::{QuestionKind, SegmentQuestion, SegmentReport, SegmentSighting};

const ETH0: IfIndex = IfIndex(2);
const ETH1: IfIndex = IfIndex(3);
const A: HardwareAddr = [2, 0, 0, 0, 0, 0xa];
const B: HardwareAddr = [2, 0, 0, 0, 0, 0xb];
const GATEWAY: HardwareAddr = [2, 0, 0, 0, 0, 1];
const ME: HardwareAddr = [2, 0, 0, 0, 0, 0xff];
const MS: Duration = Duration::from_millis(1);

fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

struct Bench {
    detector: SegmentDetector,
    now: Mono,
    hosts: BTreeMap<Vip, HardwareAddr>,
    asked: Vec<(Mono, SegmentQuestion)>,
    /// No echo is answered.
    filtered: bool,
    /// Questions do not leave.
    stuck: bool,
    /// The sockets are not read.
    unread: bool,
}

impl Bench {
    fn new() -> Self {
        Self::with(DetectorConfig::default())
    }

    fn with(config: DetectorConfig) -> Self {
        let mut detector = SegmentDetector::new(config);
        let name = |n: &str| IfName::new(n).unwrap();
        let own = |net: &str| BTreeSet::from([net.parse().unwrap()]);
        detector.set_segments(BTreeMap::from([
            (ETH0, (name("eth0"), own("10.0.0.1/24"))),
            (ETH1, (name("eth1"), own("10.1.0.1/24"))),
        ]));
        detector.set_own_macs(BTreeSet::from([ME]));
        detector.set_witnesses(ETH0, &BTreeMap::from([(vip("10.0.0.254"), None)]));
        detector.listening(ETH0, Ok(()));
        detector.listening(ETH1, Ok(()));
        Self {
            detector,
            now: Mono::from_millis(5_000),
            hosts: BTreeMap::from([(vip("10.0.0.254"), GATEWAY)]),
            asked: Vec::new(),
            filtered: false,
            stuck: false,
            unread: false,
        }
    }

    /// `a` has this address, and answers for it.
    fn watching(mut self, texts: &[&str]) -> Self {
        self.detector.set_member(&node("a"), Some(&BTreeSet::from([A])));
        for text in texts {
            self.hosts.insert(vip(text), A);
            self.detector.aim(vip(text), Some((ETH0, node("a"))));
        }
        self.pass(500);
        self
    }

    fn read(&mut self, sightings: Vec<SegmentSighting>, overrun: Vec<IfIndex>) {
        let report = SegmentReport { sightings, listened_until: self.now, overrun };
        self.detector.heard(self.now, &report);
    }

    fn step(&mut self) {
        self.detector.conclude(self.now);
        let questions = self.detector.questions(self.now);
        for question in questions {
            self.asked.push((self.now, question.clone()));
            if self.stuck {
                self.detector.asked(self.now, question.id, Err("no buffer".to_owned()));
                continue;
            }
            self.detector.asked(self.now, question.id, Ok(self.now));
            let host = self.hosts.get(&question.target).copied();
            let echo = question.kind == QuestionKind::Echo;
            if let Some(mac) = host.filter(|_| !(self.filtered && echo)) {
                let kind = if echo { SightingKind::EchoReply } else { SightingKind::ResolveReply };
                let index = question.index;
                self.read(
                    vec![SegmentSighting { index, address: question.target, mac, kind, at: self.now }],
                    vec![],
                );
            }
        }
    }

    fn pass(&mut self, millis: u32) {
        let end = self.now + MS * millis;
        let mut turns = 0;
        self.step();
        while let Some(next) = self.detector.deadline().filter(|at| *at <= end) {
            // An answer that was read after the questions went out wants to be looked at again.
            turns = if next > self.now { 0 } else { turns + 1 };
            assert!(turns < 3, "it spins at {}", self.now);
            self.now = next;
            if !self.unread {
                self.read(vec![], vec![]);
            }
            self.step();
        }
        self.now = end;
    }

    fn sees(&mut self, text: &str, mac: HardwareAddr, kind: SightingKind) {
        let sighting = SegmentSighting { index: ETH0, address: vip(text), mac, kind, at: self.now };
        self.read(vec![sighting], vec![]);
    }

    fn silent(&self, text: &str) -> bool {
        self.detector.silent(vip(text))
    }

    fn state(&self, owner: &str) -> WatchState {
        let views = self.detector.views();
        let watched = views.values().flat_map(|view| view.watched.iter());
        watched.into_iter().find(|w| w.owner == node(owner)).unwrap().state
    }
}

#[test]
fn an_owner_is_unknown_answering_missing_and_silent() {
    let mut bench = Bench::new();
    bench.detector.set_member(&node("a"), Some(&BTreeSet::from([A])));
    bench.detector.aim(vip("10.0.0.5"), Some((ETH0, node("a"))));
    bench.pass(2_000);
    assert_eq!(bench.state("a"), WatchState::Unknown);
    bench.hosts.insert(vip("10.0.0.5"), A);
    bench.pass(600);
    assert_eq!(bench.state("a"), WatchState::Answering);
    bench.hosts.remove(&vip("10.0.0.5"));
    bench.pass(200);
    assert_eq!(bench.state("a"), WatchState::Missing(1));
    bench.pass(200);
    assert_eq!(bench.state("a"), WatchState::Silent { witnessed: true });
    assert!(!bench.silent("10.0.0.5"), "the address itself is yet to be asked for");
    bench.pass(100);
    assert!(bench.silent("10.0.0.5"));
    assert_eq!(bench.detector.take_changed(), BTreeSet::from([vip("10.0.0.5")]));
    bench.hosts.insert(vip("10.0.0.5"), A);
    bench.pass(200);
    assert!(!bench.silent("10.0.0.5"));
    assert_eq!(bench.state("a"), WatchState::Answering);
}

#[test]
fn one_address_is_asked_for_in_place_of_all() {
    let mut bench = Bench::new().watching(&["10.0.0.5", "10.0.0.6", "10.0.0.7"]);
    bench.asked.clear();
    bench.pass(1_000);
    let targets: BTreeSet<Vip> = bench.asked.iter().map(|(_, q)| q.target).collect();
    assert_eq!((targets.len(), bench.asked.len()), (1, 10));
    // One of them is gone, as by a move that we have yet to hear of; the others answer.
    bench.hosts.remove(targets.first().unwrap());
    bench.pass(1_000);
    assert!(["10.0.0.5", "10.0.0.6", "10.0.0.7"].iter().filter(|ip| bench.silent(ip)).count() <= 1);
    assert_eq!(bench.state("a"), WatchState::Answering, "by another of its addresses");
}

#[test]
fn the_more_owners_the_slower_each_is_asked() {
    let mut bench = Bench::new();
    for n in 0..100 {
        let owner = node(&format!("n{n:03}"));
        bench.detector.aim(vip(&format!("10.0.0.{}", n + 2)), Some((ETH0, owner)));
        bench.hosts.insert(vip(&format!("10.0.0.{}", n + 2)), [2, 0, 0, 0, 1, n]);
    }
    bench.pass(2_000);
    bench.asked.clear();
    bench.pass(2_000);
    assert!((350..=400).contains(&bench.asked.len()), "{}", bench.asked.len());
    let view = bench.detector.views().into_values().next().unwrap();
    assert_eq!(view.interval, Duration::from_millis(500), "and it says so");
}

#[test]
fn questions_that_do_not_leave_mean_nothing() {
    let mut bench = Bench::new().watching(&["10.0.0.5"]);
    bench.hosts.remove(&vip("10.0.0.5"));
    bench.stuck = true;
    bench.pass(3_000);
    assert_eq!(bench.state("a"), WatchState::Answering);
    bench.stuck = false;
    bench.pass(700);
    assert!(bench.silent("10.0.0.5"));
}

#[test]
fn time_in_which_nobody_listened_means_nothing() {
    let mut bench = Bench::new().watching(&["10.0.0.5"]);
    bench.hosts.remove(&vip("10.0.0.5"));
    bench.unread = true;
    for _ in 0..50 {
        bench.detector.conclude(bench.now);
        bench.detector.questions(bench.now);
        bench.now += MS * 100;
    }
    assert_eq!(bench.state("a"), WatchState::Answering);
    assert!(!bench.silent("10.0.0.5"));
}

#[test]
fn an_overrun_begins_the_count_again_and_calls_off_what_was_begun() {
    let mut bench = Bench::new().watching(&["10.0.0.5"]);
    bench.hosts.remove(&vip("10.0.0.5"));
    bench.pass(440);
    assert_eq!(bench.state("a"), WatchState::Silent { witnessed: true });
    bench.read(vec![], vec![ETH1]);
    assert_eq!(bench.state("a"), WatchState::Silent { witnessed: true }, "another segment's");
    bench.read(vec![], vec![ETH0]);
    bench.pass(150);
    assert!(!bench.silent("10.0.0.5"));
    assert_eq!(bench.detector.counters().overruns, 2);
    bench.pass(500);
    assert!(bench.silent("10.0.0.5"));
}

#[test]
fn an_answer_from_before_the_silence_does_not_end_it() {
    let mut bench = Bench::new().watching(&["10.0.0.5"]);
    let before = bench.now;
    bench.hosts.remove(&vip("10.0.0.5"));
    bench.pass(300);
    let late = SegmentSighting {
        index: ETH0,
        address: vip("10.0.0.5"),
        mac: A,
        kind: SightingKind::EchoReply,
        at: before - MS * 50,
    };
    bench.read(vec![late], vec![]);
    bench.pass(250);
    assert!(bench.silent("10.0.0.5"));
}

#[test]
fn a_member_that_took_the_address_is_not_its_owner() {
    let mut bench = Bench::new().watching(&["10.0.0.5", "10.0.0.6"]);
    bench.detector.set_member(&node("b"), Some(&BTreeSet::from([B])));
    bench.hosts.insert(vip("10.0.0.5"), B);
    bench.hosts.remove(&vip("10.0.0.6"));
    bench.pass(1_000);
    assert!(!bench.silent("10.0.0.5"), "somebody has it");
    assert!(bench.silent("10.0.0.6"), "the owner is gone");
}

#[test]
fn who_filters_echo_is_asked_the_other_way_and_seldom() {
    let mut bench = Bench::new();
    bench.filtered = true;
    let mut bench = bench.watching(&["10.0.0.5"]);
    bench.pass(1_000);
    bench.asked.clear();
    bench.pass(2_000);
    assert_eq!(bench.state("a"), WatchState::Answering);
    assert!(bench.asked.iter().all(|(_, q)| q.kind == QuestionKind::Resolve));
    bench.hosts.remove(&vip("10.0.0.5"));
    bench.pass(1_200);
    assert!(bench.silent("10.0.0.5"));
}

#[test]
fn our_own_frames_say_nothing() {
    let mut bench = Bench::new().watching(&["10.0.0.5"]);
    bench.hosts.remove(&vip("10.0.0.5"));
    for _ in 0..60 {
        bench.pass(10);
        bench.sees("10.0.0.5", ME, SightingKind::Announcement);
    }
    assert!(bench.silent("10.0.0.5"));
}

#[test]
fn what_was_taken_is_asked_for_until_its_owner_is_back_with_it() {
    let mut bench = Bench::new().watching(&["10.0.0.5", "10.0.0.6", "10.0.0.7"]);
    let all = ["10.0.0.5", "10.0.0.6", "10.0.0.7"];
    bench.hosts.retain(|_, mac| *mac != A);
    bench.pass(600);
    for ip in all {
        assert!(bench.silent(ip));
        bench.detector.took(vip(ip), true);
    }
    bench.pass(5_000);
    assert!(all.iter().all(|ip| bench.silent(ip)));
    // It is back with two of them.
    bench.hosts.insert(vip("10.0.0.6"), A);
    bench.hosts.insert(vip("10.0.0.7"), A);
    bench.pass(400);
    assert!(bench.silent("10.0.0.5") && !bench.silent("10.0.0.6") && !bench.silent("10.0.0.7"));
    bench.hosts.insert(vip("10.0.0.5"), A);
    bench.pass(400);
    assert!(!bench.silent("10.0.0.5"));
}

#[test]
fn a_broken_socket_concludes_nothing() {
    let mut bench = Bench::new().watching(&["10.0.0.5"]);
    bench.detector.listening(ETH0, Err("down".to_owned()));
    assert_eq!(bench.detector.works_on(ETH0), Err(DetectorTrouble::Failed("down".to_owned())));
    bench.hosts.remove(&vip("10.0.0.5"));
    bench.pass(3_000);
    assert!(!bench.silent("10.0.0.5"));
    assert_eq!(bench.detector.check_duplicate(bench.now, vip("fd00::1"), ETH0), DuplicateCheck::Impossible);
}

#[test]
fn claims_to_what_is_held_are_told_with_whose_they_are() {
    let mut bench = Bench::new();
    bench.detector.set_member(&node("b"), Some(&BTreeSet::from([B])));
    bench.detector.hold(vip("10.0.0.9"), Some(ETH0));
    bench.sees("10.0.0.9", B, SightingKind::Announcement);
    bench.sees("10.0.0.9", GATEWAY, SightingKind::Asker);
    bench.sees("10.0.0.9", B, SightingKind::Probe);
    bench.sees("10.0.0.8", B, SightingKind::Announcement);
    let by: Vec<_> = bench.detector.take_claims().into_iter().map(|claim| claim.by).collect();
    assert_eq!(by, [Some(node("b")), None]);
    assert_eq!(bench.detector.claimed_by_other(vip("10.0.0.9")).unwrap().mac, GATEWAY, "the last one");
    bench.detector.hold(vip("10.0.0.9"), None);
    assert!(bench.detector.claimed_by_other(vip("10.0.0.9")).is_none());
}

#[test]
fn a_probe_is_a_duplicate_in_the_making() {
    let mut bench = Bench::new();
    let ip = vip("10.0.0.77");
    assert_eq!(bench.detector.check_duplicate(bench.now, ip, ETH0), DuplicateCheck::Asking);
    bench.pass(60);
    bench.sees("10.0.0.77", B, SightingKind::Probe);
    bench.pass(60);
    assert_eq!(bench.detector.check_duplicate(bench.now, ip, ETH0), DuplicateCheck::Somebody);
}

#[test]
fn cut_off_means_that_several_hosts_fell_silent_at_once() {
    let mut bench = Bench::new();
    bench.detector.set_witnesses(
        ETH0,
        &BTreeMap::from([(vip("10.0.0.254"), None), (vip("10.0.0.202"), Some(node("b")))]),
    );
    bench.hosts.insert(vip("10.0.0.202"), B);
    bench.detector.hold(vip("10.0.0.9"), Some(ETH0));
    bench.pass(5_000);
    assert!(!bench.detector.is_cut_off(ETH0));
    bench.hosts.remove(&vip("10.0.0.202"));
    bench.pass(5_000);
    assert!(!bench.detector.is_cut_off(ETH0), "the gateway answers");
    bench.hosts.remove(&vip("10.0.0.254"));
    bench.pass(5_000);
    assert!(!bench.detector.is_cut_off(ETH0), "one after the other: they are gone, not we");
    bench.hosts.insert(vip("10.0.0.202"), B);
    bench.hosts.insert(vip("10.0.0.254"), GATEWAY);
    bench.pass(3_000);
    bench.hosts.clear();
    bench.pass(2_200);
    assert!(bench.detector.is_cut_off(ETH0) && !bench.detector.is_cut_off(ETH1));
    bench.pass(60_000);
    assert!(bench.detector.is_cut_off(ETH0), "for as long as nobody answers");
    bench.hosts.insert(vip("10.0.0.254"), GATEWAY);
    bench.pass(1_100);
    assert!(!bench.detector.is_cut_off(ETH0));
}

#[test]
fn with_nobody_to_ask_there_is_no_timer() {
    let mut bench = Bench::new();
    bench.pass(1_000);
    assert_eq!((bench.detector.deadline(), bench.asked.len()), (None, 0));
    let off = DetectorConfig { enabled: false, ..DetectorConfig::default() };
    let mut bench = Bench::with(off).watching(&["10.0.0.5"]);
    bench.pass(1_000);
    assert_eq!((bench.detector.deadline(), bench.asked.len()), (None, 0));
    assert_eq!(bench.detector.works_on(ETH0), Err(DetectorTrouble::Disabled));
}
