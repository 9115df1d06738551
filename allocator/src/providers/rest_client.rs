//! A small JSON client: TLS by the system's certificates, timeouts, retries where
//! asking twice does no harm.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::ProviderError;

const WITHIN: Duration = Duration::from_secs(10);
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// No answer of a page of addresses is near this.
const LARGEST: usize = 16 << 20;

/// An answer's code and body.
pub(super) type Answer = (StatusCode, Value);

/// Trusts the system's certificates, and these.
pub(super) fn trusting(more: &[CertificateDer<'static>]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    // A certificate that cannot be read is one less to trust, no reason to stop.
    let (_taken, _ignored) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let (_taken, _ignored) = roots.add_parsable_certificates(more.iter().cloned());
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[derive(Clone, Debug)]
pub(super) struct Rest {
    base: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Rest {
    pub(super) fn new(base: &str, tls: ClientConfig) -> Self {
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { base: base.trim_end_matches('/').to_owned(), client }
    }

    /// Asks, again where that is safe. Answers below 500 are the caller's to judge.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Result<Answer, ProviderError> {
        let tries = if method == Method::POST { 1 } else { TRIES };
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let answer = match timeout(WITHIN, self.once(&method, path, token, body)).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer within {WITHIN:?}")),
            };
            let why = match answer {
                Ok((code, body)) if !code.is_server_error() => return Ok((code, body)),
                Ok((code, _)) => format!("it answers {code}"),
                Err(why) => why,
            };
            if attempt >= tries {
                return Err(ProviderError::Unreachable(format!("{}: {why}", self.base)));
            }
            attempt += 1;
            sleep(pause).await;
            pause *= 2;
        }
    }

    async fn once(
        &self,
        method: &Method,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Result<Answer, String> {
        let bytes = body.map(|b| Bytes::from(b.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("Authorization", format!("Token {token}"))
            .header("Accept", "application/json")
            .header("Content-Type", "application/json")
            .body(Full::new(bytes))
            .map_err(|e| format!("the token or the address cannot be sent: {e}"))?;
        let answer = self.client.request(request).await.map_err(|e| deepest(&e))?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST).collect().await.map_err(|e| e.to_string())?;
        let bytes = body.to_bytes();
        if bytes.is_empty() {
            return Ok((code, Value::Null));
        }
        let parsed = serde_json::from_slice(&bytes);
        match parsed {
            Ok(value) => Ok((code, value)),
            Err(_) if !code.is_success() => Ok((code, Value::Null)),
            Err(e) => Err(format!("it does not answer JSON: {e}")),
        }
    }
}

fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
