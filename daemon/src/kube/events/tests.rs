use super::*;

#[test]
fn a_burst_goes_at_once_and_then_at_its_pace() {
    let start = Instant::now();
    let mut pace = Pace::new(start);
    let times: Vec<Duration> = (0..BURST + 10).map(|_| pace.next(start) - start).collect();
    assert!(times[..BURST as usize].iter().all(Duration::is_zero), "{times:?}");
    assert_eq!(times[BURST as usize], PACE);
    assert_eq!(times[BURST as usize + 9], PACE * 10);
    // After a long silence there is a burst again.
    let later = start + Duration::from_secs(3600);
    assert_eq!(pace.next(later), later);
}

/// A restart says nothing that was said; a trouble that comes again is said again.
#[test]
fn a_trouble_has_the_same_name_in_the_next_process() {
    let names = || {
        let mut troubles = Troubles::default();
        [("web", "no subnet"), ("web", "no subnet"), ("api", "no subnet")].map(|t| troubles.suffix(t))
    };
    let (one, next) = (names(), names());
    assert_eq!((&one[0], &one[2]), (&next[0], &next[2]));
    assert!(one[0] != one[1] && one[0] != one[2] && one[1] != one[2], "{one:?}");
    assert!(matches!(one[1], Suffix::Fresh(_)) && one[1] != next[1], "again is again in each: {next:?}");
}
