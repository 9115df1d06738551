//! Settings: flags, and the environment variables the manifests use.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use purelb_api::names;
use purelb_api::service::Classes;
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
    #[arg(long, env = "PURELB_LEASE_DURATION", value_parser = duration, default_value = "10s")]
    pub lease_duration: Duration,
    /// A leader that could not renew for this long writes nothing more.
    #[arg(long, env = "PURELB_RENEW_DEADLINE", value_parser = duration, default_value = "7s")]
    pub renew_deadline: Duration,
    /// How soon something that failed is tried again.
    #[arg(long, env = "PURELB_RETRY_PERIOD", value_parser = duration, default_value = "2s")]
    pub retry_period: Duration,
    /// How many Services are written at the same time.
    #[arg(long, env = "PURELB_WRITES", default_value_t = 16)]
    pub writes: usize,
    /// How much longer a subnet counts for multi-pool Services after its last node
    /// fell silent.
    #[arg(long, env = "PURELB_SUBNET_GRACE", value_parser = duration, default_value = "60s")]
    pub subnet_grace: Duration,
    /// Metrics and probes.
    #[arg(long, env = "PURELB_METRICS_ADDRESS", default_value = "[::]:7472")]
    pub metrics_address: SocketAddr,
    /// A kubeconfig; without it, the pod's own service account.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Drain a node's daemon while its Node is cordoned or labelled
    /// `node.kubernetes.io/exclude-from-external-load-balancers`.
    #[arg(long, env = "PURELB_DRAIN_CORDONED", default_value_t = false, action = clap::ArgAction::Set)]
    pub drain_cordoned: bool,
    /// An address of a local pool that nobody announces for this long makes us ask its
    /// winner to look again.
    #[arg(long, env = "PURELB_ANNOUNCE_PATIENCE", value_parser = duration, default_value = "30s")]
    pub announce_patience: Duration,
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
        Ok(())
    }

    pub fn netbox(&self) -> Result<NetboxAccess, SettingsError> {
        let mut access = NetboxAccess { token: self.netbox_token.clone(), trust: Vec::new() };
        if let Some(path) = &self.netbox_ca_file {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let failed = |why: String| SettingsError::NetboxCa { path: path.display().to_string(), why };
            access.trust = read.map_err(|e| failed(e.to_string()))?;
            if access.trust.is_empty() {
                return Err(failed("it has no certificate".into()));
            }
        }
        Ok(access)
    }

    pub fn classes(&self) -> Classes {
        Classes { class: self.class.clone(), default_announcer: self.default_announcer == names::BRAND }
    }
}

/// `10s`, `1500ms`, `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let hint = || format!("{text:?} is not a duration: write 500ms, 10s or 2m");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(hint)?;
    let number: f64 = text[..digits].parse().map_err(|_| hint())?;
    let unit = match &text[digits..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(hint()),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["10", "s", "1h", "-1s", "1e400s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
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
        assert!(!Settings::defaults().classes().default_announcer);
        assert_eq!(parsed.renew_deadline, Settings::defaults().renew_deadline);
    }
}
