use std::time::Duration;

use super::*;
use crate::config::KERNEL_LATENESS;
use crate::ids::InstanceId;

fn ms(millis: u64) -> Mono {
    Mono::from_millis(millis)
}

fn healthy(fence: &Fence, now: Mono) -> bool {
    fence.cause(now).is_none()
}

fn mk_fence() -> Fence {
    Fence::new(Timers::default(), FencePolicy::Strict)
}

#[test]
fn fenced_until_the_first_renewal() {
    let fence = mk_fence();
    assert_eq!(fence.cause(ms(0)), Some(FenceCause::NeverRenewed));
    assert_eq!(fence.deadline(), None);
    assert_eq!(fence.kernel_seconds(ms(0)), None);
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
    assert_eq!(fence.kernel_seconds(ms(1)), None);
    fence.renewed(ms(0));
    assert!(!healthy(&fence, ms(9)), "that write was sent before the loss");
    fence.renewed(ms(10));
    assert!(healthy(&fence, ms(11)));
    fence.lose(ms(11), FenceCause::Taken { by: InstanceId::new("x").unwrap() });
    assert!(!healthy(&fence, ms(12)));
}

#[test]
fn kernel_lifetimes_end_at_the_fence_at_the_latest() {
    let mut fence = mk_fence();
    fence.renewed(ms(0));
    assert_eq!(fence.kernel_seconds(ms(0)), Some(7));
    assert_eq!(fence.kernel_seconds(ms(1)), Some(6));
    assert_eq!(fence.kernel_seconds(ms(5999)), Some(1));
    assert_eq!(fence.kernel_seconds(ms(6001)), None, "less than a second left: no address any more");
    for millis in 0..8000 {
        if let Some(seconds) = fence.kernel_seconds(ms(millis)) {
            let end = ms(millis) + Duration::from_secs(seconds.into());
            assert!(end <= fence.kernel_until().unwrap());
            assert!(end + KERNEL_LATENESS <= ms(10_000), "the kernel's lateness stays inside the Lease");
        }
    }
}
