//! What one seed stands for: how many nodes, segments and addresses, which timers,
//! and what kind of trouble.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use purelb_core::Vip;
use purelb_core::config::LeaseTimers;

use crate::mutate::Mutation;
use crate::queue::{SEC, T};
use crate::rng::Rng;

pub const MOST_NODES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Nothing fails; Services come and go now and then.
    Calm,
    /// Slow, failing, lying and absent API servers; partitions; stalled watches.
    FaultyApi,
    /// Carriers, links, subnets, strangers' addresses, refusing kernels.
    Network,
    /// Services, endpoints, groups and configuration change all the time.
    Churn,
    /// Drains, restarts, upgrades, reboots, joins: planned work, no faults.
    Rolling,
    /// Planned work with a member of the older format among the nodes.
    Mixed,
    /// All of it.
    Everything,
    /// Frames lost, heard one way or on one side only, dead ports, machines that stop.
    Segment,
    /// API servers away for minutes, with deaths and restarts meanwhile.
    Outage,
}

impl Profile {
    pub const ALL: [Self; 9] = [
        Self::Calm,
        Self::FaultyApi,
        Self::Network,
        Self::Churn,
        Self::Rolling,
        Self::Mixed,
        Self::Everything,
        Self::Segment,
        Self::Outage,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::FaultyApi => "faulty-api",
            Self::Network => "network",
            Self::Churn => "churn",
            Self::Rolling => "rolling",
            Self::Mixed => "mixed",
            Self::Everything => "everything",
            Self::Segment => "segment",
            Self::Outage => "outage",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == text)
    }

    /// A seed names its profile too, so that a number is all a report needs.
    pub fn of_seed(seed: u64) -> Self {
        Self::ALL[(seed % 9) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each node on one segment.
    Split,
    /// Every node on all segments, one interface each.
    Both,
}

/// How what arrives at a process is put together into steps of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batches {
    /// Each input at once, by itself.
    Single,
    /// What comes within a moment.
    Moments,
    /// A busy machine: everything within tens of milliseconds, or a part of it.
    Heaps,
}

/// One address of the universe, whether or not a Service has it now.
#[derive(Clone, Debug)]
pub struct Address {
    pub vip: Vip,
    pub local: bool,
    /// `None`: no node is on its subnet, or it is a remote pool's.
    pub segment: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub profile: Profile,
    pub mutation: Option<Mutation>,
    pub nodes: usize,
    /// Of `nodes`, these start only when somebody joins them.
    pub spares: usize,
    pub legacy: usize,
    pub segments: usize,
    pub layout: Layout,
    pub addresses: Vec<Address>,
    pub timers: LeaseTimers,
    /// Whether segments are asked who is there.
    pub detector: bool,
    /// The timers that all nodes are given one after the other, somewhere in the run.
    pub later: Option<LeaseTimers>,
    pub batches: Batches,
    pub cycles: u64,
    /// Faults and changes happen this long in each cycle, then everything heals.
    pub active: T,
    /// Nothing may change this long after settling.
    pub quiet: T,
    /// Mean time between two actions while active.
    pub pace: T,
}

pub fn v4_subnet(segment: usize, extra: bool) -> IpNet {
    let third = if extra { 1 } else { 0 };
    net(IpAddr::V4(Ipv4Addr::new(10, segment as u8, third, 0)), 24)
}

pub fn v6_subnet(segment: usize) -> IpNet {
    net(IpAddr::V6(Ipv6Addr::new(0xfd00, segment as u16, 0, 0, 0, 0, 0, 0)), 64)
}

pub fn net(ip: IpAddr, bits: u8) -> IpNet {
    IpNet::new(ip, bits).expect("a valid prefix length")
}

/// The node's own address in a subnet.
pub fn own_address(subnet: IpNet, node: usize) -> IpNet {
    let ip = match subnet.addr() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, 10 + node as u8))
        }
        IpAddr::V6(v6) => {
            let mut s = v6.segments();
            s[7] = 10 + node as u16;
            IpAddr::V6(Ipv6Addr::from(s))
        }
    };
    net(ip, subnet.prefix_len())
}

fn secs(duration: u64, deadline: u64, retry: u64) -> LeaseTimers {
    LeaseTimers {
        duration: Duration::from_secs(duration),
        renew_deadline: Duration::from_secs(deadline),
        retry_period: Duration::from_secs(retry),
    }
}

/// Any timers the product accepts.
fn any_timers(rng: &mut Rng) -> LeaseTimers {
    loop {
        let timers = LeaseTimers {
            duration: Duration::from_secs(rng.range(5, 70)),
            renew_deadline: Duration::from_millis(500 * rng.range(4, 130)),
            retry_period: Duration::from_millis(250 * rng.range(2, 40)),
        };
        if let Ok(timers) = timers.checked()
            && timers.retry_period <= timers.renew_deadline / 3
        {
            return timers;
        }
    }
}

impl Setup {
    pub fn from_seed(seed: u64, profile: Profile, mutation: Option<Mutation>) -> Self {
        let mut rng = Rng::new(seed ^ 0x5e7_0b5e7);
        let segments = if rng.percent(40) { 2 } else { 1 };
        let layout = if rng.percent(50) { Layout::Split } else { Layout::Both };
        let lowest = if segments == 2 && layout == Layout::Split { 4 } else { 2 };
        let nodes = rng.range(lowest, 8) as usize;
        let spares = match profile {
            Profile::Calm | Profile::FaultyApi => 0,
            _ if nodes > lowest as usize => rng.below(2) as usize,
            _ => 0,
        };
        let legacy = usize::from(profile == Profile::Mixed && nodes - spares > 2);
        let count = match rng.below(10) {
            0..7 => rng.range(1, 6),
            7..9 => rng.range(6, 12),
            _ => rng.range(12, 21),
        };
        let addresses = Self::addresses(&mut rng, count as usize, segments);
        // Mostly the defaults; shorter ones leave less room, longer ones are what
        // big clusters use.
        let timers = match rng.below(10) {
            0 => secs(5, 3, 1),
            1..6 => secs(10, 7, 2),
            6 => secs(30, 20, 5),
            7 => secs(60, 40, 10),
            _ => any_timers(&mut rng),
        };
        let changing = matches!(profile, Profile::FaultyApi | Profile::Rolling | Profile::Everything);
        let later = (changing && rng.percent(30)).then(|| any_timers(&mut rng));
        let batches = match rng.below(4) {
            0 => Batches::Single,
            1..3 => Batches::Moments,
            _ => Batches::Heaps,
        };
        let (cycles, active, quiet, pace) = match profile {
            Profile::Calm => (2, 120, 1500, 40),
            Profile::Rolling | Profile::Mixed => (4, 180, 200, 12),
            Profile::Churn => (5, 90, 120, 2),
            Profile::FaultyApi | Profile::Network => (6, 100, 100, 6),
            Profile::Everything => (6, 120, 100, 4),
            Profile::Segment => (4, 150, 60, 12),
            Profile::Outage => (3, 420, 60, 20),
        };
        Self {
            seed,
            profile,
            mutation,
            nodes,
            spares,
            legacy,
            segments,
            layout,
            addresses,
            detector: false,
            timers,
            later,
            batches,
            cycles,
            active: active * SEC,
            quiet: quiet * SEC,
            pace: pace * SEC,
        }
    }

    fn addresses(rng: &mut Rng, count: usize, segments: usize) -> Vec<Address> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        while all.len() < count {
            let segment = rng.below(segments as u64) as usize;
            let host = rng.range(100, 250) as u8;
            let (ip, local, segment) = match rng.below(20) {
                0..9 => (Ipv4Addr::new(10, segment as u8, 0, host).into(), true, Some(segment)),
                9..11 => (Ipv4Addr::new(10, segment as u8, 1, host).into(), true, Some(segment)),
                11..17 => (
                    Ipv6Addr::new(0xfd00, segment as u16, 0, 0, 0, 0, 0, u16::from(host)).into(),
                    true,
                    Some(segment),
                ),
                17..19 => (Ipv4Addr::new(172, 16, 0, host).into(), false, None),
                // Nobody's subnet: must stay away from every interface.
                _ => (Ipv4Addr::new(10, 99, 0, host).into(), true, None),
            };
            let vip = Vip::new(ip);
            if seen.insert(vip) {
                all.push(Address { vip, local, segment });
            }
        }
        all
    }

    fn longest(&self, of: impl Fn(LeaseTimers) -> Duration) -> T {
        let later = self.later.map_or(Duration::ZERO, &of);
        of(self.timers).max(later).as_nanos() as T
    }

    /// The longest duration that any node's Lease has in this run.
    pub fn duration(&self) -> T {
        self.longest(|t| t.duration)
    }

    pub fn renew_deadline(&self) -> T {
        self.longest(|t| t.renew_deadline)
    }

    pub fn retry_period(&self) -> T {
        self.longest(|t| t.retry_period)
    }

    pub fn describe(&self) -> String {
        format!(
            "seed {} profile {}: {} nodes ({} join later, {} of the older format), {} segment(s) {:?}, \
             {} addresses, lease {:?}/{:?}/{:?}{}, {:?}",
            self.seed,
            self.profile.name(),
            self.nodes,
            self.spares,
            self.legacy,
            self.segments,
            self.layout,
            self.addresses.len(),
            self.timers.duration,
            self.timers.renew_deadline,
            self.timers.retry_period,
            self.later.map_or(String::new(), |l| {
                format!(" and later {:?}/{:?}/{:?}", l.duration, l.renew_deadline, l.retry_period)
            }),
            self.batches,
        )
    }
}
