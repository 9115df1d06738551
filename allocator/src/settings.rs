//! Settings: flags, and the environment variables the manifests use.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use purelb_api::names;
use purelb_api::service::{self, Classes};
use purelb_core::durations;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

use crate::providers::NetboxAccess;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    #[error(
        "lease duration {duration:?}, renew deadline {deadline:?}, retry period {retry:?}: each must be longer than the next, and the retry period longer than nothing"
    )]
    Timers { duration: Duration, deadline: Duration, retry: Duration },
    #[error("--writes is 0: give at least 1")]
    NoWrites,
    #[error("--sweep-interval is nothing: give a time, such as 10m")]
    NoSweepInterval,
    #[error("--netbox-ca-file {path}: {why}")]
    NetboxCa { path: String, why: String },
}

/// Gives Services of type LoadBalancer their addresses from ServiceGroups.
#[derive(Clone, Debug, Parser)]
#[command(name = "purelb-allocator", version)]
pub struct Settings {
    /// Where ServiceGroups are read from and the leader's Lease is kept.
    #[arg(long, env = "PURELB_NAMESPACE", default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// The load-balancer class that names us.
    #[arg(long, env = "PURELB_LOAD_BALANCER_CLASS", default_value = names::DEFAULT_CLASS)]
    pub class: String,
    /// `PureLB`: Services that name no class are ours, too.
    #[arg(long, env = "DEFAULT_ANNOUNCER", default_value = "")]
    pub default_announcer: String,
    /// Who this replica is in the leader's Lease; a pod's name is given by the
    /// manifests. A random part is added, so that a restarted process is another one.
    #[arg(long, env = "PURELB_POD_NAME", default_value = "purelb-allocator")]
    pub identity: String,
    /// Another replica may take over this long after the leader's last renewal.
    #[arg(long, env = "PURELB_LEASE_DURATION", value_parser = durations::parse, default_value = "10s")]
    pub lease_duration: Duration,
    /// A leader that could not renew for this long writes nothing more.
    #[arg(long, env = "PURELB_RENEW_DEADLINE", value_parser = durations::parse, default_value = "7s")]
    pub renew_deadline: Duration,
    /// How soon something that failed is tried again.
    #[arg(long, env = "PURELB_RETRY_PERIOD", value_parser = durations::parse, default_value = "2s")]
    pub retry_period: Duration,
    /// How many Services are written at the same time.
    #[arg(long, env = "PURELB_WRITES", default_value_t = 16)]
    pub writes: usize,
    /// How much longer a subnet counts for multi-pool Services after its last node
    /// fell silent.
    #[arg(long, env = "PURELB_SUBNET_GRACE", value_parser = durations::parse, default_value = "60s")]
    pub subnet_grace: Duration,
    /// Metrics and probes.
    #[arg(long, env = "PURELB_METRICS_ADDRESS", default_value = "[::]:7472")]
    pub metrics_address: SocketAddr,
    /// A kubeconfig; without it, the pod's own service account.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Drain a node's daemon while its Node is cordoned.
    #[arg(long, env = "PURELB_DRAIN_CORDONED", default_value_t = false, action = clap::ArgAction::Set)]
    pub drain_cordoned: bool,
    /// An address of a local pool that nobody announces so long after its Service was written
    /// makes us ask its winner, once, to look again.
    #[arg(long, env = "PURELB_ANNOUNCE_PATIENCE", value_parser = durations::parse, default_value = "30s")]
    pub announce_patience: Duration,
    /// How often the books of NetBox and external providers are searched for addresses that
    /// no Service holds; also when a replica takes over.
    #[arg(long, env = "PURELB_SWEEP_INTERVAL", value_parser = durations::parse, default_value = "10m")]
    pub sweep_interval: Duration,
    /// How long nobody must have held such an address before it is given back.
    #[arg(long, env = "PURELB_SWEEP_GRACE", value_parser = durations::parse, default_value = "1m")]
    pub sweep_grace: Duration,
    /// Token for NetBox, for groups that name no Secret.
    #[arg(long, env = "NETBOX_USER_TOKEN", hide_env_values = true)]
    pub netbox_token: Option<String>,
    /// Certificates (PEM) trusted for NetBox beside the system's.
    #[arg(long, env = "PURELB_NETBOX_CA_FILE")]
    pub netbox_ca_file: Option<PathBuf>,
}

impl Settings {
    /// The defaults, without looking at the environment.
    pub fn defaults() -> Self {
        Self {
            namespace: names::DEFAULT_NAMESPACE.to_owned(),
            class: names::DEFAULT_CLASS.to_owned(),
            default_announcer: String::new(),
            identity: "purelb-allocator".to_owned(),
            lease_duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            retry_period: Duration::from_secs(2),
            writes: 16,
            subnet_grace: Duration::from_secs(60),
            metrics_address: SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], 7472)),
            kubeconfig: None,
            drain_cordoned: false,
            announce_patience: Duration::from_secs(30),
            sweep_interval: Duration::from_secs(600),
            sweep_grace: Duration::from_secs(60),
            netbox_token: None,
            netbox_ca_file: None,
        }
    }

    pub fn check(&self) -> Result<(), SettingsError> {
        let (duration, deadline, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if !(duration > deadline && deadline > retry && retry > Duration::ZERO) {
            return Err(SettingsError::Timers { duration, deadline, retry });
        }
        if self.writes == 0 {
            return Err(SettingsError::NoWrites);
        }
        if self.sweep_interval.is_zero() {
            return Err(SettingsError::NoSweepInterval);
        }
        Ok(())
    }

    pub fn netbox(&self) -> Result<NetboxAccess, SettingsError> {
        let mut trust = Vec::new();
        if let Some(path) = &self.netbox_ca_file {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let failed = |why: String| SettingsError::NetboxCa { path: path.display().to_string(), why };
            trust = read.map_err(|e| failed(e.to_string()))?;
            if trust.is_empty() {
                return Err(failed("it has no certificate".into()));
            }
        }
        Ok(NetboxAccess::new(self.netbox_token.clone(), trust))
    }

    pub fn classes(&self) -> Classes {
        let default_announcer = service::names_us(&self.default_announcer);
        Classes { class: self.class.clone(), default_announcer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_seconds_are_durations() {
        let timers = ["--lease-duration", "5", "--renew-deadline", "3s", "--retry-period", "1000ms"];
        let parsed = Settings::try_parse_from(["purelb-allocator"].into_iter().chain(timers)).unwrap();
        assert_eq!(parsed.lease_duration, Duration::from_secs(5));
        assert_eq!(parsed.check(), Ok(()));
        assert!(Settings::try_parse_from(["purelb-allocator", "--retry-period", "1 s"]).is_err());
    }

    #[test]
    fn timers_that_would_let_two_lead_are_refused() {
        let mut settings = Settings::defaults();
        assert_eq!(settings.check(), Ok(()));
        settings.renew_deadline = settings.lease_duration;
        assert!(settings.check().is_err());
    }

    #[test]
    fn flags_without_environment_are_the_defaults() {
        let parsed = Settings::try_parse_from(["purelb-allocator", "--default-announcer", "PureLB"]).unwrap();
        assert!(parsed.classes().default_announcer);
        let lower = Settings::try_parse_from(["purelb-allocator", "--default-announcer", "purelb"]).unwrap();
        assert!(lower.classes().default_announcer, "as the daemon reads it");
        assert!(!Settings::defaults().classes().default_announcer);
        assert_eq!(parsed.renew_deadline, Settings::defaults().renew_deadline);
    }
}
