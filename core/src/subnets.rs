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

use crate::facts::AgentConfig;
use crate::ids::{Family, IfName, Vip};
use crate::kernel::Kernel;
use crate::time::Mono;

#[derive(Clone, Debug)]
pub struct Subnets {
    gain_delay: Duration,
    /// What the kernel shows, with the moment from which it counts.
    seen: BTreeMap<(IfName, IpNet), Mono>,
    /// The first look takes everything as it is: nothing was gained, and a daemon
    /// that restarts must not give up what it had for the length of the delay.
    primed: bool,
}

impl Subnets {
    pub fn new(gain_delay: Duration) -> Self {
        Self { gain_delay, seen: BTreeMap::new(), primed: false }
    }

    /// Compares with what the kernel shows now. `None`: no configuration for this
    /// node, so it serves nothing.
    pub fn update(&mut self, now: Mono, kernel: &Kernel, config: Option<&AgentConfig>) {
        let present = config.map(|c| present(kernel, c)).unwrap_or_default();
        self.seen.retain(|key, _| present.contains(key));
        let counts_from = if self.primed { now + self.gain_delay } else { now };
        for key in present {
            self.seen.entry(key).or_insert(counts_from);
        }
        self.primed = true;
    }

    /// Subnets that count now, per interface.
    pub fn stable(&self, now: Mono) -> BTreeMap<IfName, BTreeSet<IpNet>> {
        let mut stable: BTreeMap<IfName, BTreeSet<IpNet>> = BTreeMap::new();
        for ((name, subnet), from) in &self.seen {
            if *from <= now {
                stable.entry(name.clone()).or_default().insert(*subnet);
            }
        }
        stable
    }

    /// What the Lease should say.
    pub fn advertised(&self, now: Mono) -> BTreeSet<IpNet> {
        self.seen.iter().filter(|(_, from)| **from <= now).map(|((_, subnet), _)| *subnet).collect()
    }

    /// Where a VIP belongs: the most specific subnet that contains it, then the first
    /// interface by name, so that the choice is the same at every look.
    pub fn locate(&self, now: Mono, vip: Vip) -> Option<(&IfName, IpNet)> {
        self.seen
            .iter()
            .filter(|((_, subnet), from)| **from <= now && subnet.contains(&vip.ip()))
            .map(|((name, subnet), _)| (name, *subnet))
            .min_by(|(an, a), (bn, b)| b.prefix_len().cmp(&a.prefix_len()).then_with(|| an.cmp(bn)))
    }

    /// When the next gained subnet begins to count.
    pub fn deadline(&self, now: Mono) -> Option<Mono> {
        self.seen.values().filter(|from| **from > now).min().copied()
    }
}

fn present(kernel: &Kernel, config: &AgentConfig) -> BTreeSet<(IfName, IpNet)> {
    let selected = kernel.selected(config);
    kernel
        .addresses()
        .filter(|a| selected.contains(&a.index) && !a.ours && !a.link_local)
        // Not usable by the kernel's own word; an IPv6 address only, as IPv4 has no such states.
        .filter(|a| Family::of(a.net.addr()) == Family::V4 || !(a.tentative || a.dad_failed || a.deprecated))
        .filter_map(|a| {
            let link = kernel.link(a.index).filter(|l| l.usable())?;
            Some((link.name.clone(), a.net.trunc()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
