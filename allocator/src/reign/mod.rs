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

mod act;
mod agenda;
mod see;
mod takeover;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use purelb_api::names;
use purelb_api::service::Classes;
use purelb_core::allocation::{Allocations, LiveSubnets};
use purelb_core::pools::Admission;
use purelb_core::{Mono, ObjectKey, Vip};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::clock;
use crate::config::Settings;
use crate::groups::Groups;
use crate::http::Health;
use crate::leader::{Predecessor, Term};
use crate::metrics::Metrics;
use crate::providers::{NetboxAccess, Providers};
use crate::writer::Writer;
use act::Done;
use agenda::{Agenda, Retries};
use see::Listing;

/// The loop turns at least this often, for the liveness probe.
const TURN: Duration = Duration::from_secs(5);
/// Statuses of groups are written so long after the first change…
const FLUSH_AFTER: Duration = Duration::from_millis(200);
/// …and not sooner after the last time.
const FLUSH_PAUSE: Duration = Duration::from_secs(1);
/// How long writes under way are waited for at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// What a reign works with.
#[derive(Clone)]
pub struct Means {
    pub client: Client,
    pub netbox: NetboxAccess,
    pub metrics: Metrics,
    pub health: Health,
}

/// How a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Asked to stop; every write was answered.
    Clean,
    /// Something may still be under way.
    Unclean,
}

pub struct Reign {
    settings: Settings,
    classes: Classes,
    client: Client,
    writer: Writer,
    metrics: Metrics,
    health: Health,
    identity: String,
    predecessor: Predecessor,
    book: Allocations,
    groups: Groups,
    providers: Providers,
    admission: Admission,
    live: LiveSubnets,
    /// When what is live has to be looked at again; a thousand nodes are not gone
    /// through at every turn.
    live_at: Option<Mono>,
    /// When providers are to be asked how full they are, and when they were.
    stats_at: Option<Instant>,
    stats_asked: Option<Instant>,
    namespaces: BTreeSet<String>,
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

impl Reign {
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
            admission: Admission::default(),
            live: LiveSubnets::new(settings.subnet_grace),
            live_at: None,
            stats_at: None,
            stats_asked: None,
            namespaces: BTreeSet::new(),
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
        let mut seen = see::watch(&self.client, &self.settings.namespace);
        let mut ready = false;
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
            if !self.listing.complete() {
                self.health.beat();
                continue;
            }
            if !ready {
                ready = true;
                if self.take_over().await.is_err() {
                    return Ending::Unclean;
                }
                self.health.set(true, true);
            }
            self.on_time();
            self.dispatch();
            self.health.beat();
        }
        self.drain().await
    }

    /// Applies the groups, then looks at everything.
    async fn take_over(&mut self) -> Result<(), crate::leader::Deposed> {
        self.apply_groups();
        self.look_at_live();
        if self.predecessor == Predecessor::Silent {
            self.fence_off().await?;
        }
        info!(
            services = self.objects.len(),
            groups = self.book.groups().len(),
            listed_after = ?self.started.elapsed(),
            "everything is listed; allocating"
        );
        self.touch_statuses();
        Ok(())
    }

    fn next_wake(&self) -> Instant {
        let mut wake = Instant::now() + TURN;
        if !self.listing.complete() {
            return wake;
        }
        let live = self.live_at.map(|at| Instant::now() + clock::now().until(at));
        let noted =
            [self.flush_at, self.stats_at, self.retries.next(), self.asks.next(), self.unseen.next(), live];
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
