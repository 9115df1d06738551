//! Each address as seen from here: should it be here, does the kernel have it, was it
//! announced. What alerts on addresses with two owners or none ask.
//!
//! Every node knows every address, and a series for each on each node would be millions
//! in a large cluster. So an address is spoken of by its winner and by whoever holds it;
//! one that nobody won by one node for all of them.

use std::collections::BTreeMap;
use std::fmt;

use purelb_core::facts::PoolType;
use purelb_core::reason::Reason;
use purelb_core::snapshot::{Snapshot, VipView};

use crate::metrics::encoder::{MetricLabels, MetricsEncoder};

pub fn encode(out: &mut MetricsEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let announced = snapshot.vips.iter().filter(|v| v.reason.announces());
    let series = announced.flat_map(|view| {
        let ip = view.vip.to_string();
        view.services.iter().map(move |s| ([("service", s.to_string()), ("ip", ip.clone())], 1))
    });
    out.gauges("lbnodeagent_announced", "Addresses this node announces", series)?;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for view in &snapshot.vips {
        *reasons.entry(view.reason.name()).or_default() += 1;
    }
    let series = reasons.into_iter().map(|(reason, count)| ([("reason", reason.to_owned())], count));
    out.gauges("lbnodeagent_vips", "Addresses by why they are, or are not, on this node", series)?;
    let held = snapshot.vips.iter().filter(|v| v.on_interface.is_some()).count();
    out.gauge("lbnodeagent_held", "Addresses the kernel has here with our mark", held)?;

    let speaks = speaks_for_all(snapshot);
    let ours: Vec<&VipView> = snapshot.vips.iter().filter(|v| concerns(snapshot, v, speaks)).collect();
    let in_kernel = ours.iter().map(|v| (labels(v), usize::from(v.on_interface.is_some())));
    out.gauges("vip_in_kernel", "1 if the kernel has an address that should be here", in_kernel)?;
    let told = ours.iter().map(|v| (labels(v), usize::from(v.on_interface.is_some() && v.announced)));
    out.gauges("vip_announced", "1 if the first announcement of such an address has gone out", told)
}

fn labels(view: &VipView) -> MetricLabels<2> {
    let pool = match view.pool {
        PoolType::Local => "local",
        PoolType::Remote => "remote",
    };
    [("ip", view.vip.to_string()), ("pool", pool.to_owned())]
}

/// Whether this node has something to say about the address.
fn concerns(snapshot: &Snapshot, view: &VipView, speaks: bool) -> bool {
    if !snapshot.unsynced.is_empty() {
        return false;
    }
    if view.on_interface.is_some() {
        return true;
    }
    match (view.pool, &view.winner, &view.reason) {
        (PoolType::Local, Some(winner), _) => *winner == snapshot.node,
        // Nobody to send traffic to is the Service's own state, not a fault of ours.
        (PoolType::Local, None, Reason::NoEndpoints) => false,
        (PoolType::Local, None, _) => speaks,
        (PoolType::Remote, _, reason) => reason.profile().counts,
    }
}

/// The first by name of those that could have an address at all. Should they not agree
/// on who that is, several speak, and say the same.
fn speaks_for_all(snapshot: &Snapshot) -> bool {
    let able = snapshot.members.iter().filter(|m| m.live && !m.subnets.is_empty() && !m.out_of_service);
    able.map(|m| &m.node).min().is_none_or(|first| *first == snapshot.node)
}
