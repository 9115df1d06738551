use super::*;

fn mk(index: u32, net: &str, created: u32) -> KernelAddress {
    KernelAddress {
        index: IfIndex(index),
        net: net.parse().unwrap(),
        peer: None,
        flags: 0,
        link_scope: false,
        proto: None,
        created,
    }
}

fn key(address: &KernelAddress) -> AddressId {
    (address.index, address.net)
}

#[test]
fn pending_becomes_settled_and_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = AddressRecord::open(directory.path()).unwrap();
    let ours = mk(2, "192.0.2.1/24", 500);
    assert!(!record.contains(&ours));
    record.begin(&[key(&ours)]).unwrap();
    assert!(record.contains(&ours), "pending: whenever it is created");
    record.settle(std::slice::from_ref(&ours), None, &[]).unwrap();

    let again = AddressRecord::open(directory.path()).unwrap();
    assert_eq!(again, record);
    assert!(again.contains(&ours));
    assert!(!again.contains(&mk(2, "192.0.2.1/24", 501)), "created by somebody else later");
    assert!(!again.contains(&mk(3, "192.0.2.1/24", 500)));
}

#[test]
fn entries_without_their_address_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = AddressRecord::open(directory.path()).unwrap();
    let (one, two) = (mk(2, "192.0.2.1/24", 5), mk(3, "192.0.2.2/24", 6));
    record.begin(&[key(&one), key(&two)]).unwrap();
    record.settle(&[one.clone(), two.clone()], None, &[]).unwrap();
    // A look at one interface says nothing of the other.
    record.settle(&[], Some(IfIndex(2)), &[]).unwrap();
    assert!(!record.contains(&one) && record.contains(&two));
    record.settle(&[mk(3, "192.0.2.2/24", 7)], None, &[]).unwrap();
    assert!(!record.contains(&two), "another one stands in its place");
}

#[test]
fn what_the_kernel_refused_is_not_ours() {
    let directory = tempfile::tempdir().unwrap();
    let mut record = AddressRecord::open(directory.path()).unwrap();
    let theirs = mk(2, "192.0.2.1/24", 5);
    record.begin(&[key(&theirs)]).unwrap();
    record.settle(std::slice::from_ref(&theirs), None, &[key(&theirs)]).unwrap();
    assert!(!record.contains(&theirs));
}

#[test]
fn a_broken_file_is_not_read_as_empty() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("addresses.json"), "[{").unwrap();
    let error = AddressRecord::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("addresses.json"), "{error}");
}
