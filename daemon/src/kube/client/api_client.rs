//! One purpose's own connection to the API server.
//!
//! The lease writer, the watches and the other writes have a client each, so that what
//! stalls one does not delay the others: connections are never shared between lanes,
//! and each moves to the next endpoint by itself. HTTP/1 gives every request under way
//! its own connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use kube::Client;
use kube::client::ClientBuilder;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use tower::util::MapRequestLayer;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::kube::client::api_access::{AccessError, ApiAccess, ApiEndpoint};
use crate::kube::client::bearer_token::BearerToken;
use crate::kube::client::failure_log::FailureLog;
use crate::kube::client::request_error::RequestError;
use crate::kube::counters::KubeCounters;

/// Credentials that were refused are read again, but not in a tight loop.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ApiClient {
    name: &'static str,
    access: Arc<ApiAccess>,
    counters: Arc<KubeCounters>,
    state: Mutex<ClientState>,
}

struct ClientState {
    endpoints: Vec<ApiEndpoint>,
    /// One per endpoint, made when it is first needed: reading keys and certificates and
    /// setting up TLS is nothing to do for every answer that says 503.
    clients: Vec<Option<Client>>,
    at: usize,
    /// Changes with the client, so that one failure seen by many moves us once.
    generation: u64,
    client: Client,
    /// Of the files the endpoints were read from.
    stamp: Vec<Option<(SystemTime, u64)>>,
    reloaded: Option<Instant>,
    failures: FailureLog,
}

impl std::fmt::Debug for ClientState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("at", &self.at).field("epoch", &self.generation).finish_non_exhaustive()
    }
}

/// The connection of the moment.
#[derive(Clone)]
pub(crate) struct ApiConnection {
    pub(crate) client: Client,
    generation: u64,
}

impl ApiClient {
    pub(crate) async fn open(
        name: &'static str,
        access: Arc<ApiAccess>,
        counters: Arc<KubeCounters>,
    ) -> Result<Self, AccessError> {
        let endpoints = access.endpoints().await?;
        let client = build_client(&endpoints[0], &counters)?;
        let stamp = access.stamp(&endpoints);
        let state = ClientState {
            clients: only_first(&client, &endpoints),
            endpoints,
            at: 0,
            generation: 0,
            client,
            stamp,
            reloaded: None,
            failures: FailureLog::default(),
        };
        Ok(Self { name, access, counters, state: Mutex::new(state) })
    }

    pub(crate) fn connection(&self) -> ApiConnection {
        let state = self.lock();
        ApiConnection { client: state.client.clone(), generation: state.generation }
    }

    pub(crate) fn endpoints(&self) -> usize {
        self.lock().endpoints.len()
    }

    pub(crate) fn counters(&self) -> &KubeCounters {
        &self.counters
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure and draws the conclusion: the next endpoint, a fresh connection,
    /// credentials read again.
    pub(crate) async fn request_failed(&self, connection: &ApiConnection, failure: &RequestError) {
        failure.count_in(&self.counters);
        if failure.code() == 401 {
            if let Some(token) = self.token() {
                token.refused();
            }
            self.reload(connection).await;
        } else if failure.is_endpoint_fault() {
            // A rotated authority shows as connections that fail, and in its file.
            if self.files_changed() {
                self.reload(connection).await;
            }
            self.switch_endpoint(connection, failure);
        }
    }

    fn files_changed(&self) -> bool {
        let state = self.lock();
        self.access.stamp(&state.endpoints) != state.stamp
    }

    /// The token we show, if it is one that we show.
    pub(crate) fn token(&self) -> Option<Arc<BearerToken>> {
        let state = self.lock();
        state.endpoints[state.at].token.clone()
    }

    /// When our client certificate ends, in seconds since 1970, and how long it lasts.
    pub(crate) fn certificate_expiry(&self) -> Option<(i64, i64)> {
        let state = self.lock();
        certificate_expiry(&state.endpoints[state.at].config)
    }

    /// To the next endpoint. Where there is only one, an answer of 5xx or a refused
    /// connection changes nothing: the next request connects by itself. After silence it
    /// gets a client of its own, since idle connections to it may be just as dead.
    fn switch_endpoint(&self, connection: &ApiConnection, failure: &RequestError) {
        let mut state = self.lock();
        if state.generation != connection.generation {
            return;
        }
        let (at, next) = (state.at, (state.at + 1) % state.endpoints.len());
        // One that answers, if only with 5xx, is kept. Idle connections to one that hangs would
        // hang as well when we come back to it; with nowhere else to go, only silence tells.
        let answers = matches!(failure, RequestError::Api { .. });
        if *failure == RequestError::Timeout || (next != at && !answers) {
            state.clients[at] = None;
        }
        if next == at && state.clients[at].is_some() {
            return;
        }
        let ready = state.clients[next]
            .clone()
            .map_or_else(|| build_client(&state.endpoints[next], &self.counters), Ok);
        match ready {
            Ok(client) => {
                let to = state.endpoints[next].config.cluster_url.clone();
                let error = failure.to_string();
                if next == at {
                    tracing::debug!(lane = self.name, %to, error, "API server silent, connecting anew");
                } else if state.failures.is_new(&error) {
                    tracing::warn!(lane = self.name, %to, error, "API server failed, trying the next");
                } else {
                    tracing::debug!(lane = self.name, %to, error, "API server failed, trying the next");
                }
                state.clients[next] = Some(client.clone());
                state.client = client;
            }
            Err(error) => tracing::warn!(lane = self.name, %error, "no client for the next API server"),
        }
        state.at = next;
        state.generation += 1;
        self.counters.failovers.add();
    }

    /// It answers: the next failure is news again.
    fn request_succeeded(&self) {
        self.lock().failures.recovered();
    }

    /// Client certificates and inline tokens may have been renewed in their files.
    async fn reload(&self, connection: &ApiConnection) {
        {
            let mut state = self.lock();
            let recent = state.reloaded.is_some_and(|at| at.elapsed() < RELOAD_INTERVAL);
            if state.generation != connection.generation || recent {
                return;
            }
            state.reloaded = Some(Instant::now());
        }
        match self.access.endpoints().await.and_then(|e| Ok((build_client(&e[0], &self.counters)?, e))) {
            Ok((mut client, mut endpoints)) => {
                let stamp = self.access.stamp(&endpoints);
                let mut state = self.lock();
                // Which token was refused is still known then.
                let former = state.endpoints[state.at].token.clone();
                let same = endpoints[0].token.as_ref().zip(former.as_ref());
                if same.is_some_and(|(new, old)| new.same_source(old)) {
                    endpoints.iter_mut().for_each(|e| e.token.clone_from(&former));
                    if let Ok(again) = build_client(&endpoints[0], &self.counters) {
                        client = again;
                    }
                }
                state.clients = only_first(&client, &endpoints);
                (state.client, state.endpoints, state.at) = (client, endpoints, 0);
                state.stamp = stamp;
                state.generation += 1;
                tracing::info!(lane = self.name, "credentials were read again");
            }
            Err(error) => {
                tracing::warn!(lane = self.name, %error, "credentials refused, and no others found");
            }
        }
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
        by: Instant,
    ) -> Result<T, RequestError> {
        let text = self.request_text(request, by).await?;
        serde_json::from_str(&text).map_err(|e| RequestError::Unreadable(e.to_string()))
    }

    /// Sends a request and gives the answer as it came.
    pub(crate) async fn request_text(
        &self,
        request: http::Request<Vec<u8>>,
        by: Instant,
    ) -> Result<String, RequestError> {
        let connection = self.connection();
        self.counters.requests.add();
        let answer = match timeout_at(by, connection.client.request_text(request)).await {
            Ok(answer) => answer.map_err(RequestError::from),
            Err(_) => Err(RequestError::Timeout),
        };
        match &answer {
            Ok(_) => self.request_succeeded(),
            Err(failure) => self.request_failed(&connection, failure).await,
        }
        answer
    }
}

fn only_first(client: &Client, endpoints: &[ApiEndpoint]) -> Vec<Option<Client>> {
    let mut clients = vec![None; endpoints.len()];
    if let Some(first) = clients.first_mut() {
        *first = Some(client.clone());
    }
    clients
}

fn build_client(endpoint: &ApiEndpoint, counters: &KubeCounters) -> Result<Client, AccessError> {
    counters.clients_made.add();
    let builder = ClientBuilder::try_from(endpoint.config.clone());
    let builder = builder.map_err(|e| AccessError::Client(Box::new(e)))?;
    let Some(token) = endpoint.token.clone() else { return Ok(builder.build()) };
    let authorize = MapRequestLayer::new(move |mut request: http::Request<_>| {
        request.headers_mut().insert(http::header::AUTHORIZATION, token.header());
        request
    });
    Ok(builder.with_layer(&authorize).build())
}

fn certificate_expiry(config: &kube::Config) -> Option<(i64, i64)> {
    let user = &config.auth_info;
    let pem = match (&user.client_certificate_data, &user.client_certificate) {
        (Some(data), _) => serde_json::from_value::<ByteString>(data.clone().into()).ok()?.0,
        (None, Some(path)) => std::fs::read(path).ok()?,
        (None, None) => return None,
    };
    let der = CertificateDer::pem_slice_iter(&pem).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let validity = certificate.validity();
    let ends = validity.not_after.timestamp();
    Some((ends, ends.saturating_sub(validity.not_before.timestamp())))
}
