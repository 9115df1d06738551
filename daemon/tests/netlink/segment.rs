//! Asking and hearing a segment: real kernels answer, on the other end of a cable.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use purelb_core::ids::IfIndex;
use purelb_core::messages::Input;
use purelb_core::segment::{HardwareAddr, QuestionKind, SightingKind};
use purelb_wire::arp::{ArpOperation, ArpPacket};
use purelb_wire::{AddressQuestion, EchoKind, EchoMessage, MacAddr, ndp};
use purelbd::host::clock;

use crate::ear::{
    Ear, HERE, STRANGER, THERE, address, flood, mac_of, mac_there, neighbour, plugged_in, send, vip,
};
use crate::ns::{DEADLINE, Other, index_of, ip, isolated, until};

#[test]
fn a_kernel_answers_echo_and_resolve_in_both_families() {
    isolated(|| async {
        let other = neighbour().await;
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        let owner = mac_there(&other, "b0");
        for (here, there) in HERE.iter().zip(THERE) {
            for kind in [QuestionKind::Echo, QuestionKind::Resolve] {
                for to in [None, Some(owner)] {
                    let mut question = ear.question(index, kind, there);
                    question.from = Some(address(here));
                    question.to = to;
                    let left = ear.ask(&question);
                    let wanted = match kind {
                        QuestionKind::Echo => SightingKind::EchoReply,
                        QuestionKind::Resolve => SightingKind::ResolveReply,
                    };
                    let seen = ear
                        .hear(&format!("{kind:?} of {there} to {to:?}"), |one| {
                            one.address == vip(there) && one.kind == wanted && one.at >= left
                        })
                        .await;
                    assert_eq!((seen.index, seen.mac), (index, owner));
                    println!("{kind:?} of {there} to {to:?}: {:?}", seen.at.since(left));
                }
            }
        }
        assert_eq!(ear.stats.echo_questions.load(Ordering::Relaxed), 4);
        assert_eq!(ear.stats.resolve_questions.load(Ordering::Relaxed), 4);
    });
}

/// RFC 5227 and RFC 4862: the asker has no address yet, and nobody learns anything of it.
#[test]
fn a_probe_is_answered_and_leaves_no_trace() {
    isolated(|| async {
        let other = neighbour().await;
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        let owner = mac_there(&other, "b0");
        other.ip("neigh flush all");
        for there in THERE {
            for to in [None, Some(owner)] {
                let mut question = ear.question(index, QuestionKind::Resolve, there);
                question.to = to;
                let left = ear.ask(&question);
                let seen = ear
                    .hear(&format!("the owner of {there}, asked by {to:?}"), |one| {
                        one.address == vip(there) && one.at >= left && one.kind != SightingKind::Asker
                    })
                    .await;
                assert_eq!(seen.mac, owner, "{seen:?}");
            }
        }
        let mut echo = ear.question(index, QuestionKind::Echo, THERE[0]);
        echo.to = Some(owner);
        let refused = ear.listener.ask(&ear.sender, &echo);
        assert!(
            matches!(refused, Input::Asked { result: Err(_), .. }),
            "an echo needs a source: {refused:?}"
        );
    });
}

/// The addresses of a daemon that is gone are its kernel's still: deprecated ones, with
/// lifetimes that end by themselves.
#[test]
fn a_dead_daemons_kernel_still_answers() {
    isolated(|| async {
        let other = neighbour().await;
        other.ip("addr add 192.0.2.100/32 dev b0 valid_lft 60 preferred_lft 60");
        other.ip("addr add 2001:db8::100/128 dev b0 nodad valid_lft 60 preferred_lft 0");
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        let owner = mac_there(&other, "b0");
        for (here, there) in HERE.iter().zip(["192.0.2.100", "2001:db8::100"]) {
            for kind in [QuestionKind::Echo, QuestionKind::Resolve] {
                let mut question = ear.question(index, kind, there);
                question.from = Some(address(here));
                question.to = Some(owner);
                let left = ear.ask(&question);
                ear.hear(&format!("{kind:?} of {there}"), |one| {
                    one.address == vip(there) && one.mac == owner && one.at >= left
                })
                .await;
            }
        }
        other.ip("addr del 192.0.2.100/32 dev b0");
        other.ip("addr del 2001:db8::100/128 dev b0");
        silent(&mut ear, index, owner, ["192.0.2.100", "2001:db8::100"]).await;
    });
}

/// Asks for addresses that nobody has, in each way, and then for one that somebody has:
/// once that is answered, the others would have been.
async fn silent(ear: &mut Ear, index: IfIndex, host: HardwareAddr, targets: [&str; 2]) {
    for (at, target) in targets.into_iter().enumerate() {
        for kind in [QuestionKind::Echo, QuestionKind::Resolve] {
            for to in [None, Some(host)] {
                let mut question = ear.question(index, kind, target);
                question.from = Some(address(HERE[at]));
                question.to = to;
                ear.ask(&question);
            }
        }
        let mut question = ear.question(index, QuestionKind::Echo, THERE[at]);
        question.from = Some(address(HERE[at]));
        question.to = Some(host);
        let left = ear.ask(&question);
        let until = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < until, "{} does not answer either", THERE[at]);
            let report = ear.read().1.unwrap();
            assert!(report.sightings.iter().all(|one| one.address != vip(target)), "{report:#?}");
            if report.sightings.iter().any(|one| one.address == vip(THERE[at]) && one.at >= left) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let report = ear.read().1.unwrap();
        assert!(report.listened_until > left);
        assert!(report.sightings.iter().all(|one| one.address != vip(target)), "{report:#?}");
    }
}

/// Also where the host that is asked routes, and knows who has the address now.
#[test]
fn an_address_that_nobody_has_is_silent() {
    isolated(|| async {
        let other = neighbour().await;
        other.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        });
        ip("addr add 192.0.2.77/32 dev lo");
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        let host = mac_there(&other, "b0");
        silent(&mut ear, index, host, ["192.0.2.77", "2001:db8::77"]).await;
    });
}

fn stranger_arp(operation: ArpOperation, sender: &str, target: &str, to: MacAddr) -> Vec<u8> {
    let ip = |text: &str| text.parse().unwrap();
    ArpPacket {
        operation,
        sender_mac: STRANGER,
        sender_ip: ip(sender),
        target_mac: MacAddr::ZERO,
        target_ip: ip(target),
    }
    .frame(to)
    .to_vec()
}

/// What everybody is told wakes whoever waits; nothing else does.
#[test]
fn claims_are_heard_at_once_and_answers_wake_nobody() {
    isolated(|| async {
        let other = neighbour().await;
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        let owner = mac_there(&other, "b0");
        let six = address("2001:db8::50");
        let probe = AddressQuestion { target: six, from: None, mac: STRANGER, to: None };
        let four_probe = AddressQuestion { target: address("192.0.2.50"), ..probe };
        let claims = [
            (
                purelb_wire::arp::gratuitous_request("192.0.2.50".parse().unwrap(), STRANGER).to_vec(),
                SightingKind::Announcement,
            ),
            (
                purelb_wire::arp::gratuitous_reply("192.0.2.50".parse().unwrap(), STRANGER).to_vec(),
                SightingKind::Announcement,
            ),
            (
                ndp::unsolicited_advertisement("2001:db8::50".parse().unwrap(), STRANGER),
                SightingKind::Announcement,
            ),
            (four_probe.resolve_frame().unwrap(), SightingKind::Probe),
            (probe.resolve_frame().unwrap(), SightingKind::Probe),
        ];
        for (at, (frame, kind)) in claims.into_iter().enumerate() {
            // Whatever the kernels had to say of themselves.
            while let Ok(()) = tokio::time::timeout(Duration::from_millis(30), claim(&mut ear)).await {
                ear.read();
            }
            let sent = clock::now();
            send(&other, "b0", vec![frame]);
            tokio::time::timeout(DEADLINE, claim(&mut ear)).await.expect("woken");
            let report = ear.read().1.unwrap();
            let seen = report.sightings.iter().find(|one| one.mac == STRANGER.octets()).unwrap();
            let wanted = if matches!(at, 2 | 4) { "2001:db8::50" } else { "192.0.2.50" };
            assert_eq!((seen.address, seen.kind, seen.index), (vip(wanted), kind, index));
            assert!(seen.at >= sent && seen.at <= clock::now());
        }
        // In passing, and answers: read when somebody reads.
        let question = |ear: &mut Ear, at: usize| {
            let mut question = ear.question(index, QuestionKind::Echo, THERE[at]);
            question.from = Some(address(HERE[at]));
            question.to = Some(owner);
            question
        };
        let before = ear.stats.claim_reads.load(Ordering::Relaxed);
        for at in [0, 1] {
            let question = question(&mut ear, at);
            ear.ask(&question);
        }
        send(
            &other,
            "b0",
            vec![
                stranger_arp(ArpOperation::Request, "192.0.2.60", "192.0.2.1", MacAddr::BROADCAST),
                stranger_arp(ArpOperation::Reply, "192.0.2.61", "192.0.2.1", MacAddr(mac_of("a0"))),
            ],
        );
        let woken = tokio::time::timeout(Duration::from_millis(100), claim(&mut ear)).await;
        assert!(woken.is_err(), "an answer woke us");
        assert_eq!(ear.stats.claim_reads.load(Ordering::Relaxed), before);
        let report = ear.read().1.unwrap();
        let heard = |text: &str, kind| {
            report.sightings.iter().any(|one| one.address == vip(text) && one.kind == kind)
        };
        assert!(
            heard(THERE[0], SightingKind::EchoReply) && heard(THERE[1], SightingKind::EchoReply),
            "{report:#?}"
        );
        assert!(
            heard("192.0.2.60", SightingKind::Asker) && heard("192.0.2.61", SightingKind::ResolveReply),
            "{report:#?}"
        );
    });
}

async fn claim(ear: &mut Ear) {
    poll_fn(|cx| ear.listener.poll_claim(cx)).await;
}

/// A host that announces without end wakes us some times, and then we read by the clock. The
/// clock comes first: a moment that has passed may not be named again, or nothing else is done.
#[test]
fn many_claims_wake_us_a_few_times_only() {
    isolated(|| async {
        let other = neighbour().await;
        let mut ear = Ear::start().await;
        ear.listen_well("a0");
        ear.read();
        let frame = purelb_wire::announcement_frames(address("192.0.2.50"), STRANGER).remove(0);
        let flood = other.run(move || flood("b0", frame, Duration::from_secs(3)));
        let (mut woken, since) = (0, Instant::now());
        let soon = |ear: &Ear| ear.listener.next_read().unwrap() < clock::now() + Duration::from_millis(500);
        while !soon(&ear) {
            assert!(since.elapsed() < Duration::from_secs(3), "woken {woken} times, and no end to it");
            tokio::time::timeout(DEADLINE, claim(&mut ear)).await.expect("woken");
            woken += 1;
            ear.read();
        }
        let at = ear.listener.next_read().unwrap();
        let wait = at.since(clock::now());
        let more = tokio::time::timeout(wait / 2, claim(&mut ear)).await;
        assert!(more.is_err() && woken >= 8, "woken {woken} times, and once more");
        until("the moment", DEADLINE, || if clock::now() >= at { Ok(()) } else { Err(at) }).await;
        let report = ear.read().1.unwrap();
        assert!(report.sightings.iter().any(|one| one.mac == STRANGER.octets()));
        let next = ear.listener.next_read().unwrap();
        assert!(next > clock::now(), "{next} has passed already");
        flood.join().unwrap();
    });
}

/// Only what says something of an address, and only what is said to us or to all.
#[test]
fn the_filter_keeps_the_rest_out() {
    isolated(|| async {
        let other = neighbour().await;
        ip("link set a0 promisc on");
        let mut ear = Ear::start().await;
        ear.listen_well("a0");
        let here = MacAddr(mac_of("a0"));
        while let Ok(()) = tokio::time::timeout(Duration::from_millis(50), claim(&mut ear)).await {
            ear.read();
        }
        ear.read();
        let before = ear.stats.frames.load(Ordering::Relaxed);
        let elsewhere = MacAddr([2, 0, 0, 0, 0, 0x77]);
        let reply = |source: &str, destination: &str, id| EchoMessage {
            kind: EchoKind::Reply,
            source: address(source),
            destination: address(destination),
            hops: 64,
            id,
            sequence: 1,
            payload: b"not ours",
        };
        let mut frames = vec![
            stranger_arp(ArpOperation::Reply, "192.0.2.60", "192.0.2.1", elsewhere),
            stranger_arp(ArpOperation::Request, "192.0.2.60", "192.0.2.1", elsewhere),
        ];
        // An id of 65,536: at most one of these is ours.
        for id in [1, 2, 3, 4] {
            frames.push(reply(THERE[0], HERE[0], id).frame(STRANGER, here).unwrap());
            frames.push(reply(THERE[1], HERE[1], id).frame(STRANGER, here).unwrap());
        }
        let request = EchoMessage { kind: EchoKind::Request, ..reply(THERE[0], HERE[0], 9) };
        frames.push(request.frame(STRANGER, here).unwrap());
        let tcp = {
            let mut frame = reply(THERE[1], HERE[1], 1).frame(STRANGER, here).unwrap();
            frame[20] = 6;
            frame
        };
        frames.extend(std::iter::repeat_n(tcp, 50));
        send(&other, "b0", frames);
        // The last one gets through.
        send(&other, "b0", vec![stranger_arp(ArpOperation::Reply, "192.0.2.62", "192.0.2.1", here)]);
        ear.hear("the answer", |one| one.address == vip("192.0.2.62")).await;
        let taken = ear.stats.frames.load(Ordering::Relaxed) - before;
        // The kernels resolve each other to answer the echo request.
        assert!(taken <= 6, "{taken} frames came through");
    });
}

/// A frame of our own that comes back, and what we send, is nobody's.
#[test]
fn our_own_frames_are_left_out() {
    isolated(|| async {
        let other = neighbour().await;
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        let here = MacAddr(mac_of("a0"));
        ear.sender.announce(vip(HERE[0]), index).unwrap();
        let frames = purelb_wire::announcement_frames(address(HERE[0]), here);
        send(&other, "b0", frames);
        send(&other, "b0", vec![stranger_arp(ArpOperation::Reply, "192.0.2.62", "192.0.2.1", here)]);
        let until = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < until);
            let report = ear.read().1.unwrap();
            assert!(report.sightings.iter().all(|one| one.mac != here.octets()), "{report:#?}");
            if report.sightings.iter().any(|one| one.address == vip("192.0.2.62")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}

/// Frames that found no room are told of, and the reader catches up. Nobody has the address
/// that is asked for: the kernel's table of neighbours, one for all namespaces, would overflow.
#[test]
fn an_overrun_is_seen_and_read_in_turns() {
    isolated(|| async {
        let other = neighbour().await;
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        let flood: Vec<Vec<u8>> = (0..4000u16)
            .map(|n| {
                stranger_arp(
                    ArpOperation::Request,
                    &format!("10.9.{}.{}", n >> 8, n & 255),
                    "192.0.2.200",
                    MacAddr::BROADCAST,
                )
            })
            .collect();
        let started = clock::now();
        send(&other, "b0", flood);
        let (_, first) = ear.read();
        let first = first.unwrap();
        assert_eq!(first.overrun, [index]);
        assert!(first.sightings.len() <= 600, "{} in one turn", first.sightings.len());
        assert!(first.listened_until < started, "the rest is not read yet");
        assert!(ear.listener.next_read().unwrap() <= clock::now() + Duration::from_millis(10), "at once");
        let lost = ear.stats.lost.load(Ordering::Relaxed);
        let mut turns = 1;
        while ear.read().1.unwrap().listened_until < started {
            turns += 1;
            assert!(turns < 100);
        }
        let read = ear.stats.frames.load(Ordering::Relaxed);
        println!("4000 frames: {read} read in {turns} turns, {lost} lost");
        assert!(lost > 0 && lost + read >= 4000, "{lost} + {read}");
        let after = ear.read().1.unwrap();
        assert!(after.overrun.is_empty(), "said once");
    });
}

#[test]
fn an_interface_that_goes_and_comes_back_is_told_of() {
    isolated(|| async {
        let other = neighbour().await;
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        ip("link set a0 down");
        let gone = changed(&mut ear).await;
        assert!(matches!(&gone[..], [(at, Err(why))] if *at == index && why.contains("down")), "{gone:?}");
        assert_eq!(ear.read().0, [], "said once");
        ip("link set a0 up");
        assert_eq!(changed(&mut ear).await, [(index, Ok(()))]);

        ip("link del a0");
        let gone = changed(&mut ear).await;
        assert!(matches!(&gone[..], [(at, Err(_))] if *at == index), "{gone:?}");
        other.cable("a0", "b0");
        ip("addr add 192.0.2.1/24 dev a0");
        other.ip("addr add 192.0.2.2/24 dev b0");
        let again = index_of("a0");
        ear.mirror.until("the new interface", |m| m.links.contains_key(&again)).await;
        assert_eq!(ear.listen(&[("a0", again)]), [(again, Ok(()))]);
        plugged_in(&other, "a0").await;
        let mut question = ear.question(again, QuestionKind::Echo, THERE[0]);
        question.from = Some(address(HERE[0]));
        ear.ask(&question);
        ear.hear("an answer", |one| one.index == again && one.kind == SightingKind::EchoReply).await;
        assert_eq!(ear.listen(&[]), []);
        assert_eq!(ear.read(), (Vec::new(), None));
        assert_eq!(ear.listener.next_read(), None);
    });
}

/// Reads until where we listen has changed.
async fn changed(ear: &mut Ear) -> Vec<(IfIndex, Result<(), String>)> {
    let since = Instant::now();
    loop {
        let (changes, _) = ear.read();
        if !changes.is_empty() {
            return changes;
        }
        assert!(since.elapsed() < DEADLINE, "nothing changed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn where_nothing_can_be_heard_says_why() {
    isolated(|| async {
        ip("link set lo up");
        ip("tuntap add dev tun0 mode tun");
        ip("link set tun0 up");
        ip("link add bridge0 type bridge");
        ip("link set bridge0 up arp off");
        let mut ear = Ear::start().await;
        let mut why = |interface: &str, index| match &ear.listen(&[(interface, index)])[..] {
            [(at, Err(why))] if *at == index => why.clone(),
            other => panic!("{interface}: {other:?}"),
        };
        assert!(why("lo", index_of("lo")).contains("no Ethernet address"));
        assert!(why("tun0", index_of("tun0")).contains("no Ethernet address"));
        assert!(why("bridge0", index_of("bridge0")).contains("no ARP"));
        assert!(why("a0", IfIndex(4711)).contains("no interface 4711"));
    });
}

/// A bridge has the address, and the segment is behind one of its ports.
#[test]
fn a_bridge_hears_what_its_port_gets() {
    isolated(|| async {
        let other = Other::new();
        other.cable("a0", "b0");
        ip("link add bridge0 type bridge");
        ip("link set a0 master bridge0");
        ip("link set bridge0 up");
        ip("addr add 192.0.2.1/24 dev bridge0");
        ip("addr add 2001:db8::1/64 dev bridge0 nodad");
        other.ip("addr add 192.0.2.2/24 dev b0");
        other.ip("addr add 2001:db8::2/64 dev b0 nodad");
        plugged_in(&other, "bridge0").await;
        let mut ear = Ear::start().await;
        let index = ear.listen_well("bridge0");
        for (here, there) in HERE.iter().zip(THERE) {
            for kind in [QuestionKind::Echo, QuestionKind::Resolve] {
                let mut question = ear.question(index, kind, there);
                question.from = Some(address(here));
                let left = ear.ask(&question);
                ear.hear(&format!("{kind:?} of {there}"), |one| {
                    one.address == vip(there) && one.index == index && one.at >= left
                })
                .await;
            }
        }
        let frames = purelb_wire::announcement_frames(address("192.0.2.50"), STRANGER);
        send(&other, "b0", frames);
        ear.hear("a claim", |one| one.address == vip("192.0.2.50") && one.kind == SightingKind::Announcement)
            .await;
    });
}

/// Two members watched ten times a second, as at rest with three nodes.
#[test]
fn what_watching_costs() {
    isolated(|| async {
        let other = neighbour().await;
        let mut ear = Ear::start().await;
        let index = ear.listen_well("a0");
        let owner = mac_there(&other, "b0");
        let cpu = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
        let started = Instant::now();
        let (before, woken) = (cpu(), ear.stats.claim_reads.load(Ordering::Relaxed));
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let (mut answers, mut prompt) = (0, 0);
        while started.elapsed() < Duration::from_secs(2) {
            tokio::select! {
                _ = ticks.tick() => {}
                () = poll_fn(|cx| ear.listener.poll_claim(cx)) => { prompt += 1; }
            }
            let report = ear.read().1.unwrap();
            answers += report.sightings.iter().filter(|one| one.kind == SightingKind::EchoReply).count();
            for at in [0, 1] {
                let mut question = ear.question(index, QuestionKind::Echo, THERE[at]);
                question.from = Some(address(HERE[at]));
                question.to = Some(owner);
                ear.ask(&question);
            }
        }
        let used = Duration::from(cpu()) - Duration::from(before);
        let claims = ear.stats.claim_reads.load(Ordering::Relaxed) - woken;
        println!(
            "2 owners asked for 2 s: {answers} answers, {claims} wake-ups for claims ({prompt}), {used:?} of this thread's time"
        );
        assert!(answers >= 30, "{answers}");
    });
}
