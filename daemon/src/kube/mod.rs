//! The Kubernetes side: what the cluster says as engine inputs, and what the engine
//! wants written.
//!
//! ```text
//!              API server (one or several endpoints)
//!      lists, watches │      ▲ PATCH      ▲ PATCH   ▲ POST
//!                     ▼      │            │         │
//!   client "watch"  followers  │ client       │ client "write"
//!      Services, EndpointSlices "lease"   slots, events, conditions
//!      Groups, Agents │     writer        ▲         ▲
//!      Nodes, Leases  │      ▲ │          │         │
//!                     ▼      │ ▼ answers  │         │
//!                 inputs   [8 orders]  [1024]    [512]     (queues)
//!                     └──▶ engine's task ─┴─────────┘
//! ```
//! Nothing here makes the engine wait: a full queue refuses, is counted, and the engine
//! tries again by itself (Leases, slots) or does without (events). Inputs are waited
//! for: a slow engine slows the watches down, which loses nothing.

mod client;
mod counters;
mod last_good_config;
mod seen_objects;
mod tuning;
mod watch;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use purelb_api::service::Classes;
use purelb_core::facts::ConfigProblem;
use purelb_core::messages::{Event, Input, LeaseWrite, Source};
use purelb_core::{IfName, InstanceId, NodeName, ObjectKey, Vip};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

pub use client::api_access::{AccessError, ApiAccess, Credentials};
pub use client::token_renewal::CredentialExpiry;
pub use counters::{KubeCounter, KubeCounters};
pub use last_good_config::LastGoodConfig;
pub use tuning::KubeTuning;

use client::api_client::ApiClient;
use client::failure_log::FailureLog;
use client::token_renewal::TokenRenewal;
use seen_objects::SeenObjects;
use watch::object_watcher::WatchContext;
use watch::service_groups::GroupProblems;
use write::event_writer::{EventWriter, ToldWarnings};
use write::lease_writer::{LeaseOrder, LeaseWriter};
use write::slot_writer::{SlotAction, SlotChange, SlotWriter};

/// The engine has one write under way and gives it up before the next.
const LEASE_QUEUE: usize = 8;
/// More than the addresses one node holds: a drain of all of them fits.
const SLOT_QUEUE: usize = 1024;
const EVENT_QUEUE: usize = 512;

#[derive(Clone, Debug)]
pub struct KubeConfig {
    pub node: NodeName,
    pub instance: InstanceId,
    /// Where Leases, ServiceGroups and LBNodeAgents are.
    pub namespace: String,
    /// Which Services are ours.
    pub classes: Classes,
    /// `host:port` of our control API, if it listens on TCP: goes into the Lease.
    pub control_endpoint: Option<String>,
    pub access: ApiAccess,
    pub tuning: KubeTuning,
    /// What objects said when they were last right.
    pub last_good: LastGoodConfig,
}

/// The engine's hands on the cluster. Dropping it ends everything at once;
/// [`Self::finish`] lets what is queued go out first.
#[derive(Debug)]
pub struct KubeHandle {
    lease: mpsc::Sender<LeaseOrder>,
    slots: mpsc::Sender<SlotChange>,
    events: mpsc::Sender<Event>,
    relists: BTreeMap<Source, Arc<Notify>>,
    counters: Arc<KubeCounters>,
    problems: GroupProblems,
    _followers: JoinSet<()>,
    writers: JoinSet<()>,
}

/// Starts following and writing. Fails only if the configuration cannot be read; a
/// server that is away is waited for.
pub async fn start(config: KubeConfig, inputs: mpsc::Sender<Input>) -> Result<KubeHandle, AccessError> {
    let counters = Arc::<KubeCounters>::default();
    let access = Arc::new(config.access.clone());
    let open = async |name| ApiClient::open(name, access.clone(), counters.clone()).await.map(Arc::new);
    let (leases, watches, writes) = (open("lease").await?, open("watch").await?, open("write").await?);
    let seen_objects = Arc::<SeenObjects>::default();

    let mut writers = JoinSet::new();
    let (lease, orders) = mpsc::channel(LEASE_QUEUE);
    let writer = LeaseWriter {
        node: config.node.clone(),
        instance: config.instance.clone(),
        namespace: config.namespace.clone(),
        endpoint: config.control_endpoint.clone(),
        client: leases,
        inputs: inputs.clone(),
        tuning: config.tuning.clone(),
        memory: Default::default(),
        failures: FailureLog::default(),
    };
    writers.spawn(writer.run(orders));
    let (slots, changes) = mpsc::channel(SLOT_QUEUE);
    let slot_writer = SlotWriter {
        node: config.node.clone(),
        classes: config.classes.clone(),
        seen_objects: seen_objects.clone(),
        client: writes.clone(),
    };
    writers.spawn(slot_writer.run(changes));
    let (events, queue) = mpsc::channel(EVENT_QUEUE);
    let recorder = EventWriter {
        node: config.node.clone(),
        seen_objects: seen_objects.clone(),
        client: writes.clone(),
        told_warnings: ToldWarnings::default(),
        trouble_stands: config.tuning.trouble_stands,
    };
    writers.spawn(recorder.run(queue));

    let context = WatchContext { client: watches, inputs, tuning: config.tuning.clone() };
    let problems = GroupProblems::default();
    let renewal =
        TokenRenewal { node: config.node.clone(), client: writes.clone(), tuning: config.tuning.clone() };
    let (mut followers, relists) = watch::start_watches(&config, &context, &seen_objects, writes, &problems);
    followers.spawn(renewal.run());
    Ok(KubeHandle { lease, slots, events, relists, counters, problems, _followers: followers, writers })
}

impl KubeHandle {
    /// Answered with `Input::LeaseWritten`. Without room it is dropped, and the engine
    /// counts the silence as a failure.
    pub fn write_lease(&self, write: LeaseWrite) {
        if self.lease.try_send(LeaseOrder::Write(write)).is_err() {
            self.counters.lease_drops.add();
        }
    }

    /// Resolves when the task that writes the Lease has ended, whatever ended it. The
    /// node could only fence itself from then on. Drop it before [`Self::finish`].
    pub fn lease_writer_gone(&self) -> impl Future<Output = ()> + 'static {
        let orders = self.lease.clone();
        async move { orders.closed().await }
    }

    /// Answered with `Input::LeaseDeleted`.
    pub fn delete_lease(&self) {
        if self.lease.try_send(LeaseOrder::Delete).is_err() {
            self.counters.lease_drops.add();
        }
    }

    /// Without room it is dropped: the engine asks again while its slot is missing.
    pub fn write_slot(&self, service: ObjectKey, vip: Vip, interface: IfName) {
        self.change_slot(SlotChange { service, vip, action: SlotAction::Claim(interface) });
    }

    pub fn clear_slot(&self, service: ObjectKey, vip: Vip, node: NodeName) {
        self.change_slot(SlotChange { service, vip, action: SlotAction::Clear(node) });
    }

    fn change_slot(&self, change: SlotChange) {
        if self.slots.try_send(change).is_err() {
            self.counters.slot_drops.add();
        }
    }

    pub fn event(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.counters.event_drops.add();
        }
    }

    /// Lists the source again, on a fresh request; it comes as one replacement. The
    /// kernel is not ours to list.
    pub fn relist(&self, source: Source) {
        if let Some(relist) = self.relists.get(&source) {
            self.counters.relists_asked.add();
            relist.notify_one();
        }
    }

    pub fn counters(&self) -> Arc<KubeCounters> {
        self.counters.clone()
    }

    /// ServiceGroups that are wrong; those of LBNodeAgents the engine knows.
    pub fn group_problems(&self) -> Vec<ConfigProblem> {
        self.problems.all()
    }

    /// Takes no more, and waits until what is queued was tried, at most this long.
    pub async fn finish(self, within: Duration) {
        let Self { lease, slots, events, mut writers, .. } = self;
        drop((lease, slots, events));
        let all = async { while writers.join_next().await.is_some() {} };
        if tokio::time::timeout(within, all).await.is_err() {
            tracing::warn!("events or slots were still waiting to be written at the end");
        }
    }
}
