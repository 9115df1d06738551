//! An embedded API with an allocator on it.

use anyhow::Result;
use kube::Client;
use purelb_allocator::settings::Settings;
use purelb_allocator::{Allocator, http_server::Health};
use purelb_kit::embedded::EmbeddedApi;
use purelb_kit::wait::eventually;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::common::{Cluster, PATIENCE, settings};

pub struct Running {
    pub health: Health,
    pub address: std::net::SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn start(client: Client, settings: Settings) -> Result<Self> {
        let stop = CancellationToken::new();
        let allocator = Allocator::start(settings, client, &stop).await?;
        let (health, address) = (allocator.health.clone(), allocator.address);
        let token = stop.clone();
        let task = tokio::spawn(async move { allocator.run(token).await.expect("the allocator runs") });
        Ok(Self { health, address, stop, task })
    }

    pub async fn leads(&self) -> Result<()> {
        eventually("the allocator leads and is ready", PATIENCE, || async {
            let seen = (self.health.leads(), self.health.ready());
            if seen == (true, true) { Ok(()) } else { Err(seen) }
        })
        .await
    }

    /// As SIGTERM does.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await?)
    }

    /// As SIGKILL does.
    pub async fn kill(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

pub async fn site() -> Result<(EmbeddedApi, Cluster, Running)> {
    let api = EmbeddedApi::start().await?;
    let running = Running::start(api.client("allocator")?, settings()).await?;
    let cluster = Cluster::new(api.client("user")?);
    cluster.namespace("shop").await?;
    Ok((api, cluster, running))
}
