//! TLS 1.3 with client certificates, reloaded when its files change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tracing::{info, warn};

use super::roles;
use crate::config::Control;

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("control.{field} {}: {why}", path.display())]
    File { field: &'static str, path: PathBuf, why: String },
    #[error("control.certificate and control.key do not go together: {0}")]
    Pair(rustls::Error),
    #[error("control.client_ca {}: no client could be verified: {why}", path.display())]
    Verifier { path: PathBuf, why: String },
}

#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: PathBuf,
}

/// What tells that a file was replaced, also through a symbolic link.
type Stamp = [Option<(SystemTime, u64)>; 3];

pub struct Tls {
    files: Files,
    /// `None`: there was no usable certificate yet, and nobody gets in.
    current: ArcSwapOption<ServerConfig>,
    /// Why the files there are now are not in use.
    trouble: ArcSwapOption<String>,
    expires: AtomicI64,
    stamp: std::sync::Mutex<Option<Stamp>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Files that are not usable yet do not keep the daemon from its work: they are said
    /// to be wrong, and taken over once they are right.
    pub fn open(control: &Control) -> Self {
        let files = Files {
            certificate: control.certificate.clone(),
            key: control.key.clone(),
            client_ca: control.client_ca.clone(),
        };
        let tls = Self {
            files,
            current: ArcSwapOption::empty(),
            trouble: ArcSwapOption::empty(),
            expires: AtomicI64::new(i64::MAX),
            stamp: std::sync::Mutex::new(None),
        };
        tls.reload_if_changed();
        tls
    }

    /// For one handshake: later ones may get a newer one.
    pub fn config(&self) -> Option<Arc<ServerConfig>> {
        self.current.load_full()
    }

    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    /// Seconds since 1970 at which our own certificate ends.
    pub fn expires(&self) -> i64 {
        self.expires.load(Ordering::Relaxed)
    }

    /// Takes changed files over; what was good stays until the new ones are.
    pub fn reload_if_changed(&self) {
        let stamp = self.files.stamp();
        let mut seen = self.stamp.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *seen == Some(stamp) {
            return;
        }
        *seen = Some(stamp);
        match self.files.load() {
            Ok((config, expires)) => {
                self.current.store(Some(Arc::new(config)));
                self.trouble.store(None);
                self.expires.store(expires, Ordering::Relaxed);
                info!("the control API's certificates were read");
            }
            // Half replaced, most likely: the next change of a file brings us back here.
            Err(error) => {
                warn!(%error, "the control API's certificates are not usable; what was good before stays");
                self.trouble.store(Some(Arc::new(error.to_string())));
            }
        }
    }
}

impl Files {
    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key, &self.client_ca].map(|path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        })
    }

    fn load(&self) -> Result<(ServerConfig, i64), TlsError> {
        let chain = certificates("certificate", &self.certificate)?;
        let expires = chain.first().and_then(|c| roles::expires(c)).unwrap_or(i64::MAX);
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| TlsError::File {
            field: "key",
            path: self.key.clone(),
            why: e.to_string(),
        })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("client_ca", &self.client_ca)? {
            roots.add(authority).map_err(|e| TlsError::File {
                field: "client_ca",
                path: self.client_ca.clone(),
                why: e.to_string(),
            })?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let verifier =
            verifier.map_err(|e| TlsError::Verifier { path: self.client_ca.clone(), why: e.to_string() })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Pair)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(TlsError::Pair)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session would skip the certificate: a client whose role or authority
        // was taken away could go on with a ticket.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok((config, expires))
    }
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::File { field, path: path.to_owned(), why };
    let found = CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|e| wrong(e.to_string()))?;
    if found.is_empty() {
        return Err(wrong("there is no certificate in it".into()));
    }
    Ok(found)
}
