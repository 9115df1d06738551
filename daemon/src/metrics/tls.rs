//! TLS for the metrics, where it is asked for. Its files are looked at with every
//! connection, and read anew when they changed: a scraper comes every few seconds at
//! most, and whoever renews certificates need not tell us.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use crate::config::Metrics;

#[derive(Debug, Error)]
pub enum MetricsTlsError {
    #[error("metrics.{field} {}: {why}", path.display())]
    File { field: &'static str, path: PathBuf, why: String },
    #[error("metrics.certificate and metrics.key do not go together: {0}")]
    Pair(#[from] rustls::Error),
}

/// What tells that a file was replaced, also through a symbolic link.
type MetricsFileStamps = [Option<(SystemTime, u64)>; 3];

pub struct MetricsTls {
    settings: Metrics,
    stamp: Option<MetricsFileStamps>,
    /// The last good one.
    current: Option<Arc<ServerConfig>>,
}

impl MetricsTls {
    /// `None`: the metrics are served in the clear.
    pub fn of(settings: &Metrics) -> Option<Self> {
        let wanted = !settings.certificate.as_os_str().is_empty();
        wanted.then(|| Self { settings: settings.clone(), stamp: None, current: None })
    }

    /// For one connection. What was good stays until something better is there; without
    /// anything good nobody is served, least of all in the clear.
    pub fn acceptor(&mut self) -> Option<TlsAcceptor> {
        let stamp = self.stamp();
        if self.stamp != Some(stamp) {
            self.stamp = Some(stamp);
            match self.load() {
                Ok(config) => self.current = Some(Arc::new(config)),
                Err(error) if self.current.is_some() => {
                    warn!(%error, "the metrics' certificates are not usable; what was good before stays");
                }
                Err(error) => warn!(%error, "metrics are not served"),
            }
        }
        self.current.clone().map(TlsAcceptor::from)
    }

    fn stamp(&self) -> MetricsFileStamps {
        let Metrics { certificate, key, client_ca, .. } = &self.settings;
        [certificate, key, client_ca].map(|path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        })
    }

    fn load(&self) -> Result<ServerConfig, MetricsTlsError> {
        let Metrics { certificate, key, client_ca, .. } = &self.settings;
        let provider = Arc::new(ring::default_provider());
        let chain = certificates("certificate", certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong("key", key, e.to_string()))?;
        let verifier: Arc<dyn ClientCertVerifier> = if client_ca.as_os_str().is_empty() {
            WebPkiClientVerifier::no_client_auth()
        } else {
            let mut roots = RootCertStore::empty();
            for authority in certificates("client_ca", client_ca)? {
                roots.add(authority).map_err(|e| wrong("client_ca", client_ca, e.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            verifier.build().map_err(|e| wrong("client_ca", client_ca, e.to_string()))?
        };
        Ok(ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?)
    }
}

fn wrong(field: &'static str, path: &Path, why: String) -> MetricsTlsError {
    MetricsTlsError::File { field, path: path.to_owned(), why }
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, MetricsTlsError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|e| wrong(field, path, e.to_string()))?;
    if found.is_empty() {
        return Err(wrong(field, path, "there is no certificate in it".into()));
    }
    Ok(found)
}
