//! Which metric says what.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use purelb_core::facts::PoolType;
use purelb_core::reason::Reason;
use purelb_core::snapshot::{FenceView, Snapshot, Standing};

use super::Reading;
use crate::adapters::{AdapterStats, LATENCY_BOUNDS};
use crate::handle::Handle;

/// Reads everything anew for every scrape.
#[derive(Debug)]
pub struct Collected {
    pub handle: Handle,
    pub reading: Reading,
}

impl Collector for Collected {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let picture = self.handle.snapshot();
        let mut out = Out(encoder);
        election(&mut out, &picture)?;
        addresses(&mut out, &picture, &self.reading.adapters)?;
        services(&mut out, &picture)?;
        adapters(&mut out, &self.reading)
    }
}

/// One metric at a time.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: usize) -> fmt::Result {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    /// `_total` is appended.
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        ConstCounter::new(value).encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = ([(&'static str, String); N], usize)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn election(out: &mut Out<'_>, picture: &Snapshot) -> fmt::Result {
    let counters = &picture.counters;
    let healthy = usize::from(matches!(picture.fence, FenceView::Healthy { .. }));
    let live = picture.members.iter().filter(|m| m.live).count();
    let failures = counters.renewal_failures;
    for name in ["election_lease_healthy", "lease_healthy"] {
        out.gauge(name, "1 while this node's Lease is its own beyond doubt", healthy)?;
    }
    for name in ["election_member_count", "lease_live_nodes"] {
        out.gauge(name, "Nodes with a live Lease", live)?;
    }
    for name in ["election_lease_renewal_failures", "lease_renewal_failures"] {
        out.counter(name, "Renewals of this node's Lease that failed", failures)?;
    }
    out.counter(
        "election_lease_renewals",
        "Renewals of this node's Lease that succeeded",
        counters.renewals,
    )?;
    out.gauge("election_subnet_count", "Subnets that live nodes advertise", picture.candidates.len())?;
    out.gauge("election_local_subnet_count", "Subnets that this node advertises", picture.advertised.len())?;
    out.counter("election_winner_changes", "Winners of addresses that changed", counters.winner_changes)?;
    out.counter(
        "election_affinity_fallback",
        "Elections without a candidate that has an endpoint, though one was preferred",
        counters.affinity_fallbacks,
    )?;
    let candidates = picture.candidates.iter().map(|(net, count)| ([("subnet", net.to_string())], *count));
    out.gauges("election_candidates", "Nodes that may win an address of the subnet", candidates)
}

fn addresses(out: &mut Out<'_>, picture: &Snapshot, stats: &AdapterStats) -> fmt::Result {
    let counters = &picture.counters;
    out.counter("lbnodeagent_address_additions", "Addresses added", counters.additions)?;
    out.counter("lbnodeagent_address_withdrawals", "Addresses removed", counters.withdrawals)?;
    out.counter("lbnodeagent_address_renewals", "Lifetimes of addresses extended", counters.refreshes)?;
    out.counter("lbnodeagent_address_renewal_errors", "Changes the kernel refused", counters.apply_errors)?;
    out.counter("lbnodeagent_election_wins", "Addresses won", counters.wins)?;
    out.counter("lbnodeagent_election_losses", "Addresses lost to another node", counters.losses)?;
    out.counter(
        "lbnodeagent_announce_slot_steal",
        "Announcing slots of another node replaced by ours",
        counters.slot_steals,
    )?;
    out.counter(
        "address_watchdog_recoveries",
        "Addresses that vanished from the kernel and were put back",
        counters.recoveries,
    )?;
    out.counter(
        "handoffs_confirmed",
        "Addresses handed to a node that said it has them",
        counters.handoffs_confirmed,
    )?;
    out.counter("handoffs_timed_out", "Addresses let go without such a word", counters.handoffs_timed_out)?;
    let renewed =
        picture.vips.iter().filter(|v| v.pool == PoolType::Local && v.on_interface.is_some()).count();
    out.gauge("address_renewals_active", "Addresses whose lifetime is being extended", renewed)?;
    latency(out, stats)
}

fn latency(out: &mut Out<'_>, stats: &AdapterStats) -> fmt::Result {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let bounds = LATENCY_BOUNDS.into_iter().chain([f64::MAX]);
    let buckets: Vec<(f64, u64)> = bounds.zip(stats.latency.iter().map(read)).collect();
    let count = buckets.iter().map(|(_, n)| n).sum();
    #[allow(clippy::cast_precision_loss, reason = "a sum of latencies is an approximation")]
    let sum = read(&stats.latency_micros) as f64 / 1e6;
    let help = "From asking the kernel for an address to its answer";
    let mut encoder =
        out.0.encode_descriptor("address_renewal_latency_seconds", help, None, MetricType::Histogram)?;
    encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

fn services(out: &mut Out<'_>, picture: &Snapshot) -> fmt::Result {
    let announced = picture.vips.iter().filter(|v| matches!(v.reason, Reason::Announcing { .. }));
    let series = announced.flat_map(|view| {
        let ip = view.vip.to_string();
        view.services.iter().map(move |s| ([("service", s.to_string()), ("ip", ip.clone())], 1))
    });
    out.gauges("lbnodeagent_announced", "Addresses this node announces", series)?;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for view in &picture.vips {
        *reasons.entry(view.reason.name()).or_default() += 1;
    }
    let series = reasons.into_iter().map(|(reason, count)| ([("reason", reason.to_owned())], count));
    out.gauges("lbnodeagent_vips", "Addresses by why they are, or are not, on this node", series)?;
    let now = match picture.standing {
        Standing::NotSelected => "unselected",
        Standing::Configured => "selected",
        Standing::Rejected(_) => "rejected",
    };
    let states = ["selected", "unselected", "rejected"];
    let series = states.map(|state| ([("state", state.to_owned())], usize::from(state == now)));
    out.gauges("lbnodeagent_selector_state", "Where this node stands with its LBNodeAgent", series)
}

fn adapters(out: &mut Out<'_>, reading: &Reading) -> fmt::Result {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let stats = &reading.adapters;
    for name in ["lbnodeagent_garp_sent", "garp_sent"] {
        out.counter(name, "Gratuitous ARP announcements sent", read(&stats.garp_sent))?;
    }
    out.counter(
        "lbnodeagent_garp_errors",
        "Gratuitous ARP announcements not sent",
        read(&stats.garp_errors),
    )?;
    out.counter("lbnodeagent_na_sent", "Neighbour advertisements sent", read(&stats.na_sent))?;
    out.counter("lbnodeagent_na_errors", "Neighbour advertisements not sent", read(&stats.na_errors))?;
    out.counter(
        "netlink_dumps",
        "Complete dumps of the kernel's state",
        read(&reading.monitor.stats().dumps),
    )?;
    out.counter(
        "netlink_overruns",
        "Times the kernel had more to say than its buffer held",
        read(&reading.monitor.stats().overruns),
    )?;
    out.counter(
        "engine_queue_full",
        "Times kernel changes were gathered since the engine was busy",
        read(&reading.monitor.stats().queue_full),
    )?;
    out.counter(
        "applier_waits",
        "Times kernel changes had to wait for the applier",
        read(&stats.applier_waits),
    )?;
    for (name, value) in reading.kube.all() {
        out.counter(&format!("api_{name}"), "What the API server was asked and answered", value)?;
    }
    Ok(())
}
