//! Pool operations beside the plain way, in one run on one machine.
//!
//! Plain: a hash set of the addresses in use, and a walk from the first address of
//! the range to the first one not in it. Every figure is the time of one operation;
//! the ratio says how many times longer the plain way takes. The plain way knows no
//! owners, groups or sharing, so it wins where there is nothing to walk past.

#![allow(clippy::print_stdout, reason = "the table is the bench's result")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::collections::HashSet;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use purelb_core::pools::{
    AddressClaim, AddressPools, AddressRequest, Families, Group, GroupName, PoolText, Range, RangePick,
    RangeRules, SharingTerms,
};
use purelb_core::{Family, ObjectKey, Vip};

struct Plain {
    in_use: HashSet<IpAddr>,
    first: IpAddr,
    last: IpAddr,
}

impl Plain {
    fn allocate(&mut self) -> Option<IpAddr> {
        let mut at = self.first;
        loop {
            if !self.in_use.contains(&at) {
                self.in_use.insert(at);
                return Some(at);
            }
            if at == self.last {
                return None;
            }
            at = step(at, 1);
        }
    }
}

fn step(ip: IpAddr, by: u32) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4).wrapping_add(by)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6).wrapping_add(u128::from(by))).into(),
    }
}

struct Bench {
    pools: AddressPools,
    plain: Plain,
    group: GroupName,
    family: Family,
    newcomer: ObjectKey,
}

impl Bench {
    /// One range, with its first `held` addresses in use.
    fn new(cidr: &str, subnet: &str, held: u32) -> Self {
        let group = GroupName::of("purelb-system", "default").expect("a valid name");
        let family = Family::of(cidr.parse::<ipnet::IpNet>().expect("a valid CIDR").addr());
        let text = PoolText { pool: cidr, subnet, aggregation: "default" };
        let range =
            Range::parse("spec.local.pool", text, family, &RangeRules::default()).expect("a valid range");
        let (first, last) = (range.span().first(), range.span().last());
        let mut bench = Self {
            pools: AddressPools::new(),
            plain: Plain { in_use: HashSet::new(), first, last },
            group: group.clone(),
            family,
            newcomer: service(u32::MAX),
        };
        let spec = Group::new(group, 0, vec![range]).expect("one range does not overlap itself");
        bench.pools.set_groups([spec]);
        for i in 0..held {
            let ip = step(first, i);
            bench.adopt(&service(i), ip);
            bench.plain.in_use.insert(ip);
        }
        bench
    }

    fn adopt(&mut self, service: &ObjectKey, ip: IpAddr) {
        let claim = AddressClaim { group: Some(self.group.clone()), terms: SharingTerms::alone() };
        self.pools.adopt(service, Vip::new(ip), claim);
    }

    fn allocate(&mut self) -> Option<Vip> {
        let request = AddressRequest {
            service: &self.newcomer,
            group: &self.group,
            families: Families::One(self.family),
            explicit: &[],
            leaves: &[],
            terms: SharingTerms::alone(),
            pick: RangePick::FirstFit,
        };
        let grant = self.pools.allocate(&request).ok()?;
        grant.addresses.first().map(|granted| granted.ip)
    }

    /// Allocate and release the lowest free address, both ways.
    fn pair(&mut self) -> (Duration, Duration) {
        let ours = time(|| {
            let ip = self.allocate().expect("there is room");
            black_box(self.pools.release(&self.newcomer, ip));
        });
        let plain = time(|| {
            let ip = self.plain.allocate().expect("there is room");
            black_box(self.plain.in_use.remove(&ip));
        });
        (ours, plain)
    }

    /// Ask for an address where none is left, both ways.
    fn refused(&mut self) -> (Duration, Duration) {
        let ours = time(|| assert!(black_box(self.allocate()).is_none()));
        let plain = time(|| assert!(black_box(self.plain.allocate()).is_none()));
        (ours, plain)
    }
}

fn service(i: u32) -> ObjectKey {
    ObjectKey::of("web", &format!("service-{i:010}")).expect("a valid key")
}

/// The mean of at least 20 rounds and 200 ms, after one to warm up.
fn time(mut round: impl FnMut()) -> Duration {
    round();
    let start = Instant::now();
    let mut rounds = 0_u32;
    while rounds < 20 || start.elapsed() < Duration::from_millis(200) {
        for _ in 0..20 {
            round();
        }
        rounds += 20;
    }
    start.elapsed() / rounds
}

/// Fill an empty /16 by `count` addresses, and rebuild it from what is held.
fn fill(count: u32) -> [(&'static str, Duration, Duration); 2] {
    let keys: Vec<ObjectKey> = (0..count).map(service).collect();
    let mut bench = Bench::new("10.7.0.0/16", "10.0.0.0/8", 0);
    let start = Instant::now();
    for key in &keys {
        bench.newcomer = key.clone();
        black_box(bench.allocate()).expect("there is room");
    }
    let ours = start.elapsed() / count;
    let start = Instant::now();
    for _ in 0..count {
        black_box(bench.plain.allocate()).expect("there is room");
    }
    let plain = start.elapsed() / count;

    let mut again = Bench::new("10.7.0.0/16", "10.0.0.0/8", 0);
    let start = Instant::now();
    for (i, key) in (0..count).zip(&keys) {
        again.adopt(key, step(again.plain.first, i));
    }
    let ours_again = start.elapsed() / count;
    let start = Instant::now();
    for i in 0..count {
        again.plain.in_use.insert(step(again.plain.first, i));
    }
    let plain_again = start.elapsed() / count;
    [
        ("/16 filled to a quarter, per address", ours, plain),
        ("/16 rebuilt from 16384 Services, per address", ours_again, plain_again),
    ]
}

fn main() {
    const V4: (&str, &str) = ("10.7.0.0/16", "10.0.0.0/8");
    const V6: (&str, &str) = ("fd00:7::/64", "fd00::/16");
    println!("{:<46} {:>12} {:>12} {:>9}", "name", "ours", "plain", "ratio");
    let show = |name: &str, ours: Duration, plain: Duration| {
        let ratio = plain.as_secs_f64() / ours.as_secs_f64();
        println!("{name:<46} {ours:>12.2?} {plain:>12.2?} {ratio:>8.2}x");
    };
    for (name, (pool, subnet), held) in [
        ("/16 empty, allocate + release", V4, 0),
        ("/16 half full, allocate + release", V4, 1 << 15),
        ("/16 with one left, allocate + release", V4, (1 << 16) - 1),
        ("/64 empty, allocate + release", V6, 0),
        ("/64 with 65536 in use, allocate + release", V6, 1 << 16),
    ] {
        let (ours, plain) = Bench::new(pool, subnet, held).pair();
        show(name, ours, plain);
    }
    let (ours, plain) = Bench::new(V4.0, V4.1, 1 << 16).refused();
    show("/16 full, refused", ours, plain);
    // The plain way is quadratic here: a quarter of the range is enough to wait for.
    for (name, ours, plain) in fill(1 << 14) {
        show(name, ours, plain);
    }
}
