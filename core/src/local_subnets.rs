//! Which subnets this node can serve: lose fast, gain slow (R8).
//!
//! ```text
//!   carrier  ▔▔▔▔▔╲▁▁╱▔╲▁╱▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔
//!   served   ▔▔▔▔▔╲▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁╱▔▔▔▔▔▔▔▔▔
//!                  lost at once    └─ stable for the gain delay
//! ```
//!
//! A link that flaps costs its own node one loss; the others see one move, not ten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;

use crate::facts::{AgentConfig, AutoInterface};
use crate::ids::{Family, IfName, Vip};
use crate::kernel_state::KernelState;
use crate::time::Mono;

#[derive(Clone, Debug)]
pub struct LocalSubnets {
    gain_delay: Duration,
    /// What the kernel shows on any link, with the moment from which it counts.
    seen: BTreeMap<(IfName, IpNet), Mono>,
    /// The interfaces of the default routes, likewise.
    routed: BTreeMap<IfName, Mono>,
    /// The part of it that the configuration lets us serve. That it may do so from one
    /// moment to the next is nothing gained: only links have to prove themselves.
    served: BTreeMap<(IfName, IpNet), Mono>,
    /// The first look takes everything as it is: nothing was gained, and a daemon
    /// that restarts must not give up what it had for the length of the delay.
    primed: bool,
    /// Interfaces that count as without a carrier, whatever the kernel says.
    lost: BTreeSet<IfName>,
}

impl LocalSubnets {
    pub fn new(gain_delay: Duration) -> Self {
        Self {
            gain_delay,
            seen: BTreeMap::new(),
            routed: BTreeMap::new(),
            served: BTreeMap::new(),
            primed: false,
            lost: BTreeSet::new(),
        }
    }

    /// Nobody hears us there: to be taken in with the next [`Self::update`].
    pub fn set_lost(&mut self, lost: BTreeSet<IfName>) {
        self.lost = lost;
    }

    /// Compares with what the kernel shows now. `None`: no configuration for this
    /// node, so it serves nothing.
    pub fn update(&mut self, now: Mono, kernel: &KernelState, config: Option<&AgentConfig>) {
        let counts_from = if self.primed { now + self.gain_delay } else { now };
        follow(&mut self.seen, present(kernel, &self.lost), counts_from);
        let routes = kernel.default_interfaces();
        follow(
            &mut self.routed,
            routes.iter().filter_map(|i| kernel.name_of(*i).cloned()).collect(),
            counts_from,
        );
        self.primed = true;
        let selected: BTreeSet<&IfName> = config
            .map(|c| kernel.selected(c).into_iter().filter_map(|i| kernel.name_of(i)).collect())
            .unwrap_or_default();
        // Selected for the route alone, it counts when the route does.
        let routed = |name: &IfName| {
            let by_route =
                config.is_some_and(|c| c.auto == AutoInterface::DefaultRoute && !c.interfaces.contains(name));
            self.routed.get(name).copied().filter(|_| by_route)
        };
        self.served = self
            .seen
            .iter()
            .filter(|((name, _), _)| selected.contains(name))
            .map(|(key, from)| (key.clone(), routed(&key.0).map_or(*from, |route| route.max(*from))))
            .collect();
    }

    /// Does a link of this name have a subnet of ours, whether it counts yet or not?
    pub fn knows(&self, name: &IfName) -> bool {
        self.served.keys().any(|(known, _)| known == name)
    }

    /// Subnets that count now, with the interface of each.
    pub fn counted(&self, now: Mono) -> BTreeSet<(IfName, IpNet)> {
        self.served.iter().filter(|(_, from)| **from <= now).map(|(key, _)| key.clone()).collect()
    }

    /// Subnets that count now, per interface.
    pub fn stable(&self, now: Mono) -> BTreeMap<IfName, BTreeSet<IpNet>> {
        let mut stable: BTreeMap<IfName, BTreeSet<IpNet>> = BTreeMap::new();
        for ((name, subnet), from) in &self.served {
            if *from <= now {
                stable.entry(name.clone()).or_default().insert(*subnet);
            }
        }
        stable
    }

    /// What the Lease should say.
    pub fn advertised(&self, now: Mono) -> BTreeSet<IpNet> {
        self.served.iter().filter(|(_, from)| **from <= now).map(|((_, subnet), _)| *subnet).collect()
    }

    /// Where a VIP belongs: the most specific subnet that contains it, then the first
    /// interface by name, so that the choice is the same at every look.
    pub fn locate(&self, now: Mono, vip: Vip) -> Option<(&IfName, IpNet)> {
        self.served
            .iter()
            .filter(|((_, subnet), from)| **from <= now && subnet.contains(&vip.ip()))
            .map(|((name, subnet), _)| (name, *subnet))
            .min_by(|(an, a), (bn, b)| b.prefix_len().cmp(&a.prefix_len()).then_with(|| an.cmp(bn)))
    }

    /// When the next gained subnet begins to count.
    pub fn deadline(&self, now: Mono) -> Option<Mono> {
        self.served.values().filter(|from| **from > now).min().copied()
    }
}

/// What is no longer there is lost at once; what is new counts from then.
fn follow<K: Ord>(known: &mut BTreeMap<K, Mono>, present: BTreeSet<K>, counts_from: Mono) {
    known.retain(|key, _| present.contains(key));
    for key in present {
        known.entry(key).or_insert(counts_from);
    }
}

fn present(kernel: &KernelState, lost: &BTreeSet<IfName>) -> BTreeSet<(IfName, IpNet)> {
    kernel
        .others()
        .filter(|a| !a.link_local)
        // Not usable by the kernel's own word; an IPv6 address only, as IPv4 has no such states.
        .filter(|a| Family::of(a.net.addr()) == Family::V4 || !(a.tentative || a.dad_failed || a.deprecated))
        .filter_map(|a| {
            let link = kernel.link(a.index).filter(|l| l.usable() && !lost.contains(&l.name))?;
            Some((link.name.clone(), a.net.trunc()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
