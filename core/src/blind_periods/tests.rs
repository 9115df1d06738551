use super::*;

fn ms(millis: u64) -> Mono {
    Mono::from_millis(millis)
}

/// Writes that came back at 0 s and 3.3 s.
fn mk_sight() -> BlindPeriods {
    let mut sight = BlindPeriods::new(LeaseTimers::default());
    sight.update(ms(5), Some(ms(0)));
    sight.update(ms(3305), Some(ms(3300)));
    sight
}

#[test]
fn who_expires_while_we_see_is_not_excused() {
    let mut sight = mk_sight();
    // Sent at once, since somebody expired.
    sight.update(ms(6005), Some(ms(6000)));
    for expired in [0, 3300, 5999, 6000, 6005] {
        assert_eq!(sight.excuses(ms(expired)), None);
    }
}

#[test]
fn who_expires_while_we_see_nothing_is_waited_for() {
    let mut sight = mk_sight();
    sight.failed();
    sight.update(ms(20_010), Some(ms(20_000)));
    assert_eq!(sight.excuses(ms(3299)), None, "expired while we saw");
    for expired in [3300, 12_000, 20_010] {
        assert_eq!(sight.excuses(ms(expired)), Some(ms(22_010)));
    }
    assert_eq!(sight.excuses(ms(20_011)), None);
    sight.update(ms(23_400), Some(ms(23_330)));
    assert_eq!(sight.excuses(ms(12_000)), Some(ms(22_010)), "no longer than that");
}

#[test]
fn a_silent_watch_and_a_paused_process_are_blind_as_well() {
    let mut silent = mk_sight();
    silent.update(ms(9_000), Some(ms(6_600)));
    assert_eq!(silent.excuses(ms(8_000)), Some(ms(11_000)));
    let mut paused = mk_sight();
    paused.update(ms(60_005), Some(ms(60_000)));
    assert_eq!(paused.excuses(ms(30_000)), Some(ms(62_005)));
}

#[test]
fn trouble_that_goes_on_after_a_moment_is_one() {
    let mut sight = mk_sight();
    sight.failed();
    sight.update(ms(12_010), Some(ms(12_000)));
    sight.failed();
    sight.update(ms(13_510), Some(ms(13_500)));
    assert_eq!(sight.excuses(ms(8_000)), Some(ms(15_510)));
    sight.update(ms(16_830), Some(ms(16_820)));
    assert_eq!(sight.excuses(ms(16_825)), None);
}

#[test]
fn trouble_without_end_keeps_nobody_alive_without_end() {
    let mut sight = mk_sight();
    for second in 4..60 {
        sight.failed();
        sight.update(ms(second * 1000 + 10), Some(ms(second * 1000)));
    }
    assert_eq!(sight.excuses(ms(3_500)), None, "a dead one would never be replaced");
}
