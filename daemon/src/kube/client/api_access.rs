//! Who we are to the API server, and where it is.
//!
//! Several endpoints of one cluster may be given. They come from the setting `servers`,
//! or from the kubeconfig: contexts with the user of the current one, whose cluster has
//! the same certificate authority, lead to the same cluster. Any other context may be
//! another cluster altogether and is never tried.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use thiserror::Error;

use crate::kube::client::bearer_token::{BearerToken, GivenToken};

/// A server that does not take a connection in this time is as good as away: with two
/// of them a renewal still reaches the other well before the renew deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("purelbd/", env!("CARGO_PKG_VERSION"));

/// How to reach the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiAccess {
    pub credentials: Credentials,
    /// Endpoints of the one API, tried in this order. Empty: as the kubeconfig says.
    pub servers: Vec<String>,
    /// Where a token that we asked for ourselves is kept; `None`: none is asked for.
    pub own_token: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A file, or `KUBECONFIG` and then `~/.kube/config`. Tokens, token files and client
    /// certificates are taken from it.
    Kubeconfig { path: Option<PathBuf>, context: Option<String> },
    /// A token that somebody keeps fresh in a file, and the authority that signed the
    /// server's certificate.
    Token { token_file: PathBuf, ca_file: Option<PathBuf> },
}

impl ApiAccess {
    pub fn kubeconfig(path: impl Into<PathBuf>) -> Self {
        let credentials = Credentials::Kubeconfig { path: Some(path.into()), context: None };
        Self { credentials, servers: Vec::new(), own_token: None }
    }
}

#[derive(Debug, Error)]
pub enum AccessError {
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    #[error("API server address {address:?}: {source}; give one such as https://192.0.2.1:6443")]
    Address { address: String, source: http::uri::InvalidUri },
    #[error("API server address {0:?} names no scheme and host; give one such as https://192.0.2.1:6443")]
    NoHost(String),
    #[error("a token file needs the list of API servers: set `servers`")]
    NoServers,
    #[error(
        "the kubeconfig's cluster has insecure-skip-tls-verify; name its certificate-authority instead: \
         whoever can pretend to be the API server can take every address"
    )]
    Unverified,
    #[error("token file {path}: {source}")]
    TokenFile { path: PathBuf, source: std::io::Error },
    #[error("API client: {0}")]
    Client(#[source] Box<kube::Error>),
}

impl From<KubeconfigError> for AccessError {
    fn from(error: KubeconfigError) -> Self {
        Self::Kubeconfig(Box::new(error))
    }
}

/// One connection to the API server.
#[derive(Clone, Debug)]
pub(crate) struct ApiEndpoint {
    pub(crate) config: kube::Config,
    /// Without one there is a client certificate, or nothing.
    pub(crate) token: Option<Arc<BearerToken>>,
}

impl ApiAccess {
    /// Reads everything anew; at least one endpoint.
    pub(crate) async fn endpoints(&self) -> Result<Vec<ApiEndpoint>, AccessError> {
        let mut found = match &self.credentials {
            Credentials::Kubeconfig { path, context } => {
                let kubeconfig = match path {
                    Some(path) => Kubeconfig::read_from(path)?,
                    None => Kubeconfig::read()?,
                };
                self.kubeconfig_endpoints(&kubeconfig, context.as_deref()).await?
            }
            Credentials::Token { token_file, ca_file } => {
                if self.servers.is_empty() {
                    return Err(AccessError::NoServers);
                }
                let token = self.token(GivenToken::File(token_file.clone()))?;
                let mut endpoints = Vec::new();
                for server in &self.servers {
                    let mut config = kube::Config::new(address(server)?);
                    config.root_cert_file.clone_from(ca_file);
                    endpoints.push(ApiEndpoint { config, token: Some(token.clone()) });
                }
                endpoints
            }
        };
        for endpoint in &mut found {
            set_limits(endpoint)?;
        }
        Ok(found)
    }

    async fn kubeconfig_endpoints(
        &self,
        kubeconfig: &Kubeconfig,
        context: Option<&str>,
    ) -> Result<Vec<ApiEndpoint>, AccessError> {
        let mut options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
        let first = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await?;
        let mut configs = vec![first.clone()];
        if self.servers.is_empty() {
            for cluster in other_endpoints(kubeconfig, context) {
                options.cluster = Some(cluster);
                configs.push(kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await?);
            }
        } else {
            configs.clear();
            for server in &self.servers {
                let mut config = first.clone();
                config.cluster_url = address(server)?;
                configs.push(config);
            }
        }
        // We read it ourselves: see `token`.
        let given = first.auth_info.token_file.clone().map(|path| GivenToken::File(path.into()));
        let given = inline_token(&first).map(GivenToken::Inline).or(given);
        let token = given.map(|given| self.token(given)).transpose()?;
        Ok(configs
            .into_iter()
            .map(|mut config| {
                (config.auth_info.token_file, config.auth_info.token) = (None, None);
                ApiEndpoint { config, token: token.clone() }
            })
            .collect())
    }

    fn token(&self, given: GivenToken) -> Result<Arc<BearerToken>, AccessError> {
        BearerToken::open(given, self.own_token.clone()).map(Arc::new)
    }

    /// What tells that one of our files was replaced, also through a symbolic link.
    pub(crate) fn stamp(&self, endpoints: &[ApiEndpoint]) -> Vec<Option<(SystemTime, u64)>> {
        let mut files: Vec<PathBuf> = match &self.credentials {
            Credentials::Kubeconfig { path, .. } => path.iter().cloned().collect(),
            Credentials::Token { ca_file, .. } => ca_file.iter().cloned().collect(),
        };
        for endpoint in endpoints {
            let user = &endpoint.config.auth_info;
            files.extend(endpoint.config.root_cert_file.clone());
            files.extend(
                [&user.client_certificate, &user.client_key].into_iter().flatten().map(PathBuf::from),
            );
        }
        if let Credentials::Kubeconfig { path: Some(path), .. } = &self.credentials {
            files.extend(authority_files(path));
        }
        let stamp = |path: &PathBuf| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        };
        files.iter().map(stamp).collect()
    }
}

/// The token inside a kubeconfig.
fn inline_token(config: &kube::Config) -> Option<String> {
    let user = serde_json::to_value(&config.auth_info).ok()?;
    user["token"].as_str().map(str::to_owned)
}

/// Files with certificate authorities that a kubeconfig names.
fn authority_files(path: &Path) -> Vec<PathBuf> {
    let Ok(read) = Kubeconfig::read_from(path) else { return Vec::new() };
    let clusters = read.clusters.into_iter().filter_map(|named| named.cluster);
    clusters.filter_map(|cluster| cluster.certificate_authority).map(PathBuf::from).collect()
}

/// Names of clusters that other contexts of the same user lead to and that have the
/// same authority as the chosen one.
fn other_endpoints(kubeconfig: &Kubeconfig, context: Option<&str>) -> Vec<String> {
    let cluster_of = |name: &str| -> Option<&Cluster> {
        kubeconfig.clusters.iter().find(|c| c.name == name).and_then(|c| c.cluster.as_ref())
    };
    let authority = |c: &Cluster| {
        let given = (c.certificate_authority_data.clone(), c.certificate_authority.clone());
        (given != (None, None)).then_some(given)
    };
    let Some(chosen) = context.or(kubeconfig.current_context.as_deref()) else { return Vec::new() };
    let mut contexts = kubeconfig.contexts.iter();
    let Some(ours) = contexts.find(|c| c.name == chosen).and_then(|c| c.context.as_ref()) else {
        return Vec::new();
    };
    let Some(ca) = cluster_of(&ours.cluster).and_then(authority) else { return Vec::new() };
    let mut names: Vec<String> = Vec::new();
    for other in kubeconfig.contexts.iter().filter_map(|c| c.context.as_ref()) {
        let new = other.cluster != ours.cluster && !names.contains(&other.cluster);
        let same = cluster_of(&other.cluster).and_then(authority).as_ref() == Some(&ca);
        if new && same && other.user == ours.user {
            names.push(other.cluster.clone());
        }
    }
    names
}

fn address(text: &str) -> Result<http::Uri, AccessError> {
    let uri: http::Uri =
        text.parse().map_err(|source| AccessError::Address { address: text.to_owned(), source })?;
    if uri.scheme().is_none() || uri.host().is_none() {
        return Err(AccessError::NoHost(text.to_owned()));
    }
    Ok(uri)
}

/// What is the same for all, however they were found.
fn set_limits(endpoint: &mut ApiEndpoint) -> Result<(), AccessError> {
    let config = &mut endpoint.config;
    if config.accept_invalid_certs {
        return Err(AccessError::Unverified);
    }
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    // Watches are silent for long: their own idle limit ends them.
    config.read_timeout = None;
    // A retry below us would hide failures that must count, and send late.
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
    Ok(())
}

#[cfg(test)]
mod tests;
