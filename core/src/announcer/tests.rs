use super::*;

fn ms(millis: u64) -> Mono {
    Mono::from_millis(millis)
}

fn vip(last: u8) -> Vip {
    Vip::new(std::net::IpAddr::from([192, 168, 1, last]))
}

fn eth0() -> IfName {
    IfName::new("eth0").unwrap()
}

fn mk_config(delay: u64, count: u32, interval: u64) -> GarpConfig {
    GarpConfig {
        enabled: true,
        delay: Duration::from_millis(delay),
        count,
        interval: Duration::from_millis(interval),
        refresh: None,
        verify: true,
    }
}

fn sent(announcer: &mut Announcer, until: u64, ours: impl Fn(Vip) -> bool + Copy) -> Vec<(u64, bool)> {
    let mut all = Vec::new();
    while let Some(next) = announcer.deadline().filter(|d| *d <= ms(until)) {
        for due in announcer.due(next, ours) {
            all.push((next.as_nanos() / 1_000_000, due.first));
        }
    }
    all
}

#[test]
fn delay_count_and_interval_are_kept() {
    let mut announcer = Announcer::new(1000);
    announcer.start(ms(1000), vip(1), IfIndex(2), eth0(), &mk_config(200, 3, 500));
    assert_eq!(sent(&mut announcer, 60_000, |_| true), [(1200, true), (1700, false), (2200, false)]);
    assert_eq!(announcer.deadline(), None);
}

#[test]
fn a_repeat_for_an_address_we_lost_is_not_sent() {
    let mut announcer = Announcer::new(1000);
    announcer.start(ms(0), vip(1), IfIndex(2), eth0(), &mk_config(0, 3, 500));
    assert_eq!(sent(&mut announcer, 499, |_| true), [(0, true)]);
    assert_eq!(sent(&mut announcer, 60_000, |_| false), []);
    assert_eq!(announcer.deadline(), None);
}

#[test]
fn the_first_is_verified_even_where_repeats_are_not() {
    let mut announcer = Announcer::new(1000);
    let careless = GarpConfig { verify: false, ..mk_config(100, 2, 500) };
    announcer.start(ms(0), vip(1), IfIndex(2), eth0(), &careless);
    assert_eq!(sent(&mut announcer, 60_000, |_| false), []);
}

#[test]
fn under_load_repeats_give_way_and_firsts_do_not() {
    let mut announcer = Announcer::new(10);
    for last in 0..200 {
        announcer.start(ms(0), vip(last), IfIndex(2), eth0(), &mk_config(0, 3, 100));
    }
    let all = sent(&mut announcer, 10_000, |_| true);
    assert_eq!(all.iter().filter(|(_, first)| *first).count(), 200);
    let repeats = all.iter().filter(|(_, first)| !first).count();
    assert!((10..=13).contains(&repeats), "10 at once and 10 a second: {repeats}");
    assert_eq!(announcer.dropped(), 400 - repeats as u64);
}

#[test]
fn a_new_start_begins_again() {
    let mut announcer = Announcer::new(1000);
    announcer.start(ms(0), vip(1), IfIndex(2), eth0(), &mk_config(0, 2, 500));
    assert_eq!(sent(&mut announcer, 0, |_| true), [(0, true)]);
    announcer.start(ms(100), vip(1), IfIndex(2), eth0(), &mk_config(0, 2, 500));
    assert_eq!(sent(&mut announcer, 60_000, |_| true), [(100, true), (600, false)]);
}

#[test]
fn a_failed_first_is_tried_again_as_a_first() {
    let mut announcer = Announcer::new(1000);
    announcer.start(ms(0), vip(1), IfIndex(2), eth0(), &mk_config(0, 1, 500));
    announcer.due(ms(0), |_| true);
    announcer.failed(ms(0), vip(1), IfIndex(2), eth0(), &mk_config(200, 1, 500));
    assert_eq!(sent(&mut announcer, 60_000, |_| true), [(100, true)]);
}

#[test]
fn a_repeat_of_a_process_that_was_held_up_is_not_sent() {
    let mut announcer = Announcer::new(1000);
    announcer.start(ms(0), vip(1), IfIndex(2), eth0(), &mk_config(0, 3, 500));
    assert_eq!(sent(&mut announcer, 0, |_| true), [(0, true)]);
    assert_eq!(announcer.due(ms(20_000), |_| true), []);
    assert_eq!(announcer.dropped(), 1);
    assert_eq!(sent(&mut announcer, 60_000, |_| true), [(20_500, false)], "the next one is in time again");
}

#[test]
fn a_first_one_is_in_time_for_a_second_from_when_it_is_decided() {
    let mut announcer = Announcer::new(1000);
    announcer.start(ms(21_000), vip(2), IfIndex(2), eth0(), &mk_config(0, 1, 500));
    let held_up = announcer.due(ms(30_000), |_| true);
    assert_eq!((held_up[0].first, held_up[0].until), (true, ms(31_000)));
}

#[test]
fn a_refresh_goes_on_for_as_long_as_the_address_is_ours() {
    let mut announcer = Announcer::new(1000);
    let config = GarpConfig { refresh: Some(Duration::from_secs(10)), ..mk_config(0, 2, 500) };
    announcer.start(ms(0), vip(1), IfIndex(2), eth0(), &config);
    let times = [(0, true), (500, false), (10_500, false), (20_500, false)];
    assert_eq!(sent(&mut announcer, 30_000, |_| true), times);
    // Whatever `verify` says: nothing is said of an address that is gone.
    assert!(sent(&mut announcer, 60_000, |_| false).is_empty());
    assert_eq!(announcer.deadline(), None);
}

#[test]
fn a_refresh_begins_and_ends_with_its_setting() {
    let mut announcer = Announcer::new(1000);
    let every = |announcer: &mut Announcer, now, seconds: u64| {
        let every = (seconds > 0).then(|| Duration::from_secs(seconds));
        announcer.refresh_every(ms(now), vip(1), IfIndex(2), &eth0(), every);
    };
    every(&mut announcer, 0, 0);
    assert_eq!(announcer.deadline(), None);
    every(&mut announcer, 0, 10);
    every(&mut announcer, 9_000, 10);
    assert_eq!(announcer.deadline(), Some(ms(10_000)), "looking at it again changes nothing");
    every(&mut announcer, 9_000, 20);
    assert_eq!(announcer.deadline(), Some(ms(29_000)));
    every(&mut announcer, 9_000, 0);
    assert_eq!(announcer.deadline(), None);
    // The repeats of a new address are not cut short.
    announcer.start(ms(0), vip(1), IfIndex(2), eth0(), &mk_config(0, 3, 500));
    every(&mut announcer, 0, 10);
    let times = [(0, true), (500, false), (1000, false), (11_000, false)];
    assert_eq!(sent(&mut announcer, 20_000, |_| true), times);
}

#[test]
fn refreshes_share_the_rate_and_none_is_left_out() {
    let mut announcer = Announcer::new(10);
    let config = GarpConfig { refresh: Some(Duration::from_secs(60)), ..mk_config(0, 1, 500) };
    for last in 0..50 {
        announcer.start(ms(0), vip(last), IfIndex(2), eth0(), &config);
    }
    assert_eq!(announcer.due(ms(0), |_| true).len(), 50, "firsts are never held back");
    let mut told: std::collections::BTreeMap<Vip, u32> = Default::default();
    let mut most = 0;
    while let Some(next) = announcer.deadline().filter(|d| *d < ms(119_000)) {
        let due = announcer.due(next, |_| true);
        most = most.max(due.len());
        due.into_iter().for_each(|d| *told.entry(d.vip).or_default() += 1);
    }
    assert!(most <= 10, "{most} at once");
    assert_eq!(told.len(), 50, "each had its turn");
    assert!(told.values().all(|n| *n == 1), "{told:?}");
    assert_eq!(announcer.dropped(), 0);
}
