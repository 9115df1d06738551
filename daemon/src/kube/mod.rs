//! The Kubernetes side: what the cluster says as engine inputs, and what the engine
//! wants written.
//!
//! ```text
//!              API server (one or several endpoints)
//!      lists, watches │      ▲ PATCH      ▲ PATCH   ▲ POST
//!                     ▼      │            │         │
//!   lane "watch"  followers  │ lane       │ lane "write"
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

pub mod access;
mod backoff;
mod book;
mod conditions;
pub mod counters;
mod events;
mod failure;
mod follow;
mod kind;
mod kinds;
mod lane;
mod lease;
pub mod renewal;
mod services;
mod slots;
mod stream;
mod token;
mod trouble;
pub mod tuning;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use purelb_api::service::Classes;
use purelb_core::facts::ConfigProblem;
use purelb_core::io::{Event, Input, LeaseWrite, Source};
use purelb_core::{IfName, InstanceId, NodeName, ObjectKey, Vip};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

pub use access::{Access, AccessError, Credentials};
pub use counters::Counters;
pub use tuning::Tuning;

use crate::last_good::LastGood;
use book::Book;
use conditions::{ConditionWriter, Conditions};
use follow::{Follower, Ground};
use kind::Kind;
use kinds::Problems;
use lane::Lane;

/// The engine has one write under way and gives it up before the next.
const LEASE_ORDERS: usize = 8;
/// More than the addresses one node holds: a drain of all of them fits.
const SLOT_WISHES: usize = 1024;
const EVENTS: usize = 512;
/// After a panic, before the task starts anew.
const AFTER_PANIC: Duration = Duration::from_secs(1);

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
    pub access: Access,
    pub tuning: Tuning,
    /// What objects said when they were last right.
    pub last_good: LastGood,
}

/// The engine's hands on the cluster. Dropping it ends everything at once;
/// [`Self::finish`] lets what is queued go out first.
#[derive(Debug)]
pub struct KubeHandle {
    lease: mpsc::Sender<lease::Order>,
    slots: mpsc::Sender<slots::Wish>,
    events: mpsc::Sender<Event>,
    relists: BTreeMap<Source, Arc<Notify>>,
    counters: Arc<Counters>,
    problems: Problems,
    _followers: JoinSet<()>,
    writers: JoinSet<()>,
}

/// Starts following and writing. Fails only if the configuration cannot be read; a
/// server that is away is waited for.
pub async fn start(config: KubeConfig, inputs: mpsc::Sender<Input>) -> Result<KubeHandle, AccessError> {
    let counters = Arc::<Counters>::default();
    let access = Arc::new(config.access.clone());
    let open = async |name| Lane::open(name, access.clone(), counters.clone()).await.map(Arc::new);
    let (leases, watches, writes) = (open("lease").await?, open("watch").await?, open("write").await?);
    let book = Arc::<Book>::default();

    let mut writers = JoinSet::new();
    let (lease, orders) = mpsc::channel(LEASE_ORDERS);
    let writer = lease::Writer {
        node: config.node.clone(),
        instance: config.instance.clone(),
        namespace: config.namespace.clone(),
        endpoint: config.control_endpoint.clone(),
        lane: leases,
        inputs: inputs.clone(),
        tuning: config.tuning.clone(),
        memory: Default::default(),
        trouble: trouble::Trouble::default(),
    };
    writers.spawn(writer.run(orders));
    let (slots, wishes) = mpsc::channel(SLOT_WISHES);
    let slot_writer = slots::Slots {
        node: config.node.clone(),
        classes: config.classes.clone(),
        book: book.clone(),
        lane: writes.clone(),
    };
    writers.spawn(slot_writer.run(wishes));
    let (events, queue) = mpsc::channel(EVENTS);
    let recorder = events::Events {
        node: config.node.clone(),
        book: book.clone(),
        lane: writes.clone(),
        troubles: events::Troubles::default(),
        stands: config.tuning.trouble_stands,
    };
    writers.spawn(recorder.run(queue));

    let ground = Ground { lane: watches, inputs, tuning: config.tuning.clone() };
    let problems = Problems::default();
    let renewal =
        renewal::Renewal { node: config.node.clone(), lane: writes.clone(), tuning: config.tuning.clone() };
    let (mut followers, relists) = follow_all(&config, &ground, &book, writes, &problems);
    followers.spawn(renewal.run());
    Ok(KubeHandle { lease, slots, events, relists, counters, problems, _followers: followers, writers })
}

fn follow_all(
    config: &KubeConfig,
    ground: &Ground,
    book: &Arc<Book>,
    writes: Arc<Lane>,
    problems: &Problems,
) -> (JoinSet<()>, BTreeMap<Source, Arc<Notify>>) {
    let sources = Source::ALL.into_iter().filter(|s| *s != Source::Kernel);
    let relists: BTreeMap<Source, Arc<Notify>> = sources.map(|s| (s, Arc::default())).collect();
    let mut tasks = JoinSet::new();
    let namespace = config.namespace.clone();

    let (sightings, seen) = mpsc::channel(conditions::SIGHTINGS);
    tasks.spawn(ConditionWriter { lane: writes, delay: config.tuning.condition_delay }.run(seen));
    follow(&mut tasks, ground, &relists, || kinds::Nodes);
    let at = namespace.clone();
    follow(&mut tasks, ground, &relists, move || kinds::Leases { namespace: at.clone() });
    tasks.spawn(config.last_good.clone().write_changes());
    let (at, said, last_good) = (namespace.clone(), problems.clone(), config.last_good.clone());
    follow(&mut tasks, ground, &relists, move || kinds::Groups {
        namespace: at.clone(),
        last_good: last_good.clone(),
        problems: said.clone(),
    });
    let (seen_agents, last_good) = (book.clone(), config.last_good.clone());
    follow(&mut tasks, ground, &relists, move || kinds::Agents {
        namespace: namespace.clone(),
        book: seen_agents.clone(),
        conditions: Conditions(sightings.clone()),
        selectors: BTreeMap::new(),
        last_good: last_good.clone(),
        wrong: BTreeMap::new(),
        replayed: false,
    });

    let (needs, needed) = watch::channel(None);
    let (cover, covered) = watch::channel(None);
    let (book, classes, wait) = (book.clone(), config.classes.clone(), config.tuning.endpoints_wait);
    follow(&mut tasks, ground, &relists, move || services::Services {
        classes: classes.clone(),
        book: book.clone(),
        needing: BTreeSet::new(),
        needs: needs.clone(),
        covered: covered.clone(),
        wait,
    });
    let (slices_ground, relist) = (ground.clone(), relists[&Source::EndpointSlices].clone());
    let counters = ground.lane.clone();
    tasks.spawn(supervised(Source::EndpointSlices, counters, move || {
        services::follow_slices(slices_ground.clone(), relist.clone(), needed.clone(), cover.clone())
    }));
    (tasks, relists)
}

fn follow<K: Kind>(
    tasks: &mut JoinSet<()>,
    ground: &Ground,
    relists: &BTreeMap<Source, Arc<Notify>>,
    kind: impl Fn() -> K + Send + 'static,
) {
    let (ground, relist) = (ground.clone(), relists[&K::SOURCE].clone());
    let lane = ground.lane.clone();
    let task = move || Follower::new(kind(), ground.clone(), relist.clone()).run();
    tasks.spawn(supervised(K::SOURCE, lane, task));
}

/// Whatever an object does to the code that reads it, the others are still followed:
/// a task that panics starts anew with a complete listing.
async fn supervised<F>(source: Source, lane: Arc<Lane>, task: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut one = JoinSet::new();
        one.spawn(task());
        match one.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                lane.counters().task_panics.add();
                tracing::error!(%source, "the task that follows this panicked, starting it anew");
                tokio::time::sleep(AFTER_PANIC).await;
            }
            _ => return,
        }
    }
}

impl KubeHandle {
    /// Answered with `Input::LeaseWritten`. Without room it is dropped, and the engine
    /// counts the silence as a failure.
    pub fn write_lease(&self, write: LeaseWrite) {
        if self.lease.try_send(lease::Order::Write(write)).is_err() {
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
        if self.lease.try_send(lease::Order::Delete).is_err() {
            self.counters.lease_drops.add();
        }
    }

    /// Without room it is dropped: the engine asks again while its slot is missing.
    pub fn write_slot(&self, service: ObjectKey, vip: Vip, interface: IfName) {
        self.change_slot(slots::Wish { service, vip, change: slots::Change::Claim(interface) });
    }

    pub fn clear_slot(&self, service: ObjectKey, vip: Vip, node: NodeName) {
        self.change_slot(slots::Wish { service, vip, change: slots::Change::Clear(node) });
    }

    fn change_slot(&self, wish: slots::Wish) {
        if self.slots.try_send(wish).is_err() {
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

    pub fn counters(&self) -> Arc<Counters> {
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
