//! Which addresses are ours, with and without the kernel's help.

use std::time::Duration;

use purelb_core::messages::{AddressSpec, KernelChange};
use purelbd::netlink::{AddressOwnership, KernelApplier, MarkMode, MonitorSettings};

use crate::mirror::Mirror;
use crate::ns::{DEADLINE, addresses_on, apply, apply_all, ip, isolated, pair, put, remove, spec, until};

fn record(directory: &tempfile::TempDir) -> AddressOwnership {
    let marks = AddressOwnership::open(&MarkMode::Record, directory.path()).unwrap();
    assert!(marks.uses_record());
    marks
}

async fn ours(marks: &AddressOwnership) -> Vec<String> {
    let mut mirror = Mirror::start_with(MonitorSettings::default(), 64, marks.clone());
    mirror.until("a dump", |m| m.dumps == 1).await;
    mirror.addresses.values().filter(|a| a.ours).map(|a| a.net.to_string()).collect()
}

#[test]
fn the_kernel_is_found_to_mark_or_not() {
    isolated(|| async {
        let directory = tempfile::tempdir().unwrap();
        // Linux 5.18 and later; asked by a probe while loopback is down, and by looking
        // once it is up.
        let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
        let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        let by_probe = AddressOwnership::open(&MarkMode::Detect, directory.path()).unwrap();
        assert_eq!(by_probe.uses_record(), version < (5, 18), "{release}");
        ip("link set lo up");
        let by_looking = AddressOwnership::open(&MarkMode::Detect, directory.path()).unwrap();
        assert_eq!(by_looking.uses_record(), version < (5, 18), "{release}");
    });
}

#[test]
fn a_record_knows_ours_also_after_a_restart() {
    isolated(|| async {
        let index = pair("a0", "a1");
        ip("addr add 192.0.2.200/24 dev a0");
        let directory = tempfile::tempdir().unwrap();
        let marks = record(&directory);
        let mut mirror = Mirror::start_with(MonitorSettings::default(), 64, marks.clone());
        let mut applier = KernelApplier::open(marks).unwrap();
        apply_all(&mut applier, vec![put(index, "192.0.2.1/24"), put(index, "2001:db8::1/64")]);
        mirror.until("both ours", |m| m.addresses.values().filter(|a| a.ours).count() == 2).await;

        let restarted = record(&directory);
        assert_eq!(ours(&restarted).await, ["192.0.2.1/24", "2001:db8::1/64"]);
        let mut applier = KernelApplier::open(restarted.clone()).unwrap();
        let refused =
            apply(&mut applier, vec![remove(index, "192.0.2.200/24"), put(index, "192.0.2.200/24")]);
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        apply_all(
            &mut applier,
            vec![put(index, "192.0.2.1/24"), remove(index, "192.0.2.1/24"), put(index, "192.0.2.3/24")],
        );
        assert_eq!(ours(&restarted).await, ["192.0.2.3/24", "2001:db8::1/64"]);
    });
}

#[test]
fn an_operators_address_in_place_of_ours_is_not_taken_for_it() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let directory = tempfile::tempdir().unwrap();
        let marks = record(&directory);
        let mut applier = KernelApplier::open(marks.clone()).unwrap();
        apply_all(
            &mut applier,
            vec![KernelChange::Put(AddressSpec { no_prefix_route: false, ..spec(index, "192.0.2.1/24") })],
        );
        // Creation times are in hundredths of a second: theirs must come later.
        let put_at = std::time::Instant::now();
        until("the kernel's clock to move on", DEADLINE, || {
            let passed = put_at.elapsed();
            if passed > Duration::from_millis(20) { Ok(()) } else { Err(passed) }
        })
        .await;
        ip("addr del 192.0.2.1/24 dev a0");
        ip("addr add 192.0.2.1/24 dev a0");
        assert!(ours(&marks).await.is_empty());
        let refused = apply(&mut applier, vec![remove(index, "192.0.2.1/24"), put(index, "192.0.2.1/24")]);
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        assert!(addresses_on("a0").iter().any(|a| a["local"] == "192.0.2.1"));
    });
}

#[test]
fn what_cannot_be_recorded_is_not_added() {
    isolated(|| async {
        let index = pair("a0", "a1");
        let directory = tempfile::tempdir().unwrap();
        let marks = record(&directory);
        let mut applier = KernelApplier::open(marks).unwrap();
        let path = directory.path().to_owned();
        directory.close().unwrap();
        let refused = apply(&mut applier, vec![put(index, "192.0.2.1/24")]);
        assert!(refused[0].as_ref().unwrap_err().contains("cannot be recorded"), "{refused:?}");
        assert!(addresses_on("a0").iter().all(|a| a["local"] != "192.0.2.1"));
        // The directory is back: so is the address.
        std::fs::create_dir(&path).unwrap();
        apply_all(&mut applier, vec![put(index, "192.0.2.1/24")]);
        std::fs::remove_dir_all(&path).unwrap();
    });
}
