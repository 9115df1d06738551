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
