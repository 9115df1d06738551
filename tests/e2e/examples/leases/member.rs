//! A member that is played: its Lease, its watch, and what was noted of both.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::AsyncBufReadExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use purelb_api::names;
use purelb_core::{Mono, NodeName};
use purelb_kit::lab::now;
use serde_json::{Value, json};

/// Of all members so many read what they are told, and not only count it.
const READERS: usize = 3;
/// A renewal that takes longer is given up, as the daemon does.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Member {
    name: NodeName,
    node_uid: String,
    nth: usize,
    /// Connections of their own, as a daemon's lanes have.
    writes: Api<Lease>,
    watches: Client,
}

impl Member {
    pub fn new(
        name: NodeName,
        node_uid: String,
        nth: usize,
        writes: Client,
        watches: Client,
    ) -> Result<Self> {
        let writes = Api::namespaced(writes, names::DEFAULT_NAMESPACE);
        Ok(Self { name, node_uid, nth, writes, watches })
    }

    /// Renews every `period`, from `first` on.
    pub async fn renew(self, period: Duration, first: Duration, seconds: u64, notes: Arc<Notes>) {
        let mut due = tokio::time::Instant::now() + first;
        let mut version = None;
        loop {
            tokio::time::sleep_until(due).await;
            due += period;
            let began = now();
            let written = tokio::time::timeout(PATIENCE, self.write(&mut version, seconds)).await;
            match written {
                Ok(Ok(())) => notes.renewed(&self.name, began),
                Ok(Err(error)) => {
                    version = None;
                    notes.failed_with(&error.to_string());
                }
                Err(_) => notes.failed_with("timeout"),
            }
        }
    }

    /// Creates it, or patches the version that it wrote last.
    async fn write(&self, version: &mut Option<String>, seconds: u64) -> Result<()> {
        let name = names::lease_name(&self.name);
        if version.is_none() {
            *version = self.writes.get_opt(&name).await?.and_then(|lease| lease.resource_version());
        }
        let mut body = self.lease(&name, seconds);
        let written = match version {
            Some(version) => {
                body["metadata"]["resourceVersion"] = json!(version);
                self.writes.patch(&name, &PatchParams::default(), &Patch::Merge(body)).await?
            }
            None => self.writes.create(&PostParams::default(), &serde_json::from_value(body)?).await?,
        };
        *version = written.resource_version();
        Ok(())
    }

    /// As a daemon's in a cluster with two subnets, with some addresses.
    fn lease(&self, name: &str, seconds: u64) -> Value {
        let announced: Vec<String> = (0..3).map(|n| format!("10.10.{n}.{}", self.nth % 250)).collect();
        let (of_name, of_component) = (names::LABEL_NAME, names::LABEL_COMPONENT);
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": names::DEFAULT_NAMESPACE,
                "labels": {of_name.0: of_name.1, of_component.0: of_component.1},
                "annotations": {
                    names::SUBNETS: "10.10.0.0/16,2001:db8:1::/64",
                    names::INSTANCE: self.node_uid,
                    names::RANK: "first",
                    names::ANNOUNCED: announced.join(","),
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.node_uid,
                    "controller": false, "blockOwnerDeletion": false,
                }],
            },
            "spec": {
                "holderIdentity": self.name,
                "leaseDurationSeconds": seconds,
                "renewTime": format!("{:.6}", Timestamp::now()),
            },
        })
    }

    /// Follows everybody's Leases; most only count what they are told.
    pub async fn watch(self, mut version: String, notes: Arc<Notes>) {
        loop {
            if let Err(error) = self.follow(&mut version, &notes).await {
                notes.failed_with(&format!("watch: {error:#}"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn follow(&self, version: &mut String, notes: &Notes) -> Result<()> {
        let selector = names::LEASE_SELECTOR.replace('=', "%3D").replace(',', "%2C").replace('/', "%2F");
        let path = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases?watch=true&allowWatchBookmarks=true\
             &timeoutSeconds=1800&labelSelector={selector}&resourceVersion={version}",
            names::DEFAULT_NAMESPACE
        );
        let request = http::Request::get(path).body(Vec::new())?;
        let mut lines = self.watches.request_stream(request).await?;
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).await? > 0 {
            notes.told();
            if self.nth < READERS {
                let event: Value = serde_json::from_slice(&line)?;
                let object = &event["object"];
                *version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                if let Some(renewed) = object["spec"]["renewTime"].as_str() {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    notes.seen(self.nth, name, renewed.parse().context("a renewal's time")?);
                }
            }
            line.clear();
        }
        Ok(())
    }
}

/// Where the Leases' history stands.
pub async fn newest(client: &Client) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let list = leases.list(&ListParams::default().limit(1)).await?;
    list.metadata.resource_version.context("a list has a version")
}

/// What all members noted together.
#[derive(Debug, Default)]
pub struct Notes {
    told: AtomicU64,
    closed: AtomicBool,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    renewals: Vec<Duration>,
    /// When each was renewed last, by when it was sent: so a fence counts.
    renewed: HashMap<NodeName, Mono>,
    between: Duration,
    lags: Vec<Duration>,
    /// When a reader saw a Lease change last.
    seen: HashMap<(usize, String), Mono>,
    unseen: Duration,
    failures: Vec<String>,
}

impl Notes {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    fn renewed(&self, name: &NodeName, began: Mono) {
        let mut book = self.book();
        let done = now();
        book.renewals.push(done.since(began));
        // From the sending of the last one to the answer to this one nobody knew better.
        if let Some(last) = book.renewed.insert(name.clone(), began) {
            book.between = book.between.max(done.since(last));
        }
    }

    fn seen(&self, reader: usize, name: &str, renewed: Timestamp) {
        let mut book = self.book();
        let lag = Timestamp::now().duration_since(renewed);
        book.lags.push(Duration::try_from(lag).unwrap_or_default());
        let at = now();
        if let Some(last) = book.seen.insert((reader, name.to_owned()), at) {
            book.unseen = book.unseen.max(at.since(last));
        }
    }

    fn failed_with(&self, why: &str) {
        if !self.closed.load(Ordering::Relaxed) {
            self.book().failures.push(why.to_owned());
        }
    }

    /// What was noted up to now was the beginning; when somebody was heard last counts on.
    pub fn forget(&self) {
        let mut book = self.book();
        (book.between, book.unseen) = (Duration::ZERO, Duration::ZERO);
        book.renewals.clear();
        book.lags.clear();
        book.failures.clear();
        self.told.store(0, Ordering::Relaxed);
    }

    /// What follows is the end of it; whoever waits still has waited that long. How much
    /// the members were told together.
    pub fn close(&self) -> u64 {
        self.closed.store(true, Ordering::Relaxed);
        let mut book = self.book();
        let at = now();
        let between = book.renewed.values().map(|last| at.since(*last)).max().unwrap_or_default();
        let unseen = book.seen.values().map(|last| at.since(*last)).max().unwrap_or_default();
        (book.between, book.unseen) = (book.between.max(between), book.unseen.max(unseen));
        self.told.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> usize {
        self.book().failures.len()
    }

    pub fn first_failure(&self) -> Option<String> {
        self.book().failures.first().cloned()
    }

    pub fn longest_between(&self) -> Duration {
        self.book().between
    }

    pub fn longest_unseen(&self) -> Duration {
        self.book().unseen
    }

    /// The middle, and the one that 99 of 100 are below.
    pub fn renewal_times(&self) -> (Duration, Duration) {
        let mut times = self.book().renewals.clone();
        (quantile(&mut times, 50), quantile(&mut times, 99))
    }

    /// From a renewal's sending until another member read of it; 99 of 100 are below.
    pub fn seen_late(&self) -> Duration {
        quantile(&mut self.book().lags.clone(), 99)
    }
}

fn quantile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}
