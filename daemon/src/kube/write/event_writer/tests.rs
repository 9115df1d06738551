use super::*;

#[test]
fn a_burst_goes_at_once_and_then_at_its_pace() {
    let start = Instant::now();
    let mut pace = EventPace::new(start);
    let times: Vec<Duration> = (0..EVENT_BURST + 10).map(|_| pace.next(start) - start).collect();
    assert!(times[..EVENT_BURST as usize].iter().all(Duration::is_zero), "{times:?}");
    assert_eq!(times[EVENT_BURST as usize], EVENT_INTERVAL);
    assert_eq!(times[EVENT_BURST as usize + 9], EVENT_INTERVAL * 10);
    // After a long silence there is a burst again.
    let later = start + Duration::from_secs(3600);
    assert_eq!(pace.next(later), later);
}

/// A restart says nothing that was said; a trouble that comes again is said again.
#[test]
fn a_trouble_has_the_same_name_in_the_next_process() {
    let names = || {
        let mut told_warnings = ToldWarnings::default();
        [("web", "no subnet"), ("web", "no subnet"), ("api", "no subnet")].map(|t| told_warnings.suffix(t))
    };
    let (one, next) = (names(), names());
    assert_eq!((&one[0], &one[2]), (&next[0], &next[2]));
    assert!(one[0] != one[1] && one[0] != one[2] && one[1] != one[2], "{one:?}");
    assert!(matches!(one[1], NameSuffix::Fresh(_)) && one[1] != next[1], "again is again in each: {next:?}");
}
