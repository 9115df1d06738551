use super::*;
use crate::ids::IfIndex;

fn ms(millis: u64) -> Mono {
    Mono::from_millis(millis)
}

fn key(last: u8) -> AddrKey {
    (IfIndex(2), format!("10.0.0.{last}/32").parse().unwrap())
}

#[test]
fn a_lifetime_is_given_anew_long_before_it_ends() {
    let mut upkeep = RefreshQueue::default();
    upkeep.given(ms(0), key(1), Duration::from_secs(300));
    assert_eq!(upkeep.next(), Some(ms(100_000)));
    assert!(upkeep.due(ms(99_999)).is_empty());
    assert_eq!(upkeep.due(ms(100_000)), [key(1)]);
    assert_eq!((upkeep.due(ms(100_001)).len(), upkeep.next()), (0, None), "once");
    assert!(upkeep.knows(key(1)), "the answer is under way");
    upkeep.forget(key(1));
    assert!(!upkeep.knows(key(1)));
}

#[test]
fn failures_are_tried_again_soon_and_then_less_often() {
    let mut upkeep = RefreshQueue::default();
    let mut now = ms(0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        upkeep.failed(now, key(1));
        let at = upkeep.next().unwrap();
        waits.push(now.until(at).as_millis());
        now = at;
        assert_eq!(upkeep.due(now), [key(1)]);
    }
    assert_eq!(waits, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
    upkeep.given(now, key(1), Duration::from_secs(6));
    upkeep.failed(now, key(1));
    assert_eq!(now.until(upkeep.next().unwrap()).as_millis(), 100, "a success starts the count anew");
}
