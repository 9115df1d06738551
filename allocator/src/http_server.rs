//! `/metrics`, `/healthz` and `/readyz`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use purelb_core::Mono;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::metrics::Metrics;

/// A loop that has not turned for this long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// What the probes answer from.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Signs>);

#[derive(Debug, Default)]
struct Signs {
    beat: AtomicU64,
    leads: AtomicBool,
    ready: AtomicBool,
}

impl Health {
    /// The main loop turned.
    pub fn beat(&self) {
        self.0.beat.store(clock::now().as_nanos(), Ordering::Relaxed);
    }

    /// A follower is ready when it can see the Lease; a leader once it knows every
    /// object.
    pub fn set(&self, leads: bool, ready: bool) {
        self.0.leads.store(leads, Ordering::Relaxed);
        self.0.ready.store(ready, Ordering::Relaxed);
        self.beat();
    }

    pub fn leads(&self) -> bool {
        self.0.leads.load(Ordering::Relaxed)
    }

    pub fn ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    /// How long ago the main loop turned last.
    pub fn since_beat(&self) -> Duration {
        clock::now().since(Mono::from_nanos(self.0.beat.load(Ordering::Relaxed)))
    }

    fn alive(&self) -> bool {
        self.since_beat() < STUCK_AFTER
    }
}

/// Serves until `stop`. Answers the address it listens on.
pub async fn serve(
    address: SocketAddr,
    metrics: Metrics,
    health: Health,
    stop: CancellationToken,
) -> std::io::Result<SocketAddr> {
    health.beat();
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    let app = Router::new()
        .route("/metrics", get(text))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state((metrics, health));
    tokio::spawn(async move {
        let served = axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(%error, "metrics and probes are not served any more");
        }
    });
    Ok(bound)
}

async fn text(State((metrics, _)): State<(Metrics, Health)>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.text())
}

async fn healthz(State((_, health)): State<(Metrics, Health)>) -> impl IntoResponse {
    if health.alive() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the main loop does not turn\n")
    }
}

async fn readyz(State((_, health)): State<(Metrics, Health)>) -> impl IntoResponse {
    match (health.ready(), health.leads()) {
        (true, true) => (StatusCode::OK, "ok: allocating\n"),
        (true, false) => (StatusCode::OK, "ok: standing by\n"),
        (false, true) => (StatusCode::SERVICE_UNAVAILABLE, "leading, but not everything is listed yet\n"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "the leader's Lease cannot be read\n"),
    }
}
