//! Faults of the network: partitions, one-way loss, lost discovery, random loss.
//!
//! All faults of a lab are one state, written to the kernel as one nftables table of
//! the bridges in one transaction, so a change is there at once or not at all. Frames
//! are dropped on their way into and out of a bridge port: nothing is refused or reset,
//! connections stall as they do behind a dead switch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use super::plan::{API_ADDRESS, HostPlan};

/// What a host can be cut off from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// The API server. The rest of the management network stays.
    Api,
    /// The whole management network.
    Management,
    /// A segment, by name: no frame passes.
    Segment(String),
    /// ARP and neighbour discovery on a segment; everything else passes.
    Discovery(String),
    /// ICMP echo on a segment, as filters do; everything else passes.
    Echo(String),
}

impl Cut {
    pub fn segment(name: impl Into<String>) -> Self {
        Self::Segment(name.into())
    }

    pub fn discovery(name: impl Into<String>) -> Self {
        Self::Discovery(name.into())
    }

    pub fn echo(name: impl Into<String>) -> Self {
        Self::Echo(name.into())
    }
}

/// All faults, by host index.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    cuts: BTreeSet<(usize, Cut)>,
    /// Percent of frames lost, each way, by host and segment.
    loss: BTreeMap<(usize, String), f64>,
    /// Percent of the ARP and neighbour discovery frames lost that a host sends.
    discovery_loss: BTreeMap<(usize, String), f64>,
    /// Who is not heard by whom on a segment.
    mutes: BTreeSet<(String, usize, usize)>,
    off: BTreeSet<usize>,
}

impl Faults {
    pub(super) fn cut(&mut self, host: usize, cut: Cut) {
        self.cuts.insert((host, cut));
    }

    pub(super) fn heal(&mut self, host: usize, cut: &Cut) {
        self.cuts.remove(&(host, cut.clone()));
    }

    pub(super) fn heal_all(&mut self, host: usize) {
        self.cuts.retain(|(cut, _)| *cut != host);
        self.loss.retain(|(lossy, _), _| *lossy != host);
        self.discovery_loss.retain(|(lossy, _), _| *lossy != host);
    }

    pub(super) fn set_loss(&mut self, host: usize, segment: &str, percent: f64) -> Result<()> {
        check_percent(percent)?;
        self.loss.insert((host, segment.to_owned()), percent);
        Ok(())
    }

    pub(super) fn set_discovery_loss(&mut self, host: usize, segment: &str, percent: f64) -> Result<()> {
        check_percent(percent)?;
        self.discovery_loss.insert((host, segment.to_owned()), percent);
        Ok(())
    }

    pub(super) fn mute(&mut self, segment: &str, silent: usize, deaf: usize) {
        self.mutes.insert((segment.to_owned(), silent, deaf));
    }

    pub(super) fn unmute(&mut self, segment: &str) {
        self.mutes.retain(|(of, _, _)| of != segment);
    }

    pub(super) fn power(&mut self, host: usize, power: Power) {
        match power {
            Power::Off => self.off.insert(host),
            Power::On => self.off.remove(&host),
        };
    }

    /// The nftables script that makes the kernel's state this one.
    pub(super) fn script(&self, hosts: &[HostPlan]) -> Result<String> {
        let mut rules = Vec::new();
        for host in &self.off {
            rules.extend(all_ports(&hosts[*host]).map(|port| (port, String::new())));
        }
        for (index, cut) in &self.cuts {
            let host = &hosts[*index];
            match cut {
                Cut::Api => rules.push((management_port(host)?, format!("ip {{addr}} {API_ADDRESS} "))),
                Cut::Management => rules.push((management_port(host)?, String::new())),
                Cut::Segment(name) => rules.push((segment_port(host, name)?, String::new())),
                Cut::Discovery(name) => {
                    let port = segment_port(host, name)?;
                    rules.extend(DISCOVERY.map(|frames| (port.clone(), frames.to_owned())));
                }
                Cut::Echo(name) => {
                    let port = segment_port(host, name)?;
                    rules.extend(ECHO.map(|frames| (port.clone(), frames.to_owned())));
                }
            }
        }
        for ((index, segment), percent) in &self.loss {
            let port = segment_port(&hosts[*index], segment)?;
            rules.push((port, random(*percent)));
        }
        let mut sent = Vec::new();
        for ((index, segment), percent) in &self.discovery_loss {
            let port = segment_port(&hosts[*index], segment)?;
            sent.extend(DISCOVERY.map(|frames| (port.clone(), format!("{frames}{}", random(*percent)))));
        }
        let mut script = String::from("table bridge lab\ndelete table bridge lab\ntable bridge lab {\n");
        for (chain, hook, priority, port_is, api_is) in
            [("from", "prerouting", -300, "iifname", "daddr"), ("to", "postrouting", 300, "oifname", "saddr")]
        {
            let _ = writeln!(
                script,
                "chain {chain} {{\ntype filter hook {hook} priority {priority}; policy accept;"
            );
            for (port, condition) in &rules {
                let condition = condition.replace("{addr}", api_is);
                let _ = writeln!(script, "{port_is} \"{port}\" {condition}drop");
            }
            if hook == "prerouting" {
                for (port, condition) in &sent {
                    let _ = writeln!(script, "{port_is} \"{port}\" {condition}drop");
                }
            }
            script.push_str("}\n");
        }
        script.push_str("chain between {\ntype filter hook forward priority 0; policy accept;\n");
        for (segment, silent, deaf) in &self.mutes {
            let (from, to) = (segment_port(&hosts[*silent], segment)?, segment_port(&hosts[*deaf], segment)?);
            let _ = writeln!(script, "iifname \"{from}\" oifname \"{to}\" drop");
        }
        script.push_str("}\n");
        script.push_str("}\n");
        Ok(script)
    }
}

/// Matches of the frames that find neighbours, and of those that ask whether one is there.
const DISCOVERY: [&str; 2] = ["ether type arp ", "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } "];
const ECHO: [&str; 2] =
    ["icmp type { echo-request, echo-reply } ", "icmpv6 type { echo-request, echo-reply } "];

/// Matches by chance; of 10,000: two digits after the point of a percentage.
fn random(percent: f64) -> String {
    format!("numgen random mod 10000 < {} ", (percent * 100.0).round() as u32)
}

fn check_percent(percent: f64) -> Result<()> {
    ensure!((0.0..=100.0).contains(&percent), "a loss of {percent} percent: give 0 to 100");
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    On,
    Off,
}

fn all_ports(host: &HostPlan) -> impl Iterator<Item = String> {
    let management = host.management.iter().map(|port| port.bridge_port.clone());
    host.ports.iter().map(|port| port.bridge_port.clone()).chain(management)
}

fn management_port(host: &HostPlan) -> Result<String> {
    let port = host.management.as_ref();
    port.map(|port| port.bridge_port.clone())
        .with_context(|| format!("{} is no node and has no management link", host.name))
}

pub(super) fn segment_port(host: &HostPlan, segment: &str) -> Result<String> {
    let port = host.ports.iter().find(|port| port.segment_name == segment);
    port.map(|port| port.bridge_port.clone()).with_context(|| {
        let on: Vec<_> = host.ports.iter().map(|port| port.segment_name.as_str()).collect();
        format!("{} is not on segment {segment}, only on: {}", host.name, on.join(", "))
    })
}

#[cfg(test)]
mod tests;
