//! Which subnets some live node advertises: decides where a multi-pool Service gets
//! an address.
//!
//! A Lease counts from when its last change was SEEN, on our own clock; the time
//! written in it is another host's. A subnet that falls silent counts for a while
//! longer: a daemon that restarts must not cost a Service one of its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;

use crate::facts::LeaseFacts;
use crate::ids::NodeName;
use crate::time::Mono;

/// However long a Lease says it lasts, it counts no longer than this.
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
struct SubnetHolder {
    renewal: String,
    subnets: BTreeSet<IpNet>,
    until: Mono,
}

/// Subnets by the nodes that advertise them.
#[derive(Clone, Debug)]
pub struct LiveSubnets {
    grace: Duration,
    members: BTreeMap<NodeName, SubnetHolder>,
    /// Until when a subnet counts that no member names any more.
    lingering: BTreeMap<IpNet, Mono>,
}

impl LiveSubnets {
    /// `grace`: how much longer a subnet counts after its last node fell silent.
    pub fn new(grace: Duration) -> Self {
        Self { grace, members: BTreeMap::new(), lingering: BTreeMap::new() }
    }

    /// A Lease as it is now. The same renewal seen again is no sign of life. Answers
    /// whether other subnets may count now: a mere renewal changes nothing, and there
    /// are hundreds of them per second in a large cluster.
    pub fn seen(&mut self, lease: &LeaseFacts, now: Mono) -> bool {
        let seconds = u64::try_from(lease.duration_seconds).unwrap_or(0);
        let lasts = Duration::from_secs(seconds).min(LONGEST);
        let former = self.members.get(&lease.node);
        let until = match former {
            Some(former) if former.renewal == lease.renewal => former.until,
            _ => now + lasts,
        };
        let as_before = former.is_some_and(|former| {
            former.subnets == lease.subnets && former.until + self.grace > now && former.until <= until
        });
        if let Some(former) = former {
            let dropped: Vec<IpNet> = former.subnets.difference(&lease.subnets).copied().collect();
            self.linger(dropped, now);
        }
        let member = SubnetHolder { renewal: lease.renewal.clone(), subnets: lease.subnets.clone(), until };
        self.members.insert(lease.node.clone(), member);
        !as_before
    }

    /// The Lease is gone.
    pub fn gone(&mut self, node: &NodeName, now: Mono) {
        if let Some(member) = self.members.remove(node) {
            self.linger(member.subnets, now);
        }
    }

    /// Everything listed anew: nodes that are not in the list are gone.
    pub fn retain(&mut self, present: &BTreeSet<NodeName>, now: Mono) {
        let missing: Vec<NodeName> =
            self.members.keys().filter(|node| !present.contains(*node)).cloned().collect();
        for node in missing {
            self.gone(&node, now);
        }
    }

    fn linger(&mut self, subnets: impl IntoIterator<Item = IpNet>, from: Mono) {
        for net in subnets {
            let until = self.lingering.entry(net).or_default();
            *until = (*until).max(from + self.grace);
        }
    }

    /// The subnets that count now.
    pub fn at(&mut self, now: Mono) -> BTreeSet<IpNet> {
        self.lingering.retain(|_, until| *until > now);
        let mut live: BTreeSet<IpNet> = self.lingering.keys().copied().collect();
        for member in self.members.values().filter(|member| member.until + self.grace > now) {
            live.extend(&member.subnets);
        }
        live
    }

    /// When the answer may change without anything being seen.
    pub fn next_change(&self, now: Mono) -> Option<Mono> {
        let ends = self.members.values().map(|member| member.until + self.grace);
        ends.chain(self.lingering.values().copied()).filter(|at| *at > now).min()
    }
}
