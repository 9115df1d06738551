//! Address books of others: NetBox, and providers of the operator's own over gRPC.
//!
//! One trait for both. Ranges kept in the cluster need no IO and are decided in
//! `purelb_core::pools`; what is asked for here is the same `ProviderQuestion`.

mod external;
mod netbox;
mod rest_client;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use kube::Client;
use purelb_api::service_group::{GroupConfig, Source};
use purelb_core::allocation::{ProviderListing, ProviderQuestion};
use purelb_core::pools::GroupName;
use purelb_core::{Mono, ObjectKey, Vip};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock;
use crate::leader::Guard;
use crate::metrics::Metrics;
use external::External;
use netbox::{Netbox, Token};

/// A provider that failed is left alone for this long; whoever asks in between gets
/// the same answer, so that a thousand Services do not each wait for its timeout.
const REST: Duration = Duration::from_secs(2);

/// Which purelb of which cluster an address was given to, in the books of others: so that
/// nobody gives back what is somebody else's. The same as long as the cluster lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation(String);

impl Installation {
    /// The uid of namespace kube-system is what a cluster is told apart by; of two
    /// installations in it each has its own namespace.
    pub fn of(cluster_uid: &str, namespace: &str) -> Self {
        let sum = Sha256::digest(format!("{cluster_uid}/{namespace}"));
        Self(sum.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl std::fmt::Display for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a provider gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProviderError {
    /// It has nothing left of what was asked for.
    #[error("{0}")]
    Full(String),
    /// It understood and said no.
    #[error("{0}")]
    Refused(String),
    /// It could not be asked.
    #[error("{0}")]
    Unreachable(String),
}

/// How full a provider's pool is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderStats {
    /// IPv4 and IPv6 addresses left; None: unknown.
    pub available: Option<(u64, u64)>,
    /// Ranges, as text for people.
    pub addresses: Vec<String>,
}

#[async_trait]
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// The addresses asked for; the same question has the same answer.
    async fn allocate(&self, question: &ProviderQuestion) -> Result<Vec<Vip>, ProviderError>;
    /// Takes an address back, or with None all the Service has. What is not held is
    /// no error.
    async fn release(&self, pool: &str, service: &ObjectKey, ip: Option<Vip>) -> Result<(), ProviderError>;
    async fn stats(&self, pool: &str) -> Result<ProviderStats, ProviderError>;
    /// What it has given to this installation; None: it cannot say.
    async fn list(&self, pool: &str) -> Result<Option<Vec<ProviderListing>>, ProviderError>;
}

/// How many may be asked something at the same time.
type Turn = Arc<Semaphore>;

/// An address book that cannot look and take in one step has one asker at a time.
const ONE: usize = 1;
/// A burst of a thousand Services is not a thousand questions at once.
const SOME: usize = 16;

/// A provider as the leader uses it: only so many questions at a time, a rest after
/// failures, and nothing asked for by a leader that no longer is one.
#[derive(Debug)]
pub struct Rested {
    inner: Box<dyn Provider>,
    turn: Turn,
    failed: Mutex<Option<(Mono, ProviderError)>>,
}

impl Rested {
    fn new(inner: Box<dyn Provider>, turn: Turn) -> Self {
        Self { inner, turn, failed: Mutex::new(None) }
    }

    /// Waits for its turn. What was true before the wait is looked at after it.
    async fn enter(&self, guard: &Guard) -> Result<SemaphorePermit<'_>, ProviderError> {
        let turn = self.turn.acquire().await.expect("nobody closes it");
        guard.check().map_err(|deposed| ProviderError::Refused(deposed.to_string()))?;
        self.resting()?;
        Ok(turn)
    }

    fn resting(&self) -> Result<(), ProviderError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            Some((at, error)) if clock::now().since(*at) < REST => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn note<T>(&self, answer: Result<T, ProviderError>) -> Result<T, ProviderError> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed = match &answer {
            Err(error @ ProviderError::Unreachable(_)) => Some((clock::now(), error.clone())),
            _ => None,
        };
        answer
    }

    pub async fn allocate(
        &self,
        guard: &Guard,
        question: &ProviderQuestion,
    ) -> Result<Vec<Vip>, ProviderError> {
        let _turn = self.enter(guard).await?;
        self.note(self.inner.allocate(question).await)
    }

    pub async fn release(
        &self,
        guard: &Guard,
        pool: &str,
        service: &ObjectKey,
        ip: Option<Vip>,
    ) -> Result<(), ProviderError> {
        let _turn = self.enter(guard).await?;
        self.note(self.inner.release(pool, service, ip).await)
    }

    pub async fn stats(&self, pool: &str) -> Result<ProviderStats, ProviderError> {
        self.resting()?;
        self.note(self.inner.stats(pool).await)
    }

    pub async fn list(
        &self,
        guard: &Guard,
        pool: &str,
    ) -> Result<Option<Vec<ProviderListing>>, ProviderError> {
        let _turn = self.enter(guard).await?;
        self.note(self.inner.list(pool).await)
    }
}

/// What all NetBoxes are reached with.
#[derive(Clone, Default)]
pub struct NetboxAccess {
    /// For groups that name no Secret.
    pub token: Option<String>,
    /// Certificates trusted beside the system's.
    pub trust: Vec<CertificateDer<'static>>,
    tls: Arc<OnceLock<ClientConfig>>,
}

impl NetboxAccess {
    pub fn new(token: Option<String>, trust: Vec<CertificateDer<'static>>) -> Self {
        Self { token, trust, tls: Arc::default() }
    }

    /// Read once in the life of the process: the system's certificates are many, and the
    /// loop that renews the Lease waits meanwhile.
    fn tls(&self) -> ClientConfig {
        self.tls.get_or_init(|| rest_client::trusting(&self.trust)).clone()
    }
}

impl std::fmt::Debug for NetboxAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetboxAccess").field("trust", &self.trust.len()).finish_non_exhaustive()
    }
}

/// The providers of the groups there are.
pub struct Providers {
    client: Client,
    namespace: String,
    netbox: NetboxAccess,
    metrics: Metrics,
    installation: Installation,
    made: BTreeMap<GroupName, (Source, Arc<Rested>)>,
    /// By address of the NetBox: several groups may use the same one.
    turns: BTreeMap<String, Turn>,
}

impl std::fmt::Debug for Providers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Providers").field("made", &self.made).finish_non_exhaustive()
    }
}

impl Providers {
    pub fn new(client: Client, namespace: &str, netbox: NetboxAccess, metrics: Metrics) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            netbox,
            metrics,
            installation: Installation::default(),
            made: BTreeMap::new(),
            turns: BTreeMap::new(),
        }
    }

    /// Who asks. To be said before anything is asked.
    pub fn identify(&mut self, installation: Installation) {
        self.installation = installation;
        self.made.clear();
    }

    /// The provider of a group; made anew when the group names another.
    pub fn of(&mut self, name: &GroupName, config: &GroupConfig) -> Option<Arc<Rested>> {
        if let Some((source, provider)) = self.made.get(name)
            && *source == config.source
        {
            return Some(provider.clone());
        }
        let provider = self.make(config)?;
        self.made.insert(name.clone(), (config.source.clone(), provider.clone()));
        Some(provider)
    }

    /// The provider of a group that is no more, for what has to go back to it.
    pub fn of_former(&mut self, config: &GroupConfig) -> Option<Arc<Rested>> {
        self.make(config)
    }

    fn make(&mut self, config: &GroupConfig) -> Option<Arc<Rested>> {
        let (inner, turn): (Box<dyn Provider>, _) = match &config.source {
            Source::Ranges(_) => return None,
            Source::External(external) => (
                Box::new(External::new(&external.socket, self.installation.clone(), self.metrics.clone())),
                Arc::new(Semaphore::new(SOME)),
            ),
            Source::Netbox(netbox) => {
                let token = match &netbox.token {
                    None => Token::Given(self.netbox.token.clone()),
                    Some((name, key)) => Token::Secret {
                        client: self.client.clone(),
                        namespace: self.namespace.clone(),
                        name: name.clone(),
                        key: key.clone(),
                    },
                };
                let turn = self.turns.entry(netbox.url.clone());
                let turn = turn.or_insert_with(|| Arc::new(Semaphore::new(ONE))).clone();
                let installation = self.installation.clone();
                let made = Netbox::new(&netbox.url, &netbox.tenant, installation, token, self.netbox.tls());
                (Box::new(made), turn)
            }
        };
        Some(Arc::new(Rested::new(inner, turn)))
    }

    /// Groups that are gone take their providers along.
    pub fn retain(&mut self, present: &BTreeSet<GroupName>) {
        self.made.retain(|name, _| present.contains(name));
        self.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let sockets = self.made.values().filter_map(|(source, _)| match source {
            Source::External(external) => Some(external.socket.clone()),
            Source::Ranges(_) | Source::Netbox(_) => None,
        });
        self.metrics.retain_sockets(&sockets.collect());
    }
}
