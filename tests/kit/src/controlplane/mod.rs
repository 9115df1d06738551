//! A real control plane: etcd, kube-apiserver and kube-controller-manager on loopback.
//!
//! TLS by a CA of its own, RBAC on, admission as shipped, service-account tokens.
//! Programs under test get the rights of the manifests in `deploy/k8s`
//! ([`ControlPlane::apply_manifests`], [`ControlPlane::client_for`]), never the
//! administrator's. Outages are real: the API server is stopped or killed.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use purelb_kit::controlplane::{ControlPlane, ServiceAccount};
//! let plane = ControlPlane::start().await?;
//! plane.apply_manifests().await?;
//! let as_daemon = plane.client_for(&ServiceAccount::node_daemon()).await?;
//! # drop(as_daemon); Ok(()) }
//! ```

mod access;
mod binaries;
pub mod fixtures;
pub mod manifests;
mod pki;
pub mod process;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount as ServiceAccountObject};
use kube::Api;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use tokio::sync::OnceCell;

pub use access::{ServiceAccount, ask};
pub use binaries::Binaries;
pub use pki::{Identity, LabCa};

use crate::wait::eventually;
use process::{Guard, Process};

/// The bar is 15 s on a calm machine; a test must not fail because its machine is
/// shared, so waiting goes on longer and the time taken is reported.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What a caller may choose before the start.
#[derive(Clone, Debug)]
pub struct Builder {
    listen: IpAddr,
    hosts: Vec<String>,
    controller_manager: bool,
    flags: Vec<String>,
}

impl Builder {
    /// One more flag for the API server.
    pub fn api_server_flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// The API server listens on this address instead of 127.0.0.1; `0.0.0.0` lets
    /// nodes in namespaces reach it over a management network.
    pub fn listen_on(mut self, ip: IpAddr) -> Self {
        self.listen = ip;
        self
    }

    /// Another name or address under which clients reach it: goes into the
    /// certificate, so that they can verify it.
    pub fn also_reached_as(mut self, host: &str) -> Self {
        self.hosts.push(host.to_owned());
        self
    }

    /// Garbage collection, EndpointSlices and default service accounts, too.
    pub fn with_controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self
    }

    pub async fn start(self) -> Result<ControlPlane> {
        ControlPlane::start_with(self).await
    }
}

/// A port that stays ours between a server's death and its restart: bound, never
/// listening, shared with the server by SO_REUSEPORT. Nobody else is handed it, so
/// two test runs side by side cannot end up on each other's etcd.
#[derive(Debug)]
struct ReservedPort {
    port: u16,
    _socket: Socket,
}

impl ReservedPort {
    fn on(ip: IpAddr) -> Result<Self> {
        let addr = SocketAddr::new(ip, 0);
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&addr.into()).with_context(|| format!("reserving a port on {ip}"))?;
        let port = socket.local_addr()?.as_socket().context("a TCP socket has an address")?.port();
        Ok(Self { port, _socket: socket })
    }
}

/// Fields are dropped in this order: clients of etcd before etcd, programs before
/// their files, the guard last.
#[derive(Debug)]
struct Running {
    controller_manager: Option<Process>,
    apiserver: Option<Process>,
    etcd: Process,
}

/// A running control plane; everything of it ends and disappears on drop.
#[derive(Debug)]
pub struct ControlPlane {
    running: Mutex<Running>,
    apiserver_args: Vec<String>,
    binaries: Binaries,
    url_host: IpAddr,
    port: ReservedPort,
    _etcd_ports: [ReservedPort; 2],
    ca: LabCa,
    admin_token: String,
    started_in: Duration,
    dir: TempDir,
    _guard: Guard,
}

impl ControlPlane {
    pub fn builder() -> Builder {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Builder { listen: loopback, hosts: Vec::new(), controller_manager: false, flags: Vec::new() }
    }

    /// etcd and an API server on 127.0.0.1, ready to be used.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// One for all tests of a test binary, ended with the process. Make a client per
    /// test ([`Self::admin`]): a client belongs to the runtime that made it.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    async fn start_with(options: Builder) -> Result<Self> {
        let binaries = tokio::task::spawn_blocking(Binaries::find).await??;
        let began = Instant::now();
        let dir = tempfile::Builder::new().prefix("purelb-controlplane-").tempdir()?;
        let guard = Guard::over(dir.path())?;
        let ca = LabCa::new()?;
        let admin_token = uuid::Uuid::new_v4().to_string();
        let files = Files::write(dir.path(), &ca, &options.hosts, options.listen, &admin_token)?;

        let port = ReservedPort::on(options.listen)?;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let etcd_ports = [ReservedPort::on(loopback)?, ReservedPort::on(loopback)?];
        let etcd_url = format!("http://127.0.0.1:{}", etcd_ports[0].port);
        let etcd_args = etcd_args(dir.path(), &etcd_url, etcd_ports[1].port);
        let mut apiserver_args = apiserver_args(&files, &etcd_url, options.listen, port.port);
        apiserver_args.extend(options.flags);
        let url_host = if options.listen.is_unspecified() { loopback } else { options.listen };

        let etcd = Process::start("etcd", &binaries.etcd, &etcd_args, &dir.path().join("etcd.log"))?;
        let mut plane = Self {
            running: Mutex::new(Running { controller_manager: None, apiserver: None, etcd }),
            apiserver_args,
            binaries,
            url_host,
            port,
            _etcd_ports: etcd_ports,
            ca,
            admin_token,
            started_in: Duration::ZERO,
            dir,
            _guard: guard,
        };
        plane.spawn_apiserver()?;
        plane.wait_ready().await?;
        if options.controller_manager {
            // Not before: it ends itself if the API server takes longer than ten seconds.
            plane.spawn_controller_manager(&files)?;
            plane.wait_controllers().await?;
        }
        plane.started_in = began.elapsed();
        Ok(plane)
    }

    /// From the first process started to everything ready.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    pub fn version(&self) -> &str {
        &self.binaries.version
    }

    /// Where the API server is reached from this host.
    pub fn url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.url_host, self.port.port))
    }

    /// The same server under another name or address (see [`Builder::also_reached_as`]).
    pub fn url_via(&self, host: &str) -> String {
        match host.parse::<IpAddr>() {
            Ok(ip) => format!("https://{}", SocketAddr::new(ip, self.port.port)),
            Err(_) => format!("https://{host}:{}", self.port.port),
        }
    }

    pub fn port(&self) -> u16 {
        self.port.port
    }

    /// The CA behind the serving certificate; a proxy in front of the server gets its
    /// own certificate from it, and clients need not care.
    pub fn ca(&self) -> &LabCa {
        &self.ca
    }

    /// A directory that disappears with the control plane.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process of the API server, if it runs.
    pub fn apiserver_pid(&self) -> Option<Pid> {
        let id = self.lock().apiserver.as_ref()?.id();
        i32::try_from(id).ok().map(Pid::from_raw)
    }

    /// Freezes the API server (SIGSTOP): connections stay open, and from the return of
    /// this on nothing is answered.
    pub fn pause(&self) -> Result<()> {
        self.signal_apiserver(Signal::SIGSTOP)
    }

    /// Lets a paused API server go on.
    pub fn resume(&self) -> Result<()> {
        self.signal_apiserver(Signal::SIGCONT)
    }

    /// Kills the API server: connections break, new ones are refused. etcd stays.
    pub fn stop_apiserver(&self) {
        if let Some(mut server) = self.lock().apiserver.take() {
            server.end();
        }
    }

    /// Starts it again, on the same port and data, and waits until it is ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        self.spawn_apiserver()?;
        self.wait_ready().await
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // A test that panicked elsewhere must not keep us from cleaning up.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal_apiserver(&self, signal: Signal) -> Result<()> {
        self.lock().apiserver.as_ref().context("the API server is not running")?.signal(signal)
    }

    fn spawn_apiserver(&self) -> Result<()> {
        let mut running = self.lock();
        if running.apiserver.is_some() {
            bail!("the API server is already running");
        }
        let log = self.dir.path().join("kube-apiserver.log");
        let server = Process::start("kube-apiserver", &self.binaries.apiserver, &self.apiserver_args, &log)?;
        running.apiserver = Some(server);
        Ok(())
    }

    fn spawn_controller_manager(&self, files: &Files) -> Result<()> {
        let kubeconfig = self.admin_kubeconfig(&self.url())?;
        let args = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--service-account-private-key-file={}", files.sa_key.display()),
            format!("--root-ca-file={}", files.ca.display()),
            "--use-service-account-credentials=true".into(),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
            // Its own brake would make every start and every collection seconds longer.
            "--kube-api-qps=500".into(),
            "--kube-api-burst=500".into(),
            // No kubelet reports here: with it every Node would turn NotReady.
            "--controllers=*,-node-lifecycle-controller".into(),
        ];
        let log = self.dir.path().join("kube-controller-manager.log");
        let manager =
            Process::start("kube-controller-manager", &self.binaries.controller_manager, &args, &log)?;
        self.lock().controller_manager = Some(manager);
        Ok(())
    }

    /// Fails, with the end of its log, as soon as a program has exited.
    fn check_alive(&self) -> Result<()> {
        let mut running = self.lock();
        let Running { controller_manager, apiserver, etcd } = &mut *running;
        for process in [Some(etcd), apiserver.as_mut(), controller_manager.as_mut()].into_iter().flatten() {
            if let Some(status) = process.exited()? {
                bail!("a part of the control plane ended ({status})\n{}", process.log_tail());
            }
        }
        Ok(())
    }

    fn log_tails(&self) -> String {
        let running = self.lock();
        let all = [Some(&running.etcd), running.apiserver.as_ref(), running.controller_manager.as_ref()];
        all.into_iter().flatten().map(Process::log_tail).collect::<Vec<_>>().join("\n")
    }

    async fn wait_ready(&self) -> Result<()> {
        let client = self.admin()?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let look = || async {
            self.check_alive().map_err(Stop::Now)?;
            let get = http::Request::get("/readyz").body(Vec::new()).map_err(|e| Stop::Now(e.into()))?;
            // One look must not outlast the wait if the server accepts and then hangs.
            let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(get)).await;
            match answer {
                Ok(Ok(_)) => {}
                Ok(Err(e)) => return Err(Stop::NotYet(e.to_string())),
                Err(_) => return Err(Stop::NotYet("/readyz does not answer".into())),
            }
            // /readyz is said a moment before the default namespace exists.
            namespaces.get("default").await.map(drop).map_err(|e| Stop::NotYet(e.to_string()))
        };
        self.wait_for("kube-apiserver is ready", look).await
    }

    async fn wait_controllers(&self) -> Result<()> {
        let accounts: Api<ServiceAccountObject> = Api::namespaced(self.admin()?, "default");
        let look = || async {
            self.check_alive().map_err(Stop::Now)?;
            accounts.get("default").await.map(drop).map_err(|e| Stop::NotYet(e.to_string()))
        };
        self.wait_for("kube-controller-manager makes service accounts", look).await
    }

    async fn wait_for<F, Fut>(&self, what: &str, mut look: F) -> Result<()>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = std::result::Result<(), Stop>>,
    {
        let waited = eventually(what, READY_WITHIN, || {
            let seen = look();
            async move {
                match seen.await {
                    Ok(()) => Ok(Ok(())),
                    Err(Stop::Now(error)) => Ok(Err(error)),
                    Err(Stop::NotYet(state)) => Err(state),
                }
            }
        });
        waited.await.and_then(std::convert::identity).map_err(|e| e.context(self.log_tails()))
    }
}

/// What a look at a starting program found: still starting, or hopeless.
enum Stop {
    NotYet(String),
    Now(anyhow::Error),
}

/// The files the programs read.
struct Files {
    ca: PathBuf,
    serving_cert: PathBuf,
    serving_key: PathBuf,
    sa_key: PathBuf,
    sa_pub: PathBuf,
    tokens: PathBuf,
    cert_dir: PathBuf,
}

impl Files {
    fn write(dir: &Path, ca: &LabCa, hosts: &[String], listen: IpAddr, admin_token: &str) -> Result<Self> {
        let mut sans: Vec<String> = vec!["127.0.0.1".into(), "::1".into(), "localhost".into()];
        sans.push("kubernetes.default.svc".into());
        if !listen.is_unspecified() {
            sans.push(listen.to_string());
        }
        sans.extend(hosts.iter().cloned());
        let serving = ca.serving(&sans)?;
        let (sa_key, sa_pub) = pki::token_keys()?;
        let put = |name: &str, text: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            ca: put("ca.pem", &ca.cert_pem())?,
            serving_cert: put("apiserver.pem", &serving.cert_pem)?,
            serving_key: put("apiserver.key", &serving.key_pem)?,
            sa_key: put("sa.key", &sa_key)?,
            sa_pub: put("sa.pub", &sa_pub)?,
            tokens: put("tokens.csv", &format!("{admin_token},lab-admin,lab-admin,\"system:masters\"\n"))?,
            cert_dir: dir.join("certs"),
        })
    }
}

fn etcd_args(dir: &Path, url: &str, peer_port: u16) -> Vec<String> {
    let peer = format!("http://127.0.0.1:{peer_port}");
    vec![
        "--name=lab".into(),
        format!("--data-dir={}", dir.join("etcd").display()),
        // Nothing here survives the test; syncing would only slow every write down.
        "--unsafe-no-fsync".into(),
        "--socket-reuse-port".into(),
        "--log-level=warn".into(),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=lab={peer}"),
    ]
}

fn apiserver_args(files: &Files, etcd_url: &str, listen: IpAddr, port: u16) -> Vec<String> {
    vec![
        format!("--etcd-servers={etcd_url}"),
        format!("--bind-address={listen}"),
        format!("--secure-port={port}"),
        "--permit-port-sharing=true".into(),
        // There may be no default route to guess an address from, and nobody here
        // reads the Endpoints of the `kubernetes` Service.
        "--advertise-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        format!("--cert-dir={}", files.cert_dir.display()),
        format!("--tls-cert-file={}", files.serving_cert.display()),
        format!("--tls-private-key-file={}", files.serving_key.display()),
        format!("--client-ca-file={}", files.ca.display()),
        format!("--token-auth-file={}", files.tokens.display()),
        "--authorization-mode=Node,RBAC".into(),
        "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", files.sa_pub.display()),
        format!("--service-account-signing-key-file={}", files.sa_key.display()),
    ]
}
