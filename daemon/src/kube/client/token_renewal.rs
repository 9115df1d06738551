//! Asks for the next token before this one ends, as kubelets do.
//!
//! A token of a year on every node ends on every node on the same day. So each daemon asks
//! for its own next one, of the same account, bound to the same Node and for as long, when
//! four fifths of its time are over. The cluster's policy lets it ask for nothing else. What
//! it cannot renew (a client certificate, a token that is not bound) it watches, and says
//! when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use purelb_api::kubeconfig::token_request;
use purelb_core::NodeName;
use tokio::time::Instant;

use crate::kube::client::api_client::ApiClient;
use crate::kube::client::bearer_token::{BearerToken, NamedObject, TokenClaims};
use crate::kube::tuning::KubeTuning;

/// Nobody asks for more, whatever the first token had.
const LONGEST_LIFETIME: i64 = 366 * 24 * 3600;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries that failed, at least and at most.
const RETRY_LEAST: Duration = Duration::from_secs(10);
const RETRY_MOST: Duration = Duration::from_secs(3600);

/// When our credentials for the API server end, for whoever asks.
#[derive(Debug, Default)]
pub struct CredentialExpiry {
    /// Seconds since 1970; 0: they do not say.
    expires: AtomicI64,
    lifetime: AtomicI64,
    /// Why the next ones could not be had.
    trouble: ArcSwapOption<String>,
}

impl CredentialExpiry {
    /// Seconds since 1970 at which they end, and how long they last in all.
    pub fn get(&self) -> Option<(i64, i64)> {
        let (expires, lifetime) =
            (self.expires.load(Ordering::Relaxed), self.lifetime.load(Ordering::Relaxed));
        (expires != 0).then_some((expires, lifetime))
    }

    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    pub(crate) fn set(&self, expires: i64, lifetime: i64) {
        self.expires.store(expires, Ordering::Relaxed);
        self.lifetime.store(lifetime, Ordering::Relaxed);
    }
}

pub(crate) struct TokenRenewal {
    pub(crate) node: NodeName,
    pub(crate) client: Arc<ApiClient>,
    pub(crate) tuning: KubeTuning,
}

impl TokenRenewal {
    pub(crate) async fn run(self) {
        let mut failures = 0_u32;
        loop {
            let pause = match self.renew_if_due().await {
                Ok(()) => {
                    failures = 0;
                    self.expiry().trouble.store(None);
                    self.tuning.token_look
                }
                Err(why) => {
                    failures += 1;
                    tracing::warn!(%why, "the next token for the API server could not be had; trying again");
                    self.expiry().trouble.store(Some(Arc::new(why)));
                    (RETRY_LEAST * 2_u32.saturating_pow(failures.min(12))).min(RETRY_MOST)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn expiry(&self) -> &CredentialExpiry {
        &self.client.counters().credentials
    }

    /// Looks at what we have, and asks for the next if it is time.
    async fn renew_if_due(&self) -> Result<(), String> {
        let Some(token) = self.client.token() else {
            let (expires, lifetime) = self.client.certificate_expiry().unwrap_or_default();
            self.expiry().set(expires, lifetime);
            return Ok(());
        };
        let Some(claims) = token.claims() else {
            self.expiry().set(0, 0);
            return Ok(());
        };
        self.expiry().set(claims.expires, claims.lifetime());
        if !is_due(&claims, now(), self.tuning.token_share) || !token.renewable() {
            return Ok(());
        }
        let Some(node) = claims.subject.node.clone() else {
            return Err("it is not bound to a Node: make one that is with `purelbctl node-kubeconfig`".into());
        };
        if node.name != self.node.as_str() {
            return Err(format!("it is bound to Node {}, and this is {}", node.name, self.node));
        }
        let next = self.request_token(&claims, node).await?;
        self.store_token(&token, &claims, &next)
    }

    async fn request_token(&self, claims: &TokenClaims, node: NamedObject) -> Result<String, String> {
        let metadata = ObjectMeta { name: Some(node.name), uid: Some(node.uid), ..ObjectMeta::default() };
        let node = Node { metadata, ..Node::default() };
        let body = token_request(&node, claims.lifetime().min(LONGEST_LIFETIME));
        let about = &claims.subject;
        let accounts = ServiceAccount::url_path(&(), Some(&about.namespace));
        let request = http::Request::post(format!("{accounts}/{}/token", about.serviceaccount.name))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&body).map_err(|e| e.to_string())?)
            .map_err(|e| e.to_string())?;
        let answer: Result<TokenRequest, _> =
            self.client.request(request, Instant::now() + REQUEST_TIMEOUT).await;
        let status = answer.map_err(|e| e.to_string())?.status;
        status.and_then(|s| s.token).ok_or_else(|| "the API server answered without a token".to_owned())
    }

    fn store_token(&self, token: &BearerToken, before: &TokenClaims, next: &str) -> Result<(), String> {
        let Some(claims) = TokenClaims::of(next).filter(|c| c.expires > before.expires) else {
            return Err("the API server gives none that lasts longer".to_owned());
        };
        token.store_own(next).map_err(|e| format!("it cannot be kept: {e}"))?;
        self.expiry().set(claims.expires, claims.lifetime());
        let (hours, former) = (claims.lifetime() / 3600, before.lifetime() / 3600);
        if hours < former {
            tracing::warn!(hours, former, "the next token for the API server lasts less than this one did");
        } else {
            tracing::info!(hours, "the next token for the API server is there");
        }
        Ok(())
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// So much of its time (in percent) is over.
fn is_due(claims: &TokenClaims, now: i64, share: u8) -> bool {
    let gone = now.saturating_sub(claims.issued);
    i128::from(gone) * 100 >= i128::from(claims.lifetime()) * i128::from(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_when_a_fifth_is_left() {
        let claims: TokenClaims =
            serde_json::from_value(serde_json::json!({"iat": 1000, "exp": 2000})).unwrap();
        assert!(!is_due(&claims, 1799, 80));
        assert!(is_due(&claims, 1800, 80));
        assert!(is_due(&claims, 9000, 80), "too late is no reason not to try");
        assert!(!is_due(&claims, 500, 80), "a clock that is behind");
        assert!(is_due(&claims, 1000, 0));
    }
}
