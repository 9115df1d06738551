//! Metrics for Prometheus, under `/metrics`.
//!
//! Everything is read from the engine's snapshot and the adapters' counters at the time
//! somebody asks, so a series disappears with its object. The server is tiny on purpose:
//! one path, few connections at a time, each with little time.

mod collector;
mod encoder;
mod tls;
mod vips;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};

use crate::announce::SegmentStats;
use crate::app::RunningDaemon;
use crate::config::Metrics;
use crate::engine::effects::EffectStats;
use crate::engine::handle::EngineHandle;
use crate::kube::KubeCounters;
use crate::netlink::MonitorHandle;

pub use collector::MetricsCollector;
use tls::MetricsTls;

/// Scrapers at once; more are refused by closing their connection.
const MOST_CONNECTIONS: usize = 8;
/// For a request to arrive and its answer to leave.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries to listen, should the port be taken.
const LISTEN_RETRY: Duration = Duration::from_secs(5);

/// Counters beside the engine's own.
#[derive(Clone, Debug)]
pub struct MetricSources {
    pub adapters: Arc<EffectStats>,
    pub segments: Arc<SegmentStats>,
    pub monitor: MonitorHandle,
    pub kube: Arc<KubeCounters>,
}

/// Serves for as long as the daemon runs, where the configuration says, or not at all.
pub async fn serve(mut running: RunningDaemon, sources: MetricSources) {
    let registry = Arc::new(registry(running.handle.clone(), sources));
    loop {
        let settings = running.config.borrow_and_update().metrics.clone();
        let changed = async {
            while running.config.changed().await.is_ok() {
                if running.config.borrow_and_update().metrics != settings {
                    return true;
                }
            }
            false
        };
        if !settings.enabled {
            if changed.await {
                continue;
            }
            return;
        }
        tokio::select! {
            changed = changed => if !changed { return },
            () = listen(&settings, registry.clone()) => {}
        }
    }
}

pub fn registry(handle: EngineHandle, sources: MetricSources) -> Registry {
    let mut registry = Registry::with_prefix("purelb");
    registry.register_collector(Box::new(MetricsCollector { handle, sources }));
    registry
}

async fn listen(settings: &Metrics, registry: Arc<Registry>) {
    let address = settings.listen;
    let mut tls = MetricsTls::of(settings);
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => warn!(%address, %error, "metrics cannot be served there; trying again"),
        }
        tokio::time::sleep(LISTEN_RETRY).await;
    };
    info!(%address, "serving metrics");
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, usually: busy waiting would not help.
                warn!(%error, "metrics");
                tokio::time::sleep(LISTEN_RETRY).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let acceptor = match tls.as_mut().map(MetricsTls::acceptor) {
            None => None,
            Some(Some(acceptor)) => Some(acceptor),
            Some(None) => continue,
        };
        let registry = registry.clone();
        tokio::spawn(async move {
            let _place = place;
            let served = async {
                match acceptor {
                    None => serve_one(stream, &registry).await,
                    Some(acceptor) => match acceptor.accept(stream).await {
                        Ok(stream) => serve_one(stream, &registry).await,
                        Err(error) => debug!(%error, "metrics connection without TLS we accept"),
                    },
                }
            };
            if tokio::time::timeout(CONNECTION_TIMEOUT, served).await.is_err() {
                debug!("metrics connection took too long");
            }
        });
    }
}

async fn serve_one(stream: impl AsyncRead + AsyncWrite + Unpin, registry: &Registry) {
    let answer = service_fn(|request| {
        let response = respond(&request, registry);
        async { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIMEOUT)
        .max_buf_size(16 * 1024)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = served.await {
        debug!(%error, "metrics connection");
    }
}

fn respond(request: &Request<Incoming>, registry: &Registry) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if request.method() != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "try /metrics\n");
    }
    let mut text = String::new();
    if prometheus_client::encoding::text::encode(&mut text, registry).is_err() {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n");
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests;
