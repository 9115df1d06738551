//! An in-process server that speaks the Kubernetes REST protocol for the kinds we use.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use purelb_kit::embedded::EmbeddedApi;
//! let api = EmbeddedApi::start().await?;
//! let client = api.client("a-test")?;                       // kube::Client
//! let file = api.kubeconfig("daemon-1", std::path::Path::new("/tmp"))?; // for a process of its own
//! # Ok(()) }
//! ```
//!
//! It keeps everything in memory and ends with the value. It is there for speed: the
//! conformance test runs the same checks over it and over the real kube-apiserver, so
//! what the checks name behaves alike. By design it differs in this:
//!
//! - no authentication, no RBAC, no admission, no TLS, no protobuf; a bearer token only
//!   names the client in [`EmbeddedApi::requests`];
//! - no CRD schemas: custom resources are kept as sent, without defaults, pruning or CEL;
//!   built-in kinds are checked for shape, not for meaning (a Lease of negative duration
//!   is taken);
//! - no controllers: nothing collects by ownerReference, a deleted Namespace takes its
//!   content with it at once, nobody writes EndpointSlices, Nodes or Events;
//! - Services get cluster addresses, counted up and never reused, but no node ports;
//! - objects and annotations have no size limit;
//! - strategic merge patches are refused with 415 also for built-in kinds;
//! - bookmarks come as often as the builder says instead of once a minute;
//! - a list at a version of the future is refused at once instead of after three seconds;
//! - in an apply patch a list is merged by item only where the table of kinds says so.

mod defaults;
mod discovery;
mod kinds;
mod ownership;
mod path;
mod present;
mod read;
mod selector;
mod serve;
mod status;
mod store;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use kinds::{Column, KINDS, Kind, ListType};
pub use path::{Target, Verb};

use read::WatchManners;
use serve::Shared;
use store::Store;

/// Namespaces that are there from the start.
const NAMESPACES: &[&str] = &["default", "kube-system", "purelb-system"];

/// What is counted: who did what to which resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// The bearer token, or the User-Agent up to the first slash.
    pub client: String,
    pub verb: Verb,
    /// `leases`, `services/status`; empty for what is no resource.
    pub resource: String,
}

/// How an embedded server is to be.
#[derive(Debug, Clone)]
pub struct Builder {
    listen: SocketAddr,
    kinds: Vec<Kind>,
    log_length: usize,
    watch_queue: usize,
    bookmark_every: Duration,
}

impl Builder {
    /// Where to listen; a port on loopback by default. Nodes in namespaces need an
    /// address on their management network.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// One more kind.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// How many changes are remembered; a watch from before is answered 410.
    pub fn log_length(mut self, changes: usize) -> Self {
        self.log_length = changes;
        self
    }

    /// How many events a watcher may be behind before it is cut off.
    pub fn watch_queue(mut self, events: usize) -> Self {
        self.watch_queue = events;
        self
    }

    /// How often a watch that allows bookmarks gets one.
    pub fn bookmark_every(mut self, interval: Duration) -> Self {
        self.bookmark_every = interval;
        self
    }

    /// Starts serving.
    pub async fn start(self) -> Result<EmbeddedApi> {
        let listener = TcpListener::bind(self.listen)
            .await
            .with_context(|| format!("listen for the embedded API on {}", self.listen))?;
        let address = listener.local_addr().context("read the embedded API's own address")?;
        let shared = Arc::new(Shared {
            kinds: self.kinds,
            store: Store::new(self.log_length, self.watch_queue),
            manners: WatchManners { bookmark_every: self.bookmark_every },
            requests: Mutex::default(),
        });
        for name in NAMESPACES {
            found_namespace(&shared, name);
        }
        let stop = CancellationToken::new();
        tokio::spawn(accept(listener, shared.clone(), stop.clone()));
        Ok(EmbeddedApi { address, shared, _stop: stop.drop_guard() })
    }
}

fn found_namespace(shared: &Shared, name: &str) {
    let kind = KINDS.iter().find(|kind| kind.plural == "namespaces").expect("the table has Namespaces");
    let intent = write::Intent {
        kind,
        namespace: "",
        name,
        subresource: "",
        manager: "embedded".to_string(),
        dry_run: false,
        force: false,
    };
    write::create(&mut shared.store.lock(), &intent, json!({"metadata": {"name": name}}))
        .expect("the store is empty");
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                // Out of descriptors: those that end make room again.
                let Ok((socket, _)) = accepted else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let _ = socket.set_nodelay(true);
                let shared = shared.clone();
                connections.spawn(async move {
                    let answer = service_fn(move |request| shared.clone().answer(request));
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(None)
                        .serve_connection(TokioIo::new(socket), answer);
                    // Clients leave in the middle of a watch; that is their way.
                    let _ = connection.await;
                });
            }
        }
    }
}

/// The running server. Dropping it closes its port and every connection.
#[derive(Debug)]
pub struct EmbeddedApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl EmbeddedApi {
    /// On a free port of loopback, with the kinds of [`KINDS`].
    pub async fn start() -> Result<EmbeddedApi> {
        Self::builder().start().await
    }

    pub fn builder() -> Builder {
        Builder {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            kinds: KINDS.to_vec(),
            log_length: 20_000,
            watch_queue: 4096,
            bookmark_every: Duration::from_secs(10),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A configuration for a client that is counted under `name`. It does not retry by
    /// itself: a test sees what the server said.
    pub fn config(&self, name: &str) -> Result<kube::Config> {
        client_config(&self.url(), name)
    }

    /// A client counted under `name`.
    pub fn client(&self, name: &str) -> Result<kube::Client> {
        Ok(kube::Client::try_from(self.config(name)?)?)
    }

    /// Writes `<directory>/<name>.kubeconfig`, for `kubectl` and for processes of their own.
    pub fn kubeconfig(&self, name: &str, directory: &Path) -> Result<PathBuf> {
        write_kubeconfig(&self.url(), name, name, directory)
    }

    /// How often who did what so far.
    pub fn requests(&self) -> BTreeMap<RequestKey, u64> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The version of the last write.
    pub fn resource_version(&self) -> u64 {
        self.shared.store.lock().version()
    }

    /// Forgets the log of changes: a watch from any earlier version is answered 410.
    pub fn compact(&self) {
        self.shared.store.lock().compact();
    }

    /// Ends every watch cleanly; clients come back with their last version.
    pub fn end_watches(&self) {
        self.shared.store.lock().end_watches();
    }

    /// Watchers cut off because they did not keep up.
    pub fn watchers_cut_off(&self) -> u64 {
        self.shared.store.lock().cut_off()
    }
}

pub(crate) fn client_config(url: &str, name: &str) -> Result<kube::Config> {
    let mut config = kube::Config::new(url.parse().context("read the server's own URL")?);
    config.default_retry = false;
    let agent = http::HeaderValue::from_str(name).with_context(|| format!("{name:?} as a client's name"))?;
    config.headers.push((http::header::USER_AGENT, agent));
    Ok(config)
}

pub(crate) fn write_kubeconfig(url: &str, name: &str, token: &str, directory: &Path) -> Result<PathBuf> {
    let file = directory.join(format!("{name}.kubeconfig"));
    // JSON is YAML, and needs no quoting rules of ours.
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
    });
    std::fs::write(&file, format!("{config:#}\n")).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}
