//! `purelb-allocator`: reads its settings, starts, and stops on a signal.

use anyhow::{Context, Result};
use clap::Parser;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use purelb_allocator::Allocator;
use purelb_allocator::kube::client as kube_client;
use purelb_allocator::settings::Settings;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing_subscriber::EnvFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let settings = Settings::parse();
    let filter = EnvFilter::try_from_env("PURELB_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).init();
    let client = kube_client::client(kube_config(&settings).await?)?;
    let stop = CancellationToken::new();
    let allocator = Allocator::start(settings, client, &stop).await?;
    info!(address = %allocator.address, "metrics and probes are served");
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let stopper = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM"),
            _ = interrupt.recv() => info!("SIGINT"),
        }
        stopper.cancel();
    });
    Ok(allocator.run(stop).await?)
}

async fn kube_config(settings: &Settings) -> Result<Config> {
    match &settings.kubeconfig {
        Some(path) => {
            let file =
                Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("kubeconfig {}", path.display()))
        }
        None => Config::incluster().context(
            "no --kubeconfig and no service account of a pod: give one with --kubeconfig or KUBECONFIG",
        ),
    }
}
