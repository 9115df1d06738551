//! Everything of ours goes, and nothing else.

use purelbd::netlink::{AddressOwnership, KernelApplier, MarkMode, withdraw_all};

use crate::ns::{addresses_on, apply_all, index_of, ip, isolated, pair, put};

fn all_but_ours_stay(marks: &AddressOwnership) {
    let a = pair("a0", "a1");
    pair("b0", "b1");
    let b = index_of("b0");
    ip("addr add 192.0.2.200/24 dev a0");
    ip("-6 addr add 2001:db8::200/64 dev b0 nodad");
    let before = (addresses_on("a0").len(), addresses_on("b0").len());
    let mut applier = KernelApplier::open(marks.clone()).unwrap();
    let mine = (1..=20).flat_map(|n| {
        [
            put(a, &format!("192.0.2.{n}/24")),
            put(b, &format!("10.0.0.{n}/32")),
            put(b, &format!("2001:db8::{n}/64")),
        ]
    });
    apply_all(&mut applier, mine.collect());

    let done = withdraw_all(marks);
    assert_eq!((done.removed.len(), done.errors.len()), (60, 0), "{done}");
    assert_eq!((addresses_on("a0").len(), addresses_on("b0").len()), before);
    assert!(withdraw_all(marks).removed.is_empty());
}

#[test]
fn by_the_kernels_mark() {
    isolated(|| async { all_but_ours_stay(&AddressOwnership::kernel()) });
}

#[test]
fn by_the_record() {
    isolated(|| async {
        let directory = tempfile::tempdir().unwrap();
        all_but_ours_stay(&AddressOwnership::open(&MarkMode::Record, directory.path()).unwrap());
    });
}
