//! Faults between one client and an API server: a reverse proxy that a test steers.
//!
//! ```text
//!   client ──► gate ──► (TLS) ──► rules ──► server (embedded or real)
//!              cut or            delay, answer,     │
//!              not               drop, stall        │
//!          ◄──────── tap ◄── watches: withhold, end, expire
//! ```
//! Every client gets a proxy, and a port, of its own, so a test can cut off one and not
//! the others. It stands before the embedded API and before the real server alike; the
//! client's own token passes through. Everything can be switched while requests are
//! under way, and ends with the value that switched it on:
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! # use purelb_kit::{embedded::{EmbeddedApi, Verb}, faults::{Cut, End, Fault, Matcher, Proxy}};
//! let api = EmbeddedApi::start().await?;
//! let proxy = Proxy::before(&api).start().await?;
//! let client = proxy.client("node-1")?;
//! let conflicts = proxy.inject(Fault::answer(409).on(Verb::Patch).of("leases").times(3));
//! let cut = proxy.cut(Cut::Hang);        // partition; `faults::outage` for several
//! cut.restore();
//! proxy.end_watches(&Matcher::all(), End::Stale);
//! assert_eq!(conflicts.hits(), 0);
//! # Ok(()) }
//! ```
//! Latency delays requests and the opening of watches, not the events of open ones;
//! chance is drawn from the proxy's seed in the order in which requests arrive.

mod counters;
mod forward;
mod gate;
mod rules;
mod watches;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use counters::Counters;
pub use gate::{Cut, Severed};
pub use rules::{Fault, Injected, Matcher};
pub use watches::{End, Withheld};

use crate::controlplane::{ControlPlane, LabCa};
use crate::embedded::{self, EmbeddedApi};
use counters::Tally;
use forward::Path;
use gate::{Gate, Gated};
use rules::Rules;
use watches::Watches;

/// Connections waiting to be accepted.
const BACKLOG: i32 = 128;

/// How a proxy is to be.
#[derive(Debug)]
pub struct Builder {
    upstream: kube::Config,
    listen: IpAddr,
    seed: u64,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Builder {
    /// Where to listen; loopback by default. The port is always a free one.
    pub fn listen(mut self, address: IpAddr) -> Self {
        self.listen = address;
        self
    }

    /// Where chance begins.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Serves TLS with a certificate of this authority for the address it listens on.
    /// Call after [`Self::listen`].
    pub fn tls(mut self, ca: &LabCa) -> Result<Self> {
        let identity = ca.serving(&[self.listen.to_string()])?;
        let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("read the proxy's certificate")?;
        let key =
            PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).context("read the proxy's key")?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        self.tls = Some(Arc::new(config));
        Ok(self)
    }

    /// Starts serving.
    pub async fn start(self) -> Result<Proxy> {
        let port = Port::reserve(self.listen)?;
        let listener = port.listen()?;
        let (rules, watches, tally, gate) =
            (Rules::new(self.seed), Arc::<Watches>::default(), Arc::<Tally>::default(), Gate::new());
        let path = Arc::new(Path {
            upstream: kube::Client::try_from(self.upstream)?,
            rules: rules.clone(),
            watches: watches.clone(),
            tally: tally.clone(),
        });
        let connections = Arc::new(Mutex::new(CancellationToken::new()));
        let stop = CancellationToken::new();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", port.address);
        let server = Server {
            port,
            path,
            gate: gate.clone(),
            connections: connections.clone(),
            tls: self.tls.map(TlsAcceptor::from),
        };
        tokio::spawn(server.run(listener, stop.clone()));
        Ok(Proxy { url, rules, watches, tally, gate, connections, _stop: stop.drop_guard() })
    }
}

/// A port that is ours also while nobody listens on it: a second socket, bound and
/// never listening, keeps it from being given to others while connections are refused.
#[derive(Debug)]
struct Port {
    address: SocketAddr,
    _reserved: Socket,
}

impl Port {
    fn socket(address: SocketAddr) -> Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into()).with_context(|| format!("bind the fault proxy to {address}"))?;
        Ok(socket)
    }

    fn reserve(ip: IpAddr) -> Result<Port> {
        let reserved = Self::socket((ip, 0).into())?;
        let address = reserved.local_addr()?.as_socket().context("an IP socket has an IP address")?;
        Ok(Port { address, _reserved: reserved })
    }

    fn listen(&self) -> Result<TcpListener> {
        let socket = Self::socket(self.address)?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from_std(socket.into())?)
    }
}

struct Server {
    port: Port,
    path: Arc<Path>,
    gate: Arc<Gate>,
    connections: Arc<Mutex<CancellationToken>>,
    tls: Option<TlsAcceptor>,
}

impl Server {
    async fn run(self, listener: TcpListener, stop: CancellationToken) {
        let mut cuts = self.gate.subscribe();
        let mut listener = Some(listener);
        let mut tasks = JoinSet::new();
        loop {
            let cut = *cuts.borrow_and_update();
            if cut == Some(Cut::Down) {
                break_all(&self.connections);
            }
            match cut {
                Some(Cut::Refuse | Cut::Down) => listener = None,
                None | Some(Cut::Hang) if listener.is_none() => {
                    listener =
                        self.port.listen().inspect_err(|error| tracing::error!(%error, "listen again")).ok();
                }
                None | Some(Cut::Hang) => {}
            }
            let accepted = async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = cuts.changed() => if changed.is_err() { return },
                Some(_) = tasks.join_next() => {}
                accepted = accepted => match accepted {
                    Ok((socket, _)) => { tasks.spawn(self.connection(socket)); }
                    // Out of descriptors: those that end make room again.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
            }
        }
    }

    fn connection(&self, socket: TcpStream) -> impl Future<Output = ()> + Send + use<> {
        self.path.tally.add(|counters| counters.connections += 1);
        let _ = socket.set_nodelay(true);
        let broken = self.connections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (path, tls) = (self.path.clone(), self.tls.clone());
        let socket = Gated::new(socket, self.gate.clone());
        async move {
            let served = async {
                match tls {
                    None => serve(socket, path).await,
                    Some(tls) => {
                        if let Ok(socket) = tls.accept(socket).await {
                            serve(socket, path).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = broken.cancelled() => {}
                () = served => {}
            }
        }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(socket: S, path: Arc<Path>) {
    let answer = service_fn(move |request| path.clone().answer(request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(socket), answer);
    // Broken connections are this module's purpose.
    let _ = connection.await;
}

fn break_all(connections: &Mutex<CancellationToken>) {
    let mut current = connections.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *current, CancellationToken::new()).cancel();
}

/// One client's way to an API server. Dropping it closes its port.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    rules: Arc<Rules>,
    watches: Arc<Watches>,
    tally: Arc<Tally>,
    gate: Arc<Gate>,
    connections: Arc<Mutex<CancellationToken>>,
    _stop: DropGuard,
}

impl Proxy {
    /// A proxy before any server. The configuration says how the server is reached and
    /// verified; what it says about identity is used where the client brings none.
    pub fn before_server(mut upstream: kube::Config) -> Builder {
        upstream.default_retry = false;
        upstream.disable_compression = true;
        upstream.read_timeout = None;
        Builder { upstream, listen: Ipv4Addr::LOCALHOST.into(), seed: 1, tls: None }
    }

    /// A proxy before the embedded API.
    pub fn before(api: &EmbeddedApi) -> Builder {
        let url = api.url().parse().expect("the embedded API's URL is made of a socket address");
        Self::before_server(kube::Config::new(url))
    }

    /// A proxy before the real server; clients bring their own tokens.
    pub fn before_plane(plane: &ControlPlane) -> Result<Builder> {
        let mut config = kube::Config::new(plane.url().parse().context("the control plane's URL")?);
        config.root_cert = Some(vec![plane.ca().cert_der()]);
        Ok(Self::before_server(config))
    }

    /// What a client connects to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client of the embedded API through this proxy, counted there under `name`.
    pub fn client(&self, name: &str) -> Result<kube::Client> {
        Ok(kube::Client::try_from(embedded::client_config(&self.url, name)?)?)
    }

    /// A client with a token, for the real server.
    pub fn client_with_token(&self, name: &str, token: &str) -> Result<kube::Client> {
        let mut config = embedded::client_config(&self.url, name)?;
        config.auth_info.token = Some(token.to_string().into());
        Ok(kube::Client::try_from(config)?)
    }

    /// Writes `<directory>/<name>.kubeconfig` with this token. The embedded API takes any
    /// and counts the client under it. A proxy that serves TLS needs a kubeconfig with
    /// its authority: [`ControlPlane::kubeconfig_for`] with [`Self::url`].
    pub fn kubeconfig(&self, name: &str, token: &str, directory: &FilePath) -> Result<PathBuf> {
        embedded::write_kubeconfig(&self.url, name, token, directory)
    }

    /// Begins a fault. Requests under way are not touched, those that come are.
    pub fn inject(&self, fault: Fault) -> Injected {
        self.rules.add(fault)
    }

    /// Cuts this client off.
    pub fn cut(&self, cut: Cut) -> Severed {
        self.gate.cut(cut)
    }

    /// Breaks every connection that is open now; new ones are served.
    pub fn break_connections(&self) {
        self.tally.add(|counters| counters.dropped += 1);
        break_all(&self.connections);
    }

    /// Open and future watches that match stay open and say nothing.
    pub fn withhold_watches(&self, matcher: Matcher) -> Withheld {
        self.watches.withhold(matcher)
    }

    /// Ends the watches that are open now and match; says how many there were.
    pub fn end_watches(&self, matcher: &Matcher, how: End) -> usize {
        self.watches.end(matcher, how)
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.watches.count()
    }

    pub fn counters(&self) -> Counters {
        self.tally.snapshot()
    }
}

/// Cuts several clients off at once: the server is away for everybody.
#[must_use = "the outage ends when this is dropped"]
pub fn outage<'a>(proxies: impl IntoIterator<Item = &'a Proxy>, cut: Cut) -> Vec<Severed> {
    proxies.into_iter().map(|proxy| proxy.cut(cut)).collect()
}
