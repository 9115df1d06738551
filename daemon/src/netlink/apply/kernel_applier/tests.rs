use super::*;

fn mk_spec(net: &str) -> AddressSpec {
    AddressSpec {
        index: IfIndex(2),
        net: net.parse().unwrap(),
        until: None,
        valid: Some(20),
        preferred: None,
        no_prefix_route: true,
        no_dad: true,
    }
}

fn mk_known(prefix: u8, ours: bool) -> ShownAddress {
    ShownAddress { prefix, ours, no_prefix_route: true, secondary: false }
}

/// Plans against a view and returns the flags of what would be sent.
fn flags(op: &KernelChange, view: &mut AddressView) -> Vec<u16> {
    let (mut requests, mut added) = (Vec::new(), Vec::new());
    plan(op, view, &mut requests, &mut added);
    requests.into_iter().map(|request| request.flags).collect()
}

/// Between our look and our request an operator may add the same address: only
/// `NLM_F_EXCL` makes the kernel refuse ours.
#[test]
fn what_was_not_there_is_added_exclusively() {
    for net in ["192.0.2.1/24", "2001:db8::1/64"] {
        let put = KernelChange::Put(mk_spec(net));
        let mut view = AddressView::default();
        assert_eq!(flags(&put, &mut view), [NLM_F_CREATE | NLM_F_EXCL]);
        assert_eq!(flags(&put, &mut view), [NLM_F_CREATE | NLM_F_REPLACE], "ours by now");
    }
}

#[test]
fn nothing_is_sent_about_what_is_not_ours() {
    let spec = mk_spec("192.0.2.1/24");
    let remove = KernelChange::Remove { index: spec.index, net: spec.net };
    let mut view = AddressView::default();
    view.put(spec.index, spec.net, mk_known(24, false));
    assert!(flags(&KernelChange::Put(spec.clone()), &mut view).is_empty());
    assert!(flags(&remove, &mut view).is_empty());
    // Of twins that differ in their far end, one foreign is enough.
    let mut twins = AddressView::default();
    twins.put(spec.index, spec.net, mk_known(24, false));
    twins.put(spec.index, spec.net, mk_known(24, true));
    assert!(flags(&remove, &mut twins).is_empty());
}

#[test]
fn primaries_are_removed_last_and_only_among_removals() {
    let net = |n: u8| -> IpNet { format!("192.0.2.{n}/24").parse().unwrap() };
    let index = IfIndex(2);
    let mut view = AddressView::default();
    view.put(index, net(1), mk_known(24, true));
    for n in 2..=3 {
        view.put(index, net(n), ShownAddress { secondary: true, ..mk_known(24, true) });
    }
    let remove = |n| KernelChange::Remove { index, net: net(n) };
    let ops = [remove(1), remove(2), KernelChange::Put(mk_spec("192.0.2.9/24")), remove(1), remove(3)];
    assert_eq!(removal_order(&ops, &view), [1, 0, 2, 4, 3]);
}

fn seconds_sent(spec: &AddressSpec, now: Mono) -> Option<(u32, u32)> {
    let RouteNetlinkMessage::NewAddress(message) = put_request(spec, now)? else { return None };
    message.attributes.into_iter().find_map(|attribute| match attribute {
        AddressAttribute::CacheInfo(info) => Some((info.ifa_valid, info.ifa_preferred)),
        _ => None,
    })
}

#[test]
fn preferred_never_outlives_valid() {
    for (valid, preferred, expected) in [
        (Some(20), None, (20, 20)),
        (Some(20), Some(30), (20, 20)),
        (Some(20), Some(0), (20, 0)),
        (None, None, (INFINITE, INFINITE)),
        (None, Some(0), (INFINITE, 0)),
    ] {
        let spec = AddressSpec { valid, preferred, ..mk_spec("2001:db8::1/64") };
        assert_eq!(seconds_sent(&spec, Mono::ZERO), Some(expected));
    }
}

/// The same change, however long it waited: it ends at the same moment, and is not sent
/// once that is less than a second away.
#[test]
fn a_change_that_waited_lives_no_longer_for_it() {
    let until = Mono::from_millis(107_000);
    let spec = AddressSpec { until: Some(until), valid: Some(300), ..mk_spec("192.0.2.1/24") };
    for (now, seconds) in [(100_000, 7), (100_001, 6), (103_500, 3), (106_000, 1)] {
        assert_eq!(seconds_sent(&spec, Mono::from_millis(now)), Some((seconds, seconds)));
    }
    assert_eq!(seconds_sent(&spec, Mono::from_millis(106_001)), None);
    let (mut requests, mut added) = (Vec::new(), Vec::new());
    let over = AddressSpec { until: Some(Mono::from_millis(1)), ..spec };
    let planned = plan(&KernelChange::Put(over), &mut AddressView::default(), &mut requests, &mut added);
    assert!(matches!(planned, Plan::Done(Err(ApplyError::NoLifetime { .. }))));
    assert!(requests.is_empty() && added.is_empty());
}
