//! Where the engine's effects go: the applier's thread, the packet sockets, the
//! Kubernetes side. Nothing in here waits.
//!
//! Kernel changes that find the applier's queue full are kept, in order, and offered
//! again every [`RETRY_INTERVAL`]. Should [`MOST_WAITING_CHANGES`] of them pile up, the newest are
//! answered as failed: the engine tries them again by itself, and says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use purelb_core::messages::{Effect, KernelChange, KernelRefusal, Source};
use purelb_core::{Family, Input, Mono, Vip};
use tracing::{debug, error};

use crate::announce::{AnnounceError, PacketSender, SegmentListener};
use crate::engine::driver::EffectSink;
use crate::host::clock;
use crate::kube::KubeHandle;
use crate::netlink::apply::ChangeBatch;
use crate::netlink::{ApplierHandle, MonitorHandle};

const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Some changes of every address a node can reasonably hold.
const MOST_WAITING_CHANGES: usize = 65_536;
/// Upper bounds in seconds of the time the kernel took for an address.
pub const LATENCY_BOUNDS: [f64; 8] = [0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// What the adapters did, for metrics.
#[derive(Debug, Default)]
pub struct EffectStats {
    pub garp_sent: AtomicU64,
    pub garp_errors: AtomicU64,
    pub na_sent: AtomicU64,
    pub na_errors: AtomicU64,
    /// Changes that found the applier's queue full.
    pub applier_waits: AtomicU64,
    /// Changes refused since [`MOST_WAITING_CHANGES`] of them waited already.
    pub applier_drops: AtomicU64,
    /// Put operations by [`LATENCY_BOUNDS`], and those beyond.
    pub latency: [AtomicU64; LATENCY_BOUNDS.len() + 1],
    pub latency_micros: AtomicU64,
}

impl EffectStats {
    fn count_announcement(&self, vip: Vip, sent: bool) {
        let count = match (vip.family(), sent) {
            (Family::V4, true) => &self.garp_sent,
            (Family::V4, false) => &self.garp_errors,
            (Family::V6, true) => &self.na_sent,
            (Family::V6, false) => &self.na_errors,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn record_latency(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket =
            LATENCY_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(LATENCY_BOUNDS.len());
        self.latency[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.latency_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub struct EffectDispatcher {
    applier: ApplierHandle,
    packets: PacketSender,
    segments: SegmentListener,
    monitor: MonitorHandle,
    kube: KubeHandle,
    backlog: ChangeBatch,
    /// When each address under way was handed over.
    under_way: BTreeMap<u64, Mono>,
    stats: Arc<EffectStats>,
    left_behind: Vec<String>,
}

impl EffectDispatcher {
    pub fn new(
        applier: ApplierHandle,
        packets: PacketSender,
        segments: SegmentListener,
        monitor: MonitorHandle,
        kube: KubeHandle,
        stats: Arc<EffectStats>,
    ) -> Self {
        let (backlog, under_way) = (Vec::new(), BTreeMap::new());
        Self { applier, packets, segments, monitor, kube, backlog, under_way, stats, left_behind: Vec::new() }
    }

    /// Addresses that the kernel would not let go of, at the end.
    pub fn left_behind(&self) -> &[String] {
        &self.left_behind
    }

    /// Lets what was begun come to its end.
    pub async fn finish(self, within: Duration) {
        let Self { applier, kube, .. } = self;
        let kernel = tokio::task::spawn_blocking(move || applier.finish());
        let both = async { tokio::join!(kernel, kube.finish(within)) };
        if tokio::time::timeout(within, both).await.is_err() {
            debug!("not everything begun was done at the end");
        }
    }

    fn submit_waiting(&mut self) {
        let batch = std::mem::take(&mut self.backlog);
        if let Err(batch) = self.applier.submit(batch) {
            self.stats.applier_waits.fetch_add(1, Ordering::Relaxed);
            self.backlog = batch;
        }
    }

    fn queue_change(&mut self, id: u64, op: KernelChange, answers: &mut Vec<Input>) {
        if self.backlog.len() >= MOST_WAITING_CHANGES {
            self.stats.applier_drops.fetch_add(1, Ordering::Relaxed);
            let result = Err(KernelRefusal::Passing("too many changes wait for the kernel".to_owned()));
            answers.push(Input::Applied { id, result });
            return;
        }
        if matches!(op, KernelChange::Put(_)) {
            self.under_way.insert(id, clock::now());
        }
        self.backlog.push((id, op));
    }
}

impl EffectSink for EffectDispatcher {
    fn carry_out(&mut self, effects: Vec<Effect>, answers: &mut Vec<Input>) {
        for effect in effects {
            match effect {
                Effect::Apply { id, op } => self.queue_change(id, op, answers),
                Effect::Announce { id, vip, index, interface, until } => {
                    let late = clock::now() > until;
                    let sent =
                        if late { Err(AnnounceError::TooLate) } else { self.packets.announce(vip, index) };
                    self.stats.count_announcement(vip, sent.is_ok());
                    if let Err(error) = &sent {
                        debug!(%vip, %interface, %error, "announcement not sent");
                    }
                    answers.push(Input::Announced { id, result: sent.map_err(|error| error.to_string()) });
                }
                Effect::WriteLease(write) => self.kube.write_lease(write),
                Effect::DeleteLease => self.kube.delete_lease(),
                Effect::WriteSlot { service, vip, interface } => {
                    self.kube.write_slot(service, vip, interface);
                }
                Effect::ClearSlot { service, vip, node } => self.kube.clear_slot(service, vip, node),
                Effect::Event(event) => self.kube.event(event),
                Effect::Relist(Source::Kernel) => self.monitor.resync(),
                Effect::Relist(source) => self.kube.relist(source),
                Effect::LeftBehind(nets) => {
                    let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
                    error!(addresses = nets.join(" "), "the kernel did not let go of these addresses");
                    self.left_behind = nets;
                }
                Effect::Listen(interfaces) => self.segments.listen(interfaces, answers),
                Effect::Ask(question) => answers.push(self.segments.ask(&self.packets, &question)),
                // The driver's to act on.
                Effect::Exit => {}
            }
        }
        self.submit_waiting();
    }

    fn observe_input(&mut self, input: &Input) {
        if let Input::Applied { id, .. } = input
            && let Some(since) = self.under_way.remove(id)
        {
            self.stats.record_latency(clock::now().since(since));
        }
    }

    fn hear_segments(&mut self, answers: &mut Vec<Input>) {
        self.segments.read(answers);
    }

    fn poll_claim(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.segments.poll_claim(cx)
    }

    fn retry_waiting(&mut self) -> Option<Mono> {
        if !self.backlog.is_empty() {
            self.submit_waiting();
        }
        let retry = (!self.backlog.is_empty()).then(|| clock::now() + RETRY_INTERVAL);
        [retry, self.segments.next_read()].into_iter().flatten().min()
    }
}
