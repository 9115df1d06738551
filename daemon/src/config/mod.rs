//! The daemon's configuration: what is said where, and which word wins.
//!
//! ```text
//!   built in  <  purelbd.toml  <  purelbd.d/*.toml (by name)  <  PURELB_*  <  flags
//! ```
//! A key nobody knows is refused with the file it stands in: a typo must not turn into
//! a default. What concerns the whole cluster is not here but in LBNodeAgent and
//! ServiceGroup objects.

mod handoff;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use purelb_core::config::{
    DetectorConfig, DetectorConfigError, EngineConfig, FencePolicy, HandoffTimes, LeaseTimers,
    LeaseTimersError,
};
use purelb_core::durations;
use purelb_core::ids::{IdError, IfName, InstanceId, NodeName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::netlink::MarkMode;

pub use handoff::{Handoff, HandoffDeadline};
pub use sources::{Loaded, SourceError, Sources, keys, load};

/// Where Linux shows this host's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// Everything that can be set. Each field is a line of the sample file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub node: NodeSettings,
    pub kubernetes: Kubernetes,
    pub lease: Lease,
    pub handoff: Handoff,
    pub detector: Detector,
    pub services: Services,
    pub network: Network,
    pub control: Control,
    pub metrics: Metrics,
    pub log: Log,
    pub paths: Paths,
    /// Where each setting that is not built in came from, by `section.key`.
    #[serde(skip)]
    pub origins: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSettings {
    /// The Node's name in the cluster; empty = this host's name.
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    pub kubeconfig: PathBuf,
    /// The context to use; empty = the kubeconfig's current one.
    pub context: String,
    /// Instead of a kubeconfig: a token in a file, with `ca_file` and `servers`.
    pub token_file: PathBuf,
    pub ca_file: PathBuf,
    /// Where Leases, ServiceGroups and LBNodeAgents live.
    pub namespace: String,
    /// Other addresses of the same API server, tried when one fails.
    pub servers: Vec<String>,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            kubeconfig: "/etc/purelb/kubeconfig".into(),
            context: String::new(),
            token_file: PathBuf::new(),
            ca_file: PathBuf::new(),
            namespace: "purelb-system".into(),
            servers: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lease {
    #[serde(with = "durations")]
    pub duration: Duration,
    #[serde(with = "durations")]
    pub renew_deadline: Duration,
    #[serde(with = "durations")]
    pub retry_period: Duration,
    /// Past the renew deadline: `strict` withdraws, `ride` keeps what nobody else claims.
    pub fence_policy: FencePolicy,
}

impl Default for Lease {
    fn default() -> Self {
        let LeaseTimers { duration, renew_deadline, retry_period } = LeaseTimers::default();
        Self { duration, renew_deadline, retry_period, fence_policy: FencePolicy::default() }
    }
}

/// Asking segments who is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Detector {
    pub enabled: bool,
    #[serde(with = "durations")]
    pub interval: Duration,
    pub misses: u32,
}

impl Default for Detector {
    fn default() -> Self {
        let DetectorConfig { interval, misses, .. } = DetectorConfig::default();
        // The simulator still finds faults with it, where a segment loses frames one way: until it is
        // quiet, whoever wants it says so.
        Self { enabled: false, interval, misses }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Services {
    pub load_balancer_class: String,
    /// Services without a class are ours, too.
    pub default_announcer: bool,
}

impl Default for Services {
    fn default() -> Self {
        Self { load_balancer_class: "purelb.io/purelbv2".into(), default_announcer: true }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    #[serde(with = "durations")]
    pub gain_delay: Duration,
    pub kernel_fence: bool,
    pub announce_rate: u32,
    pub shadow_interfaces: BTreeSet<IfName>,
    pub marks: MarkSetting,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            gain_delay: Duration::from_secs(2),
            kernel_fence: true,
            announce_rate: 1000,
            shadow_interfaces: BTreeSet::from([IfName::new("kube-ipvs0").expect("a valid interface name")]),
            marks: MarkSetting::Detect,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkSetting {
    #[default]
    Detect,
    Kernel,
    Record,
}

impl From<MarkSetting> for MarkMode {
    fn from(setting: MarkSetting) -> Self {
        match setting {
            MarkSetting::Detect => Self::Detect,
            MarkSetting::Kernel => Self::Kernel,
            MarkSetting::Record => Self::Record,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// The unix socket; empty = none, and then no local `purelbctl`.
    pub socket: PathBuf,
    /// The group that may use it; empty = the daemon's own.
    pub socket_group: String,
    /// Where to listen on TCP; only with certificate, key and client CA.
    pub listen: Option<SocketAddr>,
    /// What others are told to connect to; empty = the listening address.
    pub advertise: String,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_ca: PathBuf,
    /// Client certificates that were withdrawn: revocation lists (PEM) of the authorities in
    /// `client_ca`; empty = none are kept.
    pub client_crl: PathBuf,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            socket: "/run/purelb/control.sock".into(),
            socket_group: "purelb".into(),
            listen: None,
            advertise: String::new(),
            certificate: "/etc/purelb/tls/tls.crt".into(),
            key: "/etc/purelb/tls/tls.key".into(),
            client_ca: "/etc/purelb/tls/ca.crt".into(),
            client_crl: PathBuf::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    pub enabled: bool,
    pub listen: SocketAddr,
    /// With TLS; empty = in the clear.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Only for clients with a certificate of this authority; empty = for all.
    pub client_ca: PathBuf,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: SocketAddr::from(([0, 0, 0, 0], 7472)),
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            client_ca: PathBuf::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as
    /// `info,purelbd::netlink=debug`.
    pub level: String,
    pub target: LogTarget,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), target: LogTarget::Auto }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogTarget {
    /// The journal if the service manager connected us to it, else text.
    #[default]
    Auto,
    Journal,
    Text,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Paths {
    /// Survives reboots: the drain mark, the last good configuration, our own next token.
    pub state: PathBuf,
    /// Survives restarts: the lock, the record of addresses on older kernels.
    pub runtime: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self { state: "/var/lib/purelb".into(), runtime: "/run/purelb".into() }
    }
}

/// A value that is well-formed and still wrong.
#[derive(Debug, Error)]
pub enum InvalidConfig {
    #[error("lease: {0}")]
    Lease(#[from] LeaseTimersError),
    #[error("node.name: {0}; set it to the Node's name in the cluster")]
    NodeName(IdError),
    #[error("node.name is empty and this host's name cannot be read: {0}; set it")]
    Hostname(std::io::Error),
    #[error(
        "handoff.deadline {deadline:?} and handoff.linger {linger:?} are too long: together they have to end before \
         the lease duration {duration:?} does"
    )]
    HandoffTooLong { deadline: Duration, linger: Duration, duration: Duration },
    #[error("detector: {0}")]
    Detector(#[from] DetectorConfigError),
    #[error(
        "detector.misses {misses} times detector.interval {interval:?} is not shorter than the lease duration \
         {duration:?}: a dead node's Lease would end first. Set them lower, or detector.enabled to false"
    )]
    DetectorTooSlow { misses: u32, interval: Duration, duration: Duration },
    #[error("kubernetes.namespace is empty; it is where purelb is installed, usually purelb-system")]
    NoNamespace,
    #[error("kubernetes.token_file is set and kubernetes.servers is empty: say where the API server is")]
    NoServers,
    #[error("services.load_balancer_class is empty; every Service of another class would be taken for ours")]
    NoClass,
    #[error("network.announce_rate must be at least 1")]
    NoAnnouncements,
    #[error("log.level {value:?}: {why}")]
    LogLevel { value: String, why: String },
    #[error("control.listen is set and control.{0} is empty: TCP is served with mutual TLS only")]
    NoTls(&'static str),
    #[error("metrics.{0} is empty, and another setting of TLS for the metrics is not: set both, or none")]
    HalfTls(&'static str),
    #[error("control.listen is {0}, which nobody can connect to: set control.advertise to host:port")]
    NoAdvertise(SocketAddr),
}

impl Config {
    /// What serde cannot see.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        self.timers().checked()?;
        let HandoffTimes { deadline, linger } = self.handoff.times(self.lease.duration);
        if deadline + linger >= self.lease.duration {
            return Err(InvalidConfig::HandoffTooLong { deadline, linger, duration: self.lease.duration });
        }
        let DetectorConfig { enabled, interval, misses } = self.detector()?;
        let duration = self.lease.duration;
        if enabled && interval * misses >= duration {
            return Err(InvalidConfig::DetectorTooSlow { misses, interval, duration });
        }
        if self.kubernetes.namespace.is_empty() {
            return Err(InvalidConfig::NoNamespace);
        }
        if !self.kubernetes.token_file.as_os_str().is_empty() && self.kubernetes.servers.is_empty() {
            return Err(InvalidConfig::NoServers);
        }
        if self.services.load_balancer_class.is_empty() {
            return Err(InvalidConfig::NoClass);
        }
        if self.network.announce_rate == 0 {
            return Err(InvalidConfig::NoAnnouncements);
        }
        crate::host::logging::filter(&self.log.level)
            .map_err(|why| InvalidConfig::LogLevel { value: self.log.level.clone(), why })?;
        if let Some(listen) = self.control.listen {
            if listen.ip().is_unspecified() && self.control.advertise.is_empty() {
                return Err(InvalidConfig::NoAdvertise(listen));
            }
            let files = [
                ("certificate", &self.control.certificate),
                ("key", &self.control.key),
                ("client_ca", &self.control.client_ca),
            ];
            if let Some((missing, _)) = files.into_iter().find(|(_, path)| path.as_os_str().is_empty()) {
                return Err(InvalidConfig::NoTls(missing));
            }
        }
        let Metrics { certificate, key, client_ca, .. } = &self.metrics;
        let [certificate, key, client_ca] = [certificate, key, client_ca].map(|p| !p.as_os_str().is_empty());
        if (key || client_ca) && !certificate {
            return Err(InvalidConfig::HalfTls("certificate"));
        }
        if certificate && !key {
            return Err(InvalidConfig::HalfTls("key"));
        }
        self.node_name().map(drop)
    }

    pub fn timers(&self) -> LeaseTimers {
        let Lease { duration, renew_deadline, retry_period, .. } = self.lease;
        LeaseTimers { duration, renew_deadline, retry_period }
    }

    pub fn detector(&self) -> Result<DetectorConfig, DetectorConfigError> {
        let Detector { enabled, interval, misses } = self.detector;
        DetectorConfig { enabled, interval, misses }.checked()
    }

    pub fn node_name(&self) -> Result<NodeName, InvalidConfig> {
        let name = if self.node.name.is_empty() {
            let host = std::fs::read_to_string(HOSTNAME).map_err(InvalidConfig::Hostname)?;
            // Kubelets register under the lower-case name.
            host.trim().to_lowercase()
        } else {
            self.node.name.clone()
        };
        NodeName::new(&name).map_err(InvalidConfig::NodeName)
    }

    /// Where others reach our control API, if they can.
    pub fn control_endpoint(&self) -> Option<String> {
        let listen = self.control.listen?;
        let said = &self.control.advertise;
        Some(if said.is_empty() { listen.to_string() } else { said.clone() })
    }

    /// What the engine is told of it.
    pub fn engine(
        &self,
        instance: InstanceId,
        draining: Option<String>,
    ) -> Result<EngineConfig, InvalidConfig> {
        let mut engine = EngineConfig::new(self.node_name()?, instance);
        engine.timers = self.timers().checked()?;
        engine.fence = self.lease.fence_policy;
        engine.handoff = self.handoff.times(self.lease.duration);
        engine.detector = self.detector()?;
        engine.gain_delay = self.network.gain_delay;
        engine.kernel_fence = self.network.kernel_fence;
        engine.announce_rate = self.network.announce_rate;
        engine.shadow_interfaces = self.network.shadow_interfaces.clone();
        engine.draining = draining;
        Ok(engine)
    }
}

#[cfg(test)]
mod tests;
