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
