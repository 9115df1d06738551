//! The allocator: gives Services of type LoadBalancer their addresses, for ever.
//!
//! Every decision is made in `purelb_core::allocation`; this crate watches, writes and
//! retries. Replicas elect a leader over a Lease (`leader`); only the leader allocates
//! (`controller`), and it starts from what the Services themselves say. There is no other
//! memory, so a restart forgets nothing.

pub mod clock;
mod controller;
mod daemons;
pub mod http_server;
pub mod kube;
pub mod leader;
pub mod metrics;
pub mod providers;
mod service_groups;
pub mod settings;

use ::kube::Client;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use controller::{AllocationController, Ending, Means};
use daemons::DaemonManager;
use http_server::Health;
use leader::Candidate;
use metrics::Metrics;
use settings::Settings;

/// The probes hear of us at least this often while we stand aside.
const ASIDE: std::time::Duration = std::time::Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    #[error("--namespace: {0}")]
    Namespace(#[from] purelb_core::IdError),
    #[error("cannot serve metrics on {address}: {source}")]
    Metrics { address: std::net::SocketAddr, source: std::io::Error },
}

/// A running allocator, as main and the tests start it.
pub struct Allocator {
    pub metrics: Metrics,
    pub health: Health,
    /// Where metrics and probes are served.
    pub address: std::net::SocketAddr,
    settings: Settings,
    netbox: providers::NetboxAccess,
    client: Client,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Allocator {
    /// Checks the settings and serves metrics and probes; `run` does the rest.
    pub async fn start(
        settings: Settings,
        client: Client,
        stop: &CancellationToken,
    ) -> Result<Self, RunError> {
        settings.check()?;
        let netbox = settings.netbox()?;
        let (metrics, health) = (Metrics::new(), Health::default());
        let client = kube::client::counted(client, metrics.clone());
        let address = settings.metrics_address;
        let served = http_server::serve(address, metrics.clone(), health.clone(), stop.clone()).await;
        let address = served.map_err(|source| RunError::Metrics { address, source })?;
        Ok(Self { metrics, health, address, settings, netbox, client })
    }

    /// Lets the Lease run out, so that another replica leads if there is one.
    async fn stand_aside(&self, stop: &CancellationToken) {
        let until = Instant::now() + self.settings.lease_duration + self.settings.retry_period * 2;
        while Instant::now() < until && !stop.is_cancelled() {
            self.health.set(false, false);
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep_until(until.min(Instant::now() + ASIDE)) => {}
            }
        }
    }

    /// Stands by, leads, and stands by again, until told to stop.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), RunError> {
        // One name for the life of the process: after an outage it takes its own Lease up
        // again, and need not wait for it to run out.
        let candidate = Candidate::new(self.client.clone(), &self.settings);
        loop {
            self.health.set(false, false);
            self.metrics.leader(false);
            // An API server that is away is no reason to be restarted.
            let looked = |answered| self.health.set(false, answered);
            let mut term = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                term = candidate.win(looked) => term,
            };
            self.metrics.leader(true);
            let means = Means {
                client: self.client.clone(),
                netbox: self.netbox.clone(),
                metrics: self.metrics.clone(),
                health: self.health.clone(),
            };
            let (unannounced, asks) = mpsc::channel(daemons::ASKS);
            let manager = DaemonManager::new(self.client.clone(), &self.settings, term.guard.clone());
            let controller =
                AllocationController::new(&self.settings, means, &term, candidate.identity(), unannounced)?;
            let ending = tokio::select! {
                ending = Box::pin(controller.run(stop.clone())) => Some(ending),
                () = candidate.keep(&mut term) => None,
                () = Box::pin(manager.run(asks)) => None,
            };
            term.guard.end();
            match ending {
                Some(Ending::Clean) => candidate.resign(&term).await,
                Some(Ending::Unclean) | None => warn!("not the leader any more"),
                // The Lease has to run out for the others, not be taken up again by us.
                Some(Ending::Blind) => self.stand_aside(&stop).await,
            }
            if stop.is_cancelled() {
                info!("stopped");
                return Ok(());
            }
        }
    }
}
