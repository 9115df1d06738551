//! One purpose's own way to the API server.
//!
//! The lease writer, the watches and the other writes have a lane each, so that what
//! stalls one does not delay the others: connections are never shared between lanes,
//! and each moves to the next endpoint by itself. HTTP/1 gives every request under way
//! its own connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::client::ClientBuilder;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use tower::util::MapRequestLayer;

use super::access::{Access, AccessError, Endpoint, TokenFile};
use super::counters::Counters;
use super::failure::Failure;

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
    at: usize,
    /// Changes with the client, so that one failure seen by many moves us once.
    epoch: u64,
    client: Client,
    reloaded: Option<Instant>,
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
        let client = connect(&endpoints[0])?;
        let state = Mutex::new(State { endpoints, at: 0, epoch: 0, client, reloaded: None });
        Ok(Self { name, access, counters, state })
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
            self.reload(way).await;
        } else if failure.blames_the_endpoint() {
            self.move_on(way, failure);
        }
    }

    fn move_on(&self, way: &Way, failure: &Failure) {
        let mut state = self.lock();
        if state.epoch != way.epoch {
            return;
        }
        let next = (state.at + 1) % state.endpoints.len();
        match connect(&state.endpoints[next]) {
            Ok(client) => {
                if next != state.at {
                    let to = &state.endpoints[next].config.cluster_url;
                    tracing::warn!(lane = self.name, %to, error = %failure, "API server failed, trying the next");
                }
                state.client = client;
            }
            Err(error) => tracing::warn!(lane = self.name, %error, "no client for the next API server"),
        }
        state.at = next;
        state.epoch += 1;
        self.counters.failovers.add();
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
        match self.access.endpoints().await.and_then(|e| Ok((connect(&e[0])?, e))) {
            Ok((client, endpoints)) => {
                let mut state = self.lock();
                (state.client, state.endpoints, state.at) = (client, endpoints, 0);
                state.epoch += 1;
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
        if let Err(failure) = &answer {
            self.failed(&way, failure).await;
        }
        answer
    }
}

fn connect(endpoint: &Endpoint) -> Result<Client, AccessError> {
    let builder = ClientBuilder::try_from(endpoint.config.clone());
    let builder = builder.map_err(|e| AccessError::Client(Box::new(e)))?;
    let Some(path) = &endpoint.token_file else { return Ok(builder.build()) };
    let token = Arc::new(TokenFile::open(path.clone())?);
    let authorize = MapRequestLayer::new(move |mut request: http::Request<_>| {
        request.headers_mut().insert(http::header::AUTHORIZATION, token.header());
        request
    });
    Ok(builder.with_layer(&authorize).build())
}
