//! One term as leader: watches in, decisions, writes out.
//!
//! ```text
//!  Services ─────┐                                       ┌─▶ Writer (at most N at a time) ─▶ API server
//!  ServiceGroups ┤ see   ┌─────────────┐ take_next,decide├─▶ Provider ─▶ NetBox, gRPC
//!  Leases ───────┼─────▶ │ Allocations │ ──────────────▶ └─▶ group statuses (merged)
//!  Namespaces ───┘       └─────────────┘                       │
//!                               ▲───── done: what is there now ┘
//! ```
//! One task owns all of it. Nothing is decided before every kind was listed
//! completely, with reads that began after the Lease was won. Nothing is queued but
//! names of Services (each once), writes in number below the limit, and one question to
//! a provider per Service, of which it is asked a few at a time; a watch that is faster
//! than we are waits in its socket.

mod dispatch;
mod fence_predecessor;
mod group_status;
mod results;
mod retry_queue;
mod sweep_providers;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use purelb_api::names;
use purelb_api::service::Classes;
use purelb_core::allocation::{Allocations, LiveSubnets};
use purelb_core::pools::GroupAdmission;
use purelb_core::{Mono, ObjectKey, Vip};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock;
use crate::http_server::Health;
use crate::kube::service_writer::Writer;
use crate::leader::{Predecessor, Term};
use crate::metrics::Metrics;
use crate::providers::{Installation, NetboxAccess, Providers};
use crate::service_groups::Groups;
use crate::settings::Settings;
use fence_predecessor::Fencing;
use results::Done;
use retry_queue::{Agenda, Retries};
pub use sweep_providers::Sweep;
use sweep_providers::Sweeps;
use watch::Listing;

/// The loop turns at least this often, for the liveness probe.
const TURN: Duration = Duration::from_secs(5);
/// Statuses of groups are written so long after the first change…
const FLUSH_AFTER: Duration = Duration::from_millis(200);
/// …and not sooner after the last time.
const FLUSH_PAUSE: Duration = Duration::from_secs(1);
/// A leader that has not listed everything after so many durations of the Lease makes
/// room for another replica, which may be able to.
const LISTED_WITHIN: u32 = 6;
/// How long writes under way are waited for at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// What the controller works with.
#[derive(Clone)]
pub struct Means {
    pub client: Client,
    pub netbox: NetboxAccess,
    pub metrics: Metrics,
    pub health: Health,
}

/// How far a term has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is decided on half a picture.
    Listing,
    /// Nothing is given while a former leader may still give.
    Fencing,
    Allocating,
}

/// How a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Asked to stop; every write was answered.
    Clean,
    /// Something may still be under way.
    Unclean,
    /// Not everything could be listed; nothing was written.
    Blind,
}

pub struct AllocationController {
    settings: Settings,
    classes: Classes,
    client: Client,
    writer: Writer,
    metrics: Metrics,
    health: Health,
    identity: String,
    predecessor: Predecessor,
    stage: Stage,
    fencing: Fencing,
    book: Allocations,
    groups: Groups,
    providers: Providers,
    admission: GroupAdmission,
    live: LiveSubnets,
    /// When what is live has to be looked at again; a thousand nodes are not gone
    /// through at every turn.
    live_at: Option<Mono>,
    /// When providers are to be asked how full they are, and when they were.
    stats_at: Option<Instant>,
    stats_asked: Option<Instant>,
    /// What providers have given, and nobody holds.
    sweeps: Sweeps,
    namespaces: BTreeSet<String>,
    /// What this cluster is told apart from others by.
    cluster_uid: Option<String>,
    objects: HashMap<ObjectKey, Arc<Service>>,
    listing: Listing,
    tasks: JoinSet<Done>,
    /// Services being written, of `tasks`.
    writing: usize,
    /// Writes that failed.
    retries: Retries,
    /// Providers that gave nothing. Apart from `retries`: telling the Service so is a
    /// write that succeeds, and must not end the asking.
    asks: Retries,
    /// When to see whether somebody announces what a Service was given.
    unseen: Agenda,
    unannounced: mpsc::Sender<Vip>,
    flush_at: Option<Instant>,
    flushed: Option<Instant>,
    groups_changed: bool,
    started: Instant,
    deposed: bool,
}

impl AllocationController {
    pub fn new(
        settings: &Settings,
        means: Means,
        term: &Term,
        identity: &str,
        unannounced: mpsc::Sender<Vip>,
    ) -> Result<Self, purelb_core::IdError> {
        let Means { client, netbox, metrics, health } = means;
        let (guard, predecessor) = (term.guard.clone(), term.predecessor);
        Ok(Self {
            classes: settings.classes(),
            writer: Writer::new(client.clone(), guard),
            book: Allocations::new(&settings.namespace, names::DEFAULT_GROUP)?,
            groups: Groups::new(&settings.namespace),
            providers: Providers::new(client.clone(), &settings.namespace, netbox, metrics.clone()),
            admission: GroupAdmission::default(),
            live: LiveSubnets::new(settings.subnet_grace),
            live_at: None,
            stats_at: None,
            stats_asked: None,
            sweeps: Sweeps::default(),
            namespaces: BTreeSet::new(),
            cluster_uid: None,
            objects: HashMap::new(),
            listing: Listing::default(),
            tasks: JoinSet::new(),
            writing: 0,
            retries: Retries::default(),
            asks: Retries::default(),
            unseen: Agenda::default(),
            unannounced,
            flush_at: None,
            flushed: None,
            groups_changed: false,
            started: Instant::now(),
            deposed: false,
            stage: Stage::Listing,
            fencing: Fencing::default(),
            identity: identity.to_owned(),
            settings: settings.clone(),
            client,
            metrics,
            health,
            predecessor,
        })
    }

    /// Allocates until told to stop or deposed.
    pub async fn run(mut self, stop: CancellationToken) -> Ending {
        self.health.set(true, false);
        let mut seen = watch::watch(&self.client, &self.settings.namespace);
        loop {
            let wake = self.next_wake();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(event) = seen.next() => {
                    self.see(event);
                    // What else is there already is taken in before deciding: a burst
                    // is then served in its order, and merged.
                    while let Some(Some(event)) = futures::FutureExt::now_or_never(seen.next()) {
                        self.see(event);
                    }
                }
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.done(done),
                    Err(failed) => std::panic::resume_unwind(failed.into_panic()),
                },
                () = sleep_until(wake) => {}
            }
            if self.deposed {
                return Ending::Unclean;
            }
            if self.listing.complete() {
                self.turn();
            } else if self.stage == Stage::Listing
                && self.started.elapsed() > self.settings.lease_duration * LISTED_WITHIN
            {
                warn!(missing = ?self.listing.missing().collect::<Vec<_>>(), "not everything could be listed; leaving it to another replica");
                return Ending::Blind;
            }
            self.health.beat();
        }
        self.drain().await
    }

    /// Everything is listed: groups first, then what a former leader may have left
    /// behind, then everybody.
    fn turn(&mut self) {
        if self.stage == Stage::Listing {
            let uid = self.cluster_uid.clone().unwrap_or_default();
            self.providers.identify(Installation::of(&uid, &self.settings.namespace));
            self.apply_groups();
            self.look_at_live();
            if self.predecessor == Predecessor::Silent {
                self.begin_fencing();
            }
            self.stage = Stage::Fencing;
        }
        let may_go_on = self.fence_on();
        if self.stage == Stage::Fencing && may_go_on {
            self.stage = Stage::Allocating;
            info!(
                services = self.objects.len(),
                groups = self.book.groups().len(),
                after = ?self.started.elapsed(),
                "everything is listed; allocating"
            );
            self.touch_statuses();
            self.sweeps.by(Instant::now());
            self.health.set(true, true);
        }
        if self.stage == Stage::Allocating {
            self.on_time();
            self.dispatch();
        }
    }

    fn next_wake(&self) -> Instant {
        let mut wake = Instant::now() + TURN;
        if !self.listing.complete() {
            return wake;
        }
        let live = self.live_at.map(|at| Instant::now() + clock::now().until(at));
        let noted = match self.stage {
            Stage::Listing | Stage::Fencing => vec![self.fencing.next()],
            Stage::Allocating => vec![
                self.flush_at,
                self.stats_at,
                self.retries.next(),
                self.asks.next(),
                self.unseen.next(),
                self.fencing.next(),
                self.sweeps.at,
                live,
            ],
        };
        for at in noted.into_iter().flatten() {
            wake = wake.min(at);
        }
        wake
    }

    fn look_at_live(&mut self) {
        let now = clock::now();
        self.book.set_live(self.live.at(now));
        self.live_at = self.live.next_change(now);
    }

    /// What has become due.
    fn on_time(&mut self) {
        if std::mem::take(&mut self.groups_changed) {
            self.apply_groups();
        }
        if self.live_at.is_some_and(|at| at <= clock::now()) {
            self.look_at_live();
        }
        for key in self.retries.due(Instant::now()) {
            self.book.look_again(&key);
        }
        for key in self.asks.due(Instant::now()) {
            self.book.ask_again(&key);
        }
        self.check_announced();
        if self.flush_at.is_some_and(|at| at <= Instant::now()) {
            self.flush();
        }
        if self.stats_at.is_some_and(|at| at <= Instant::now()) {
            self.ask_stats();
        }
        if self.sweeps.at.is_some_and(|at| at <= Instant::now()) {
            self.sweep();
        }
    }

    async fn drain(mut self) -> Ending {
        info!(under_way = self.tasks.len(), "stopping");
        let all = async { while self.tasks.join_next().await.is_some() {} };
        match timeout(DRAIN, all).await {
            Ok(()) => Ending::Clean,
            Err(_) => Ending::Unclean,
        }
    }
}
