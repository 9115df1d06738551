//! One purpose's own way to the API server.
//!
//! The lease writer, the watches and the other writes have a lane each, so that what
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

use super::access::{Access, AccessError, Endpoint};
use super::counters::Counters;
use super::failure::Failure;
use super::token::Token;
use super::trouble::Trouble;

/// Credentials that were refused are read again, but not in a tight loop.
const RELOAD_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Lane {
    name: &'static str,
    access: Arc<Access>,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

struct State {
    endpoints: Vec<Endpoint>,
    /// One per endpoint, made when it is first needed: reading keys and certificates and
    /// setting up TLS is nothing to do for every answer that says 503.
    clients: Vec<Option<Client>>,
    at: usize,
    /// Changes with the client, so that one failure seen by many moves us once.
    epoch: u64,
    client: Client,
    /// Of the files the endpoints were read from.
    stamp: Vec<Option<(SystemTime, u64)>>,
    reloaded: Option<Instant>,
    trouble: Trouble,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("at", &self.at).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The way of the moment.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) client: Client,
    epoch: u64,
}

impl Lane {
    pub(crate) async fn open(
        name: &'static str,
        access: Arc<Access>,
        counters: Arc<Counters>,
    ) -> Result<Self, AccessError> {
        let endpoints = access.endpoints().await?;
        let client = connect(&endpoints[0], &counters)?;
        let stamp = access.stamp(&endpoints);
        let state = State {
            clients: of_first(&client, &endpoints),
            endpoints,
            at: 0,
            epoch: 0,
            client,
            stamp,
            reloaded: None,
            trouble: Trouble::default(),
        };
        Ok(Self { name, access, counters, state: Mutex::new(state) })
    }

    pub(crate) fn way(&self) -> Way {
        let state = self.lock();
        Way { client: state.client.clone(), epoch: state.epoch }
    }

    pub(crate) fn endpoints(&self) -> usize {
        self.lock().endpoints.len()
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure and draws the conclusion: the next endpoint, a fresh connection,
    /// credentials read again.
    pub(crate) async fn failed(&self, way: &Way, failure: &Failure) {
        failure.count(&self.counters);
        if failure.code() == 401 {
            if let Some(token) = self.token() {
                token.refused();
            }
            self.reload(way).await;
        } else if failure.blames_the_endpoint() {
            // A rotated authority shows as connections that fail, and in its file.
            if self.files_changed() {
                self.reload(way).await;
            }
            self.move_on(way, failure);
        }
    }

    fn files_changed(&self) -> bool {
        let state = self.lock();
        self.access.stamp(&state.endpoints) != state.stamp
    }

    /// The token we show, if it is one that we show.
    pub(crate) fn token(&self) -> Option<Arc<Token>> {
        let state = self.lock();
        state.endpoints[state.at].token.clone()
    }

    /// When our client certificate ends, in seconds since 1970, and how long it lasts.
    pub(crate) fn certificate_ends(&self) -> Option<(i64, i64)> {
        let state = self.lock();
        certificate_ends(&state.endpoints[state.at].config)
    }

    /// To the next endpoint. Where there is only one, an answer of 5xx or a refused
    /// connection changes nothing: the next request connects by itself. After silence it
    /// gets a client of its own, since idle connections to it may be just as dead.
    fn move_on(&self, way: &Way, failure: &Failure) {
        let mut state = self.lock();
        if state.epoch != way.epoch {
            return;
        }
        let (at, next) = (state.at, (state.at + 1) % state.endpoints.len());
        // One that answers, if only with 5xx, is kept. Idle connections to one that hangs would
        // hang as well when we come back to it; with nowhere else to go, only silence tells.
        let answers = matches!(failure, Failure::Api { .. });
        if *failure == Failure::Timeout || (next != at && !answers) {
            state.clients[at] = None;
        }
        if next == at && state.clients[at].is_some() {
            return;
        }
        let ready =
            state.clients[next].clone().map_or_else(|| connect(&state.endpoints[next], &self.counters), Ok);
        match ready {
            Ok(client) => {
                let to = state.endpoints[next].config.cluster_url.clone();
                let error = failure.to_string();
                if next == at {
                    tracing::debug!(lane = self.name, %to, error, "API server silent, connecting anew");
                } else if state.trouble.is_news(&error) {
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
        state.epoch += 1;
        self.counters.failovers.add();
    }

    /// It answers: the next failure is news again.
    fn answered(&self) {
        self.lock().trouble.over();
    }

    /// Client certificates and inline tokens may have been renewed in their files.
    async fn reload(&self, way: &Way) {
        {
            let mut state = self.lock();
            let recent = state.reloaded.is_some_and(|at| at.elapsed() < RELOAD_EVERY);
            if state.epoch != way.epoch || recent {
                return;
            }
            state.reloaded = Some(Instant::now());
        }
        match self.access.endpoints().await.and_then(|e| Ok((connect(&e[0], &self.counters)?, e))) {
            Ok((mut client, mut endpoints)) => {
                let stamp = self.access.stamp(&endpoints);
                let mut state = self.lock();
                // Which token was refused is still known then.
                let former = state.endpoints[state.at].token.clone();
                let same = endpoints[0].token.as_ref().zip(former.as_ref());
                if same.is_some_and(|(new, old)| new.same_source(old)) {
                    endpoints.iter_mut().for_each(|e| e.token.clone_from(&former));
                    if let Ok(again) = connect(&endpoints[0], &self.counters) {
                        client = again;
                    }
                }
                state.clients = of_first(&client, &endpoints);
                (state.client, state.endpoints, state.at) = (client, endpoints, 0);
                state.stamp = stamp;
                state.epoch += 1;
                tracing::info!(lane = self.name, "credentials were read again");
            }
            Err(error) => {
                tracing::warn!(lane = self.name, %error, "credentials refused, and no others found");
            }
        }
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
        by: Instant,
    ) -> Result<T, Failure> {
        let text = self.text(request, by).await?;
        serde_json::from_str(&text).map_err(|e| Failure::Unreadable(e.to_string()))
    }

    /// Sends a request and gives the answer as it came.
    pub(crate) async fn text(&self, request: http::Request<Vec<u8>>, by: Instant) -> Result<String, Failure> {
        let way = self.way();
        self.counters.requests.add();
        let answer = match timeout_at(by, way.client.request_text(request)).await {
            Ok(answer) => answer.map_err(Failure::from),
            Err(_) => Err(Failure::Timeout),
        };
        match &answer {
            Ok(_) => self.answered(),
            Err(failure) => self.failed(&way, failure).await,
        }
        answer
    }
}

fn of_first(client: &Client, endpoints: &[Endpoint]) -> Vec<Option<Client>> {
    let mut clients = vec![None; endpoints.len()];
    if let Some(first) = clients.first_mut() {
        *first = Some(client.clone());
    }
    clients
}

fn connect(endpoint: &Endpoint, counters: &Counters) -> Result<Client, AccessError> {
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

fn certificate_ends(config: &kube::Config) -> Option<(i64, i64)> {
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
