//! Who of the replicas may write: a Lease, and a guard that every write asks.
//!
//! ```text
//!   leader    renewal sent ──(seen by the API server)── answered     renewed = when it was SENT
//!   guard     ├──────────────── may write ────────────────┤ renew deadline
//!   follower            last change SEEN ├───────────── waits ─────────────────┤ lease duration
//! ```
//! Both count on their own monotonic clocks, which run on through suspend; the times
//! written in the Lease are compared by nobody. So a paused leader has stopped to
//! write before another may start. What it had already sent when it was paused is the
//! business of `fence`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use purelb_core::Mono;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::clock;
use crate::settings::Settings;

/// One look at the Lease, and taking it, is waited for no longer.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// After a look that failed: the moment the API server is back should not pass unseen.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The Lease's name; the shipped rights name it, too.
pub const LEASE: &str = "purelb-allocator";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this replica is not the leader any more; nothing was written")]
pub struct Deposed;

/// Asked before every write.
#[derive(Clone, Debug)]
pub struct Guard {
    renewed: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    deadline: Duration,
}

impl Guard {
    fn new(renewed: Mono, deadline: Duration) -> Self {
        let renewed = Arc::new(AtomicU64::new(renewed.as_nanos()));
        Self { renewed, over: Arc::default(), deadline }
    }

    pub fn check(&self) -> Result<(), Deposed> {
        if self.over.load(Ordering::Relaxed) || self.left().is_zero() { Err(Deposed) } else { Ok(()) }
    }

    /// How much longer this replica may write unless it renews.
    pub fn left(&self) -> Duration {
        let renewed = Mono::from_nanos(self.renewed.load(Ordering::Relaxed));
        clock::now().until(renewed + self.deadline)
    }

    fn renewed(&self, at: Mono) {
        self.renewed.store(at.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// How the term before ours ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// There was none, or it stopped writing and said so.
    Done,
    /// It fell silent: something it sent may still arrive.
    Silent,
}

/// A won election.
#[derive(Debug)]
pub struct Term {
    pub guard: Guard,
    pub predecessor: Predecessor,
    version: String,
}

/// One replica.
#[derive(Debug)]
pub struct Candidate {
    api: Api<Lease>,
    identity: String,
    duration: Duration,
    deadline: Duration,
    retry: Duration,
}

impl Candidate {
    pub fn new(client: Client, settings: &Settings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            identity: format!("{}_{}", settings.identity, uuid::Uuid::new_v4()),
            duration: settings.lease_duration,
            deadline: settings.renew_deadline,
            retry: settings.retry_period,
        }
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Waits until this replica leads. `looked` is told of every look at the Lease, and
    /// whether it was answered.
    pub async fn win(&self, looked: impl Fn(bool)) -> Term {
        let mut seen: Option<(String, Mono)> = None;
        loop {
            let attempt = timeout(LOOK_WITHIN, self.attempt(&mut seen)).await;
            let wait = match attempt {
                Ok(Ok(Attempt::Won(term))) => {
                    info!(identity = self.identity, predecessor = ?term.predecessor, "leading");
                    return term;
                }
                Ok(Ok(Attempt::Wait(wait))) => {
                    looked(true);
                    wait.min(self.retry)
                }
                Ok(Err(error)) => {
                    warn!(%error, "cannot read or write the leader's Lease {LEASE}");
                    looked(false);
                    self.retry.min(LOOK_AGAIN)
                }
                Err(_) => {
                    warn!("the leader's Lease {LEASE} was not answered within {LOOK_WITHIN:?}");
                    looked(false);
                    self.retry.min(LOOK_AGAIN)
                }
            };
            sleep(wait).await;
        }
    }

    async fn attempt(&self, seen: &mut Option<(String, Mono)>) -> Result<Attempt, kube::Error> {
        let Some(lease) = self.api.get_opt(LEASE).await? else {
            let sent = clock::now();
            let mut body = self.body(0, true);
            body["metadata"] = json!({"name": LEASE, "labels": {"app.kubernetes.io/name": "purelb",
                "app.kubernetes.io/component": "allocator"}});
            let lease: Lease = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
            return match self.api.create(&PostParams::default(), &lease).await {
                Ok(made) => Ok(self.won(&made, sent, Predecessor::Done)),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Wait(Duration::ZERO)),
                Err(error) => Err(error),
            };
        };
        let now = clock::now();
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let version = lease.resource_version().unwrap_or_default();
        let since = match seen {
            Some((known, since)) if *known == version => *since,
            _ => {
                *seen = Some((version, now));
                now
            }
        };
        let predecessor = if holder.is_empty() { Predecessor::Done } else { Predecessor::Silent };
        // Ours: an answer that was lost, or a former term of this process. Either way
        // something that was sent may still arrive, so: silent.
        if !holder.is_empty() && holder != self.identity {
            let lasts = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or(0);
            let left = now.until(since + self.duration.max(Duration::from_secs(lasts)));
            if !left.is_zero() {
                return Ok(Attempt::Wait(left));
            }
        }
        let mut patch = self.body(spec.lease_transitions.unwrap_or_default().saturating_add(1), true);
        patch["metadata"] = json!({"resourceVersion": lease.resource_version()});
        match self.api.patch(LEASE, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(taken) => Ok(self.won(&taken, now, predecessor)),
            // Somebody was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Wait(self.retry)),
            Err(error) => Err(error),
        }
    }

    fn won(&self, lease: &Lease, sent: Mono, predecessor: Predecessor) -> Attempt {
        let guard = Guard::new(sent, self.deadline);
        Attempt::Won(Term { guard, predecessor, version: lease.resource_version().unwrap_or_default() })
    }

    fn body(&self, transitions: i32, acquired: bool) -> Value {
        let now = MicroTime(Timestamp::now());
        let mut body = json!({"spec": {
            "holderIdentity": self.identity,
            // Others read whole seconds; rounded up, never down.
            "leaseDurationSeconds": self.duration.as_millis().div_ceil(1000),
            "renewTime": now,
        }});
        if acquired {
            body["spec"]["acquireTime"] = json!(now);
            body["spec"]["leaseTransitions"] = json!(transitions);
        }
        body
    }

    /// Renews until the term is lost; returns then.
    pub async fn keep(&self, term: &mut Term) {
        let mut wait = self.duration / 3;
        loop {
            let left = term.guard.left();
            if left.is_zero() {
                break;
            }
            sleep(wait.min(left)).await;
            let sent = clock::now();
            let within = term.guard.left();
            match timeout(within, self.renew(&term.version)).await {
                Ok(Ok(version)) => {
                    term.version = version;
                    term.guard.renewed(sent);
                    wait = self.duration / 3;
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    // Either somebody took it, or an answer of ours was lost.
                    match timeout(term.guard.left(), self.api.get_opt(LEASE)).await {
                        Ok(Ok(Some(lease))) if self.holds(&lease) => {
                            term.version = lease.resource_version().unwrap_or_default();
                            wait = Duration::ZERO;
                        }
                        Ok(Ok(_)) => {
                            warn!("the leader's Lease {LEASE} was taken by another replica");
                            break;
                        }
                        Ok(Err(_)) | Err(_) => wait = self.retry,
                    }
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                    warn!("the leader's Lease {LEASE} was deleted");
                    break;
                }
                Ok(Err(error)) => {
                    warn!(%error, left = ?term.guard.left(), "cannot renew the leader's Lease {LEASE}");
                    wait = self.retry;
                }
                Err(_) => warn!("the renewal of the leader's Lease {LEASE} was not answered in time"),
            }
        }
        term.guard.end();
    }

    fn holds(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()) == Some(&self.identity)
    }

    async fn renew(&self, version: &str) -> Result<String, kube::Error> {
        let mut patch = self.body(0, false);
        patch["metadata"] = json!({"resourceVersion": version});
        let lease = self.api.patch(LEASE, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(lease.resource_version().unwrap_or_default())
    }

    /// Gives the Lease up, so that another replica need not wait. Only after the last
    /// write has been answered: it says that nothing more will come.
    pub async fn resign(&self, term: &Term) {
        term.guard.end();
        let patch = json!({
            "metadata": {"resourceVersion": term.version},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": MicroTime(Timestamp::now())},
        });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        match timeout(self.retry, self.api.patch(LEASE, &params, &patch)).await {
            Ok(Ok(_)) => info!("gave the leader's Lease {LEASE} up"),
            Ok(Err(error)) => warn!(%error, "could not give the leader's Lease {LEASE} up; it will run out"),
            Err(_) => warn!("could not give the leader's Lease {LEASE} up in time; it will run out"),
        }
    }
}

enum Attempt {
    Won(Term),
    Wait(Duration),
}
