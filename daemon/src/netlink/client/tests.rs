use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::netlink::dump_requests;
use crate::netlink::parse::{self, KernelEvent};

fn ip(arguments: &[&str], lines: &str) {
    let mut child = Command::new("ip").args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "ip {arguments:?}");
}

fn take(found: &mut BTreeSet<IpNet>, message: &RawMessage<'_>) {
    if let Some(KernelEvent::Address(address)) = parse::event(message) {
        found.insert(address.net);
    }
}

/// The kernel says so itself: with others at work, one try is not to be relied on. What all
/// tries together show has everything that was there all the time.
#[test]
fn a_disturbed_dump_is_known_and_made_up_for() {
    let test = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("run as root: this test makes a network namespace");
        ip(&["link", "set", "lo", "up"], "");
        let steady: BTreeSet<IpNet> =
            (0..3000).map(|n| format!("10.0.{}.{}/32", n / 250, n % 250).parse().unwrap()).collect();
        let lines: String = steady.iter().map(|net| format!("addr add {net} dev lo\n")).collect();
        ip(&["-batch", "-"], &lines);
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let churn = std::thread::spawn(move || {
            // Before the others in the list, and gone again.
            let line = "addr add 10.9.0.1/32 dev lo\naddr del 10.9.0.1/32 dev lo\n";
            while !stopped.load(Ordering::Relaxed) {
                ip(&["-batch", "-"], &line.repeat(300));
            }
        });
        let mut client = NetlinkClient::open().unwrap();
        let (began, mut disturbed) = (Instant::now(), 0);
        while disturbed < 5 {
            assert!(began.elapsed() < Duration::from_secs(60), "{disturbed} disturbed dumps are too few");
            let one = client.dump(&dump_requests::addresses(None), DumpTries::ONE, take).unwrap();
            disturbed += u32::from(!one.whole);
        }
        for _ in 0..20 {
            let all = client.dump(&dump_requests::addresses(None), DumpTries::SEVERAL, take).unwrap();
            let missing: Vec<_> = steady.difference(&all.found).collect();
            assert!(missing.is_empty(), "whole: {}, missing {missing:?}", all.whole);
        }
        stop.store(true, Ordering::Relaxed);
        churn.join().unwrap();
    };
    std::thread::spawn(test).join().unwrap();
}
