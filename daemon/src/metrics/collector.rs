//! Which metric says what.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use purelb_core::facts::PoolType;
use purelb_core::histogram::{SHARE_BOUNDS, TIME_BOUNDS};
use purelb_core::snapshot::{ConfigStatus, FenceView, Snapshot};

use super::{MetricSources, vips};
use crate::announce::{SIGHTING_KINDS, SegmentStats};
use crate::engine::effects::{EffectStats, LATENCY_BOUNDS};
use crate::engine::handle::EngineHandle;
use crate::host::clock;
use crate::metrics::encoder::MetricsEncoder;

/// Counted times are in microseconds, shares in thousandths.
const MICROS: f64 = 1e6;
const THOUSANDTHS: f64 = 1e3;

/// Reads everything anew for every scrape.
#[derive(Debug)]
pub struct MetricsCollector {
    pub handle: EngineHandle,
    pub sources: MetricSources,
}

impl Collector for MetricsCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let snapshot = self.handle.snapshot();
        let mut out = MetricsEncoder(encoder);
        let version = env!("CARGO_PKG_VERSION");
        let labels = [("program", "purelbd".to_owned()), ("version", version.to_owned())];
        out.gauges("build_info", "Which program this is", [(labels, 1)])?;
        election(&mut out, &snapshot)?;
        fence(&mut out, &snapshot)?;
        addresses(&mut out, &snapshot, &self.sources.adapters)?;
        times(&mut out, &snapshot)?;
        vips::encode(&mut out, &snapshot)?;
        node(&mut out, &snapshot)?;
        segments(&mut out, &snapshot, &self.sources.segments)?;
        adapters(&mut out, &snapshot, &self.sources)
    }
}

fn election(out: &mut MetricsEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let counters = &snapshot.counters;
    // By our own clock: the engine that would say otherwise may be the one that hangs.
    let healthy = usize::from(matches!(snapshot.fence, FenceView::Healthy { until } if clock::now() < until));
    let live = snapshot.members.iter().filter(|m| m.live).count();
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
    out.gauge("election_subnet_count", "Subnets that live nodes advertise", snapshot.candidates.len())?;
    out.gauge("election_local_subnet_count", "Subnets that this node advertises", snapshot.advertised.len())?;
    out.counter("election_winner_changes", "Winners of addresses that changed", counters.winner_changes)?;
    out.counter(
        "election_affinity_fallback",
        "Elections without a candidate that has an endpoint, though one was preferred",
        counters.affinity_fallbacks,
    )?;
    let candidates = snapshot.candidates.iter().map(|(net, count)| ([("subnet", net.to_string())], *count));
    out.gauges("election_candidates", "Nodes that may win an address of the subnet", candidates)
}

fn fence(out: &mut MetricsEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let left = match snapshot.fence {
        FenceView::Healthy { until } => clock::now().until(until),
        FenceView::Fenced { .. } => std::time::Duration::ZERO,
    };
    out.seconds(
        "fence_margin_seconds",
        "Until this node gives everything up, unless it renews its Lease; 0 once it has",
        left.as_secs_f64(),
    )?;
    let riding = "Addresses kept past the renew deadline, since nobody else claims them";
    out.gauge("riding", riding, snapshot.totals.riding)?;
    let counters = &snapshot.counters;
    out.counter("rides", "Addresses that began to ride", counters.rides)?;
    let claimed = "Riding addresses given up since somebody else claimed them";
    out.counter("rides_claimed", claimed, counters.rides_ended_by_claim)?;
    out.histogram(
        "fence_margin_ratio",
        "Share of the renew deadline that was left when a renewal succeeded",
        &snapshot.times.fence_margin,
        &SHARE_BOUNDS,
        THOUSANDTHS,
    )
}

fn times(out: &mut MetricsEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let times = &snapshot.times;
    out.histograms(
        "handoff_duration_seconds",
        "From deciding to give an address to another live node to the end of it",
        "outcome",
        [
            ("confirmed", &times.handoff_confirmed),
            ("timed_out", &times.handoff_timed_out),
            ("abandoned", &times.handoff_abandoned),
        ],
        &TIME_BOUNDS,
        MICROS,
    )?;
    out.histograms(
        "event_to_applied_seconds",
        "From learning that an address is this node's to having it",
        "step",
        [("kernel", &times.to_kernel), ("announced", &times.to_announced)],
        &TIME_BOUNDS,
        MICROS,
    )
}

fn addresses(out: &mut MetricsEncoder<'_>, snapshot: &Snapshot, stats: &EffectStats) -> fmt::Result {
    let counters = &snapshot.counters;
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
        snapshot.vips.iter().filter(|v| v.pool == PoolType::Local && v.on_interface.is_some()).count();
    out.gauge("address_renewals_active", "Addresses whose lifetime is being extended", renewed)?;
    latency(out, stats)
}

fn latency(out: &mut MetricsEncoder<'_>, stats: &EffectStats) -> fmt::Result {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let bounds = LATENCY_BOUNDS.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(stats.latency.iter().map(read)).collect();
    let count = buckets.iter().map(|(_, n)| n).sum();
    #[allow(clippy::cast_precision_loss, reason = "a sum of latencies is an approximation")]
    let sum = read(&stats.latency_micros) as f64 / 1e6;
    let help = "From asking the kernel for an address to its answer";
    let mut encoder =
        out.0.encode_descriptor("address_renewal_latency_seconds", help, None, MetricType::Histogram)?;
    encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

fn node(out: &mut MetricsEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let draining = usize::from(snapshot.draining.is_some());
    out.gauge("lbnodeagent_draining", "1 while this node is drained or being drained", draining)?;
    let synced = usize::from(snapshot.unsynced.is_empty());
    out.gauge("lbnodeagent_synced", "1 once everything was listed and may be acted on", synced)?;
    let now = match snapshot.config_status {
        ConfigStatus::NotSelected => "unselected",
        ConfigStatus::Configured | ConfigStatus::Defaults => "selected",
        ConfigStatus::Rejected(_) => "rejected",
    };
    let states = ["selected", "unselected", "rejected"];
    let series = states.map(|state| ([("state", state.to_owned())], usize::from(state == now)));
    out.gauges("lbnodeagent_selector_state", "Where this node stands with its LBNodeAgent", series)
}

fn segments(out: &mut MetricsEncoder<'_>, snapshot: &Snapshot, stats: &SegmentStats) -> fmt::Result {
    let asked = snapshot
        .segments
        .iter()
        .map(|(name, segment)| ([("interface", name.to_string())], usize::from(segment.trouble.is_none())));
    out.gauges(
        "segment_asked",
        "1 if the segment is asked who is there, 0 if the Leases alone decide",
        asked,
    )?;
    let counters = &snapshot.counters;
    out.counter(
        "early_takeovers",
        "Addresses of a silent owner taken before its Lease had run out",
        counters.early_takeovers,
    )?;
    out.counter(
        "early_withdrawals",
        "Those of them given back since the owner answered after all",
        counters.early_withdrawals,
    )?;
    out.counter("claims_defended", "Claims of other nodes answered by an announcement", counters.defences)?;
    out.counter("claims_yielded", "Claims of other nodes that this one gave way to", counters.yields)?;
    out.counter(
        "witness_missing",
        "Times an owner was silent, and nobody else answered: its Lease decides",
        counters.witness_missing,
    )?;
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let questions = [("echo", read(&stats.echo_questions)), ("resolve", read(&stats.resolve_questions))];
    out.counters("segment_questions", "Questions sent to a segment: who has an address?", "kind", questions)?;
    out.counter(
        "segment_question_errors",
        "Questions that could not be sent, or nobody knows when they were",
        read(&stats.question_errors),
    )?;
    let heard = std::array::from_fn::<_, { SIGHTING_KINDS.len() }, _>(|at| {
        (SIGHTING_KINDS[at].1, read(&stats.sightings[at]))
    });
    out.counters("segment_heard", "What hosts on our segments showed to have or to want", "kind", heard)?;
    out.counter("segment_frames_lost", "Frames that found no room in a socket", read(&stats.lost))?;
    out.counter("segment_reads", "Times what was said on the segments was read", read(&stats.reads))?;
    out.counter("segment_claim_reads", "Those of them that were for a claim's sake", read(&stats.claim_reads))
}

fn adapters(out: &mut MetricsEncoder<'_>, snapshot: &Snapshot, sources: &MetricSources) -> fmt::Result {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let stats = &sources.adapters;
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
        read(&sources.monitor.stats().dumps),
    )?;
    out.counter(
        "netlink_overruns",
        "Times the kernel had more to say than its buffer held",
        read(&sources.monitor.stats().overruns),
    )?;
    out.counter(
        "engine_queue_full",
        "Times kernel changes were gathered since the engine was busy",
        read(&sources.monitor.stats().queue_full),
    )?;
    out.counter(
        "applier_waits",
        "Times kernel changes had to wait for the applier",
        read(&stats.applier_waits),
    )?;
    for (name, value) in sources.kube.all() {
        out.counter(&format!("api_{name}"), "What the API server was asked and answered", value)?;
    }
    out.counters(
        "api_errors",
        "Requests to the API server that failed, by kind",
        "kind",
        sources.kube.errors(),
    )?;
    let kube = &sources.kube;
    if let Some((expires, lifetime)) = kube.credentials.get() {
        out.gauge(
            "credentials_expiry_timestamp_seconds",
            "When the credentials for the API server end, in seconds since 1970",
            usize::try_from(expires).unwrap_or_default(),
        )?;
        out.gauge(
            "credentials_lifetime_seconds",
            "How long these credentials last in all",
            usize::try_from(lifetime).unwrap_or_default(),
        )?;
    }
    let drops = [
        ("lease", kube.lease_drops.get()),
        ("slot", kube.slot_drops.get()),
        ("event", kube.event_drops.get()),
        ("kernel", read(&stats.applier_drops)),
        ("announcement", snapshot.counters.announcements_dropped),
    ];
    out.counters("queue_drops", "What a queue had no room for, and was let go", "queue", drops)
}
