//! Dumps while others change addresses without end: the kernel says that each was disturbed,
//! and what such a dump leaves out is still there.

use purelbd::netlink::{AddressOwnership, KernelApplier, MarkMode, MonitorSettings};

use crate::mirror::Mirror;
use crate::ns::{Churn, apply_all, index_of, isolated, pair, put, remove};

/// Enough that a dump comes in many pieces, with time for changes between them.
const OURS: u32 = 1_500;

fn vip(n: u32) -> String {
    format!("10.{}.{}.{}/32", n >> 16, (n >> 8) & 255, n & 255)
}

/// The record of an older kernel's marks is not lost: everything can still be removed.
#[test]
fn a_record_outlives_disturbed_dumps() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let run = tempfile::tempdir().unwrap();
        let marks = AddressOwnership::open(&MarkMode::Record, run.path()).unwrap();
        let mut applier = KernelApplier::open(marks).unwrap();
        apply_all(&mut applier, (0..OURS).map(|n| put(index, &vip(n))).collect());
        let churn = Churn::start("a0");
        let other = index_of("a1");
        for round in 0..10 {
            // Two interfaces in one batch: everything is dumped.
            let ops = vec![put(index, &vip(OURS + round)), put(other, &vip(OURS + 100 + round))];
            let _ = crate::ns::apply(&mut applier, ops);
        }
        let rounds = churn.stop();
        assert!(rounds > 100, "{rounds} changes are no disturbance");
        // As a restarted daemon would see it.
        let marks = AddressOwnership::open(&MarkMode::Record, run.path()).unwrap();
        let mut applier = KernelApplier::open(marks).unwrap();
        apply_all(&mut applier, (0..OURS).map(|n| remove(index, &vip(n))).collect());
        let left = crate::ns::addresses_on("a0");
        let ours = left.iter().filter(|a| a["prefixlen"] == 32 && a["family"] == "inet").count();
        assert!(ours <= 10, "{ours} of ours are left");
    });
}

/// And a monitor's state has everything that was there all the time.
#[test]
fn a_picture_is_whole_after_disturbed_dumps() {
    isolated(|| async {
        let index = pair("a0", "a1");
        apply_all(&mut crate::ns::applier(), (0..OURS).map(|n| put(index, &vip(n))).collect());
        let mut mirror = Mirror::start_with(MonitorSettings::default(), 4096, AddressOwnership::kernel());
        mirror.until("the first dump", |m| m.dumps == 1).await;
        let churn = Churn::start("a0");
        for round in 2..8 {
            mirror.monitor.resync();
            mirror.until("another dump", |m| m.dumps >= round).await;
            let ours = mirror.addresses.values().filter(|a| a.ours).count();
            assert_eq!(ours, OURS as usize, "round {round}");
        }
        assert!(churn.stop() > 100);
    });
}
