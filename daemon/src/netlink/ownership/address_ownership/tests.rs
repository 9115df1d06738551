use nix::sched::{CloneFlags, unshare};

use super::*;

/// An attribute that no kernel knows stands for IFA_PROTO on kernels before 5.18.
#[test]
fn an_unknown_attribute_is_found_to_be_unknown() {
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET)
            .expect("this test makes a network namespace: run it as root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
        let mut client = NetlinkClient::open().unwrap();
        // One the kernel has known for ever, with the same wrong length.
        let broadcast = knows_attribute(&mut client, 4).unwrap();
        (broadcast, knows_attribute(&mut client, 200).unwrap())
    });
    assert_eq!(thread.join().unwrap(), (true, false));
}
