//! TLS 1.3 with client certificates, reloaded when its files change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::config::Control;
use crate::control::certificate_role;

/// How often a client that stays connected is looked at again at the latest.
const RECHECK_INTERVAL: Duration = Duration::from_secs(3600);

#[derive(Debug, Error)]
pub enum ControlTlsError {
    #[error("control.{field} {}: {why}", path.display())]
    File { field: &'static str, path: PathBuf, why: String },
    #[error("control.certificate and control.key do not go together: {0}")]
    Pair(rustls::Error),
    #[error("control.client_ca {}: no client could be verified: {why}", path.display())]
    Verifier { path: PathBuf, why: String },
}

#[derive(Clone, Debug)]
struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: PathBuf,
    /// Empty: no revocation lists.
    client_crl: PathBuf,
}

/// What tells that a file was replaced, also through a symbolic link.
type TlsFileStamps = [Option<(SystemTime, u64)>; 4];

/// What the files said when they were read.
struct LoadedTls {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Seconds since 1970 at which our own certificate ends.
    expires: i64,
}

pub struct ControlTls {
    files: TlsFiles,
    /// `None`: there was no usable certificate yet, and nobody gets in.
    current: ArcSwapOption<LoadedTls>,
    /// Counts what was taken over: who is connected is looked at again with each.
    taken_over: watch::Sender<u64>,
    /// Why the files there are now are not in use.
    trouble: ArcSwapOption<String>,
    stamp: std::sync::Mutex<Option<TlsFileStamps>>,
}

impl fmt::Debug for ControlTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ControlTls {
    /// Files that are not usable yet do not keep the daemon from its work: they are said
    /// to be wrong, and taken over once they are right.
    pub fn open(control: &Control) -> Self {
        let files = TlsFiles {
            certificate: control.certificate.clone(),
            key: control.key.clone(),
            client_ca: control.client_ca.clone(),
            client_crl: control.client_crl.clone(),
        };
        let tls = Self {
            files,
            current: ArcSwapOption::empty(),
            taken_over: watch::channel(0).0,
            trouble: ArcSwapOption::empty(),
            stamp: std::sync::Mutex::new(None),
        };
        tls.reload_if_changed();
        tls
    }

    /// For one handshake: later ones may get a newer one.
    pub fn config(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().as_ref().map(|current| current.config.clone())
    }

    /// Resolves when a client that got in with this certificate would get in no more: it
    /// has ended, its authority was taken out, or it is on a revocation list.
    pub async fn withdrawn(self: Arc<Self>, chain: Vec<CertificateDer<'static>>) {
        let mut changes = self.taken_over.subscribe();
        while self.accepts(&chain) {
            let ends = chain.first().and_then(|c| certificate_role::expiry(c)).unwrap_or(i64::MAX);
            let left = ends.saturating_sub(jiff::Timestamp::now().as_second()).max(0).unsigned_abs();
            // The wall clock may be set meanwhile.
            let look = Duration::from_secs(left.saturating_add(1)).min(RECHECK_INTERVAL);
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(look) => {}
            }
        }
    }

    fn accepts(&self, chain: &[CertificateDer<'static>]) -> bool {
        let current = self.current.load();
        let (Some(current), Some((client, between))) = (current.as_ref(), chain.split_first()) else {
            return false;
        };
        current.verifier.verify_client_cert(client, between, UnixTime::now()).is_ok()
    }

    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    /// Seconds since 1970 at which our own certificate ends.
    pub fn expires(&self) -> i64 {
        self.current.load().as_ref().map_or(i64::MAX, |current| current.expires)
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
            Ok(current) => {
                self.current.store(Some(Arc::new(current)));
                self.trouble.store(None);
                self.taken_over.send_modify(|count| *count += 1);
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

impl TlsFiles {
    fn stamp(&self) -> TlsFileStamps {
        [&self.certificate, &self.key, &self.client_ca, &self.client_crl].map(|path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        })
    }

    fn load(&self) -> Result<LoadedTls, ControlTlsError> {
        let chain = certificates("certificate", &self.certificate)?;
        let expires = chain.first().and_then(|c| certificate_role::expiry(c)).unwrap_or(i64::MAX);
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| ControlTlsError::File {
            field: "key",
            path: self.key.clone(),
            why: e.to_string(),
        })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("client_ca", &self.client_ca)? {
            roots.add(authority).map_err(|e| ControlTlsError::File {
                field: "client_ca",
                path: self.client_ca.clone(),
                why: e.to_string(),
            })?;
        }
        let provider = Arc::new(ring::default_provider());
        // With lists, every certificate between a client and its authority has to be on
        // the list of whoever signed it, or rather not on it: one without a list is refused.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .with_crls(self.revocations()?)
            .build();
        let verifier = verifier
            .map_err(|e| ControlTlsError::Verifier { path: self.client_ca.clone(), why: e.to_string() })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(ControlTlsError::Pair)?
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(chain, key)
            .map_err(ControlTlsError::Pair)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session would skip the certificate: a client whose role or authority
        // was taken away could go on with a ticket.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(LoadedTls { config: Arc::new(config), verifier, expires })
    }

    fn revocations(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, ControlTlsError> {
        let path = &self.client_crl;
        if path.as_os_str().is_empty() {
            return Ok(Vec::new());
        }
        let wrong = |why: String| ControlTlsError::File { field: "client_crl", path: path.clone(), why };
        let found = CertificateRevocationListDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))?;
        let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|e| wrong(e.to_string()))?;
        if found.is_empty() {
            return Err(wrong("there is no revocation list in it".into()));
        }
        Ok(found)
    }
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ControlTlsError> {
    let wrong = |why: String| ControlTlsError::File { field, path: path.to_owned(), why };
    let found = CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|e| wrong(e.to_string()))?;
    if found.is_empty() {
        return Err(wrong("there is no certificate in it".into()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
