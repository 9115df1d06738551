use std::time::Duration;

use super::*;
use crate::config::kernel_lateness;
use crate::ids::{IfIndex, InstanceId};
use crate::messages::{AddressSpec, Lifetimes};

fn ms(millis: u64) -> Mono {
    Mono::from_millis(millis)
}

fn healthy(fence: &Fence, now: Mono) -> bool {
    fence.cause(now).is_none()
}

fn mk_fence() -> Fence {
    Fence::new(LeaseTimers::default())
}

#[test]
fn fenced_until_the_first_renewal() {
    let fence = mk_fence();
    assert_eq!(fence.cause(ms(0)), Some(FenceCause::NeverRenewed));
    assert_eq!(fence.deadline(), None);
    assert_eq!(fence.kernel_until(ms(0)), None);
}

#[test]
fn counts_from_the_sending_not_from_the_answer() {
    let mut fence = mk_fence();
    // Sent at 1 s; whenever the answer arrives, the deadline is 8 s.
    fence.renewed(ms(1000));
    assert_eq!(fence.deadline(), Some(ms(8000)));
    assert!(healthy(&fence, ms(7999)));
    assert_eq!(fence.cause(ms(8000)), Some(FenceCause::Expired { last_error: None }));
}

#[test]
fn an_answer_that_overtook_another_does_not_shorten_the_fence() {
    let mut fence = mk_fence();
    fence.renewed(ms(4000));
    fence.renewed(ms(1000));
    assert_eq!(fence.deadline(), Some(ms(11_000)));
}

#[test]
fn failures_do_not_move_the_deadline_and_are_named_when_it_passes() {
    let mut fence = mk_fence();
    fence.renewed(ms(0));
    fence.failed("timed out".to_owned());
    assert!(healthy(&fence, ms(6999)));
    let expired = FenceCause::Expired { last_error: Some("timed out".to_owned()) };
    assert_eq!(fence.cause(ms(7000)), Some(expired));
    fence.renewed(ms(7100));
    assert!(healthy(&fence, ms(7200)), "a renewal that succeeds recovers");
}

#[test]
fn a_certain_loss_needs_no_deadline() {
    let mut fence = mk_fence();
    fence.renewed(ms(0));
    fence.lose(ms(1), FenceCause::Deleted);
    assert_eq!(fence.cause(ms(1)), Some(FenceCause::Deleted));
    assert_eq!(fence.kernel_until(ms(1)), None);
    fence.renewed(ms(0));
    assert!(!healthy(&fence, ms(9)), "that write was sent before the loss");
    fence.renewed(ms(10));
    assert!(healthy(&fence, ms(11)));
    fence.lose(ms(11), FenceCause::Taken { by: InstanceId::new("x").unwrap() });
    assert!(!healthy(&fence, ms(12)));
}

fn mk_spec(until: Option<Mono>, valid: Option<u32>) -> AddressSpec {
    AddressSpec {
        index: IfIndex(2),
        net: "192.0.2.1/24".parse().unwrap(),
        until,
        valid,
        preferred: None,
        no_prefix_route: true,
        no_dad: true,
    }
}

/// However long a change waits between its decision and the kernel: what it may live
/// for is counted when it is sent.
#[test]
fn kernel_lifetimes_end_at_the_fence_at_the_latest() {
    let mut fence = mk_fence();
    fence.renewed(ms(0));
    let spec = mk_spec(fence.kernel_until(ms(0)), Some(300));
    let seconds = |at| spec.lifetimes(ms(at)).map(|l| l.valid.unwrap());
    assert_eq!(seconds(0), Some(7));
    assert_eq!(seconds(1), Some(6));
    assert_eq!(seconds(5999), Some(1));
    assert_eq!(seconds(6001), None, "less than a second left: no address any more");
    assert_eq!(fence.kernel_until(ms(6001)), None);
    for millis in 0..8000 {
        if let Some(seconds) = seconds(millis) {
            let lifetime = Duration::from_secs(seconds.into());
            let end = ms(millis) + lifetime;
            assert!(end <= fence.deadline().unwrap());
            assert!(
                end + kernel_lateness(lifetime) <= ms(10_000),
                "the kernel's lateness stays inside the Lease"
            );
        }
    }
}

#[test]
fn what_is_configured_may_end_earlier_and_what_is_not_fenced_later() {
    let lives = |valid| Some(Lifetimes { valid, preferred: valid });
    assert_eq!(mk_spec(Some(ms(7000)), Some(5)).lifetimes(ms(0)), lives(Some(5)));
    assert_eq!(mk_spec(None, Some(300)).lifetimes(ms(9000)), lives(Some(300)));
    assert_eq!(mk_spec(None, None).lifetimes(ms(0)), lives(None));
    assert_eq!(mk_spec(None, Some(0)).lifetimes(ms(0)), None, "it would end before it begins");
    let deprecated = AddressSpec { preferred: Some(0), ..mk_spec(None, None) };
    assert_eq!(deprecated.lifetimes(ms(0)), Some(Lifetimes { valid: None, preferred: Some(0) }));
    let long = AddressSpec { preferred: Some(600), ..mk_spec(Some(ms(7000)), Some(300)) };
    assert_eq!(long.lifetimes(ms(0)), lives(Some(7)), "never preferred longer than valid");
}
