//! A server that follows NetBox's published REST API as far as an address book needs
//! it: ip-addresses, prefixes and ip-ranges with their filters and pages,
//! `available-ips`, tokens, and its ways of saying no. With or without TLS.

mod store;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

use crate::controlplane::LabCa;
use store::Unavailable;
pub use store::{Address, Store};

type Filters = std::collections::HashMap<String, String>;

#[derive(Clone, Debug)]
struct Shared {
    store: Arc<Mutex<Store>>,
    token: String,
}

/// A running server; ends with the value.
#[derive(Debug)]
pub struct NetboxServer {
    address: SocketAddr,
    tls: bool,
    shared: Shared,
    _stop: DropGuard,
}

impl NetboxServer {
    /// Serves this content to whoever has the token.
    pub async fn start(store: Store, token: &str) -> Result<Self> {
        Self::start_with(store, token, None).await
    }

    /// The same over TLS, with a certificate of this authority.
    pub async fn start_tls(store: Store, token: &str, ca: &LabCa) -> Result<Self> {
        let identity = ca.serving(&["127.0.0.1".into()])?;
        let chain =
            CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Self::start_with(store, token, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start_with(store: Store, token: &str, tls: Option<TlsAcceptor>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen for NetBox")?;
        let address = listener.local_addr()?;
        let shared = Shared { store: Arc::new(Mutex::new(store)), token: token.to_owned() };
        let stop = CancellationToken::new();
        let (router, ended, encrypted) = (router(shared.clone()), stop.clone(), tls.is_some());
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = ended.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((stream, _)) = accepted else { continue };
                let (router, tls, ended) = (router.clone(), tls.clone(), ended.clone());
                tokio::spawn(async move {
                    let serve = async {
                        match tls {
                            None => connection(TokioIo::new(stream), router).await,
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    connection(TokioIo::new(stream), router).await;
                                }
                            }
                        }
                    };
                    tokio::select! { () = ended.cancelled() => {}, () = serve => {} }
                });
            }
        });
        Ok(Self { address, tls: encrypted, shared, _stop: stop.drop_guard() })
    }

    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }

    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.shared.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connection<S>(stream: TokioIo<S>, router: Router)
where
    TokioIo<S>: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        router.clone().oneshot(request.map(Body::new))
    });
    drop(http1::Builder::new().serve_connection(stream, service).await);
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/api/ipam/ip-addresses/", get(list_addresses).post(create_address))
        .route("/api/ipam/ip-addresses/{id}/", patch(change_address).delete(delete_address))
        .route("/api/ipam/{kind}/", get(list_parents))
        .route("/api/ipam/{kind}/{id}/available-ips/", post(take_available))
        .with_state(shared)
}

fn refuse(code: StatusCode, detail: &str) -> Response {
    (code, axum::Json(json!({ "detail": detail }))).into_response()
}

impl Shared {
    /// The same for what changes something.
    fn enter_to_write(&self, headers: &HeaderMap) -> Result<MutexGuard<'_, Store>, Box<Response>> {
        let mut store = self.enter(headers)?;
        if store.read_only {
            store.refused += 1;
            let why = "You do not have permission to perform this action.";
            return Err(Box::new(refuse(StatusCode::FORBIDDEN, why)));
        }
        Ok(store)
    }

    fn enter(&self, headers: &HeaderMap) -> Result<MutexGuard<'_, Store>, Box<Response>> {
        let given = headers.get("Authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        if given != format!("Token {}", self.token) {
            return Err(Box::new(refuse(StatusCode::FORBIDDEN, "Invalid token")));
        }
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.failures > 0 {
            store.failures -= 1;
            return Err(Box::new(refuse(StatusCode::SERVICE_UNAVAILABLE, "maintenance")));
        }
        Ok(store)
    }
}

/// Pages as NetBox makes them.
fn page(all: Vec<Value>, filters: &Filters) -> Response {
    let number =
        |name: &str, otherwise: usize| filters.get(name).and_then(|t| t.parse().ok()).unwrap_or(otherwise);
    let (limit, offset, count) = (number("limit", 50).min(1000), number("offset", 0), all.len());
    let results: Vec<Value> = all.into_iter().skip(offset).take(limit).collect();
    let next = (offset + results.len() < count).then(|| format!("?limit={limit}&offset={}", offset + limit));
    axum::Json(json!({"count": count, "next": next, "previous": null, "results": results})).into_response()
}

async fn list_addresses(State(s): State<Shared>, headers: HeaderMap, Query(f): Query<Filters>) -> Response {
    match s.enter(&headers) {
        Err(refused) => *refused,
        Ok(store) => page(store.addresses(&f), &f),
    }
}

async fn list_parents(
    State(s): State<Shared>,
    headers: HeaderMap,
    Path(kind): Path<String>,
    Query(f): Query<Filters>,
) -> Response {
    match s.enter(&headers) {
        Err(refused) => *refused,
        Ok(store) => match store.parents(&kind, &f) {
            Some(found) => page(found, &f),
            None => refuse(StatusCode::NOT_FOUND, "Not found."),
        },
    }
}

async fn create_address(
    State(s): State<Shared>,
    headers: HeaderMap,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    match s.enter_to_write(&headers) {
        Err(refused) => *refused,
        Ok(mut store) => match store.create(&body) {
            Ok(made) => (StatusCode::CREATED, axum::Json(made)).into_response(),
            Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
        },
    }
}

async fn change_address(
    State(s): State<Shared>,
    headers: HeaderMap,
    Path(id): Path<u64>,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    match s.enter_to_write(&headers) {
        Err(refused) => *refused,
        Ok(mut store) => match store.change(id, &body) {
            Some(now) => axum::Json(now).into_response(),
            None => refuse(StatusCode::NOT_FOUND, "Not found."),
        },
    }
}

async fn delete_address(State(s): State<Shared>, headers: HeaderMap, Path(id): Path<u64>) -> Response {
    match s.enter_to_write(&headers) {
        Err(refused) => *refused,
        Ok(mut store) => match store.delete(id) {
            true => StatusCode::NO_CONTENT.into_response(),
            false => refuse(StatusCode::NOT_FOUND, "Not found."),
        },
    }
}

async fn take_available(
    State(s): State<Shared>,
    headers: HeaderMap,
    Path((kind, id)): Path<(String, u64)>,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    match s.enter_to_write(&headers) {
        Err(refused) => *refused,
        Ok(mut store) => match store.take_available(&kind, id, &body) {
            Ok(made) => (StatusCode::CREATED, axum::Json(made)).into_response(),
            Err(Unavailable::NotFound) => refuse(StatusCode::NOT_FOUND, "Not found."),
            Err(Unavailable::Full) => refuse(
                StatusCode::CONFLICT,
                "An insufficient number of IP addresses are available within the parent (0 available, 1 requested)",
            ),
            Err(Unavailable::Invalid(why)) => refuse(StatusCode::BAD_REQUEST, &why),
        },
    }
}
