//! The daemons' control API, over mutual TLS with the certificate of a Secret.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use purelb_core::{NodeName, Vip};
use purelb_proto::control::v1::control_client::ControlClient;
use purelb_proto::control::v1::{
    DrainProgress, DrainRequest, ResyncRequest, ResyncResponse, UndrainRequest, WinnerRequest,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// The Secret the shipped rights let us read; keys `ca.crt`, `tls.crt`, `tls.key`.
pub const SECRET: &str = "purelb-control-client";
const WITHIN: Duration = Duration::from_secs(10);
/// A daemon that does not take a connection in this time is away, and another is asked.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long a drain is followed; it goes on without us.
const FOLLOW: u32 = 60;

#[derive(Debug, Error)]
pub enum ControlError {
    #[error("Secret {SECRET}: {0}")]
    Secret(String),
    #[error("daemon at {endpoint}: {why}")]
    Unreachable { endpoint: String, why: String },
    #[error("daemon at {endpoint} refuses: {why}")]
    Refused { endpoint: String, why: String },
}

/// Talks to daemons as the certificate in the Secret. What changes something names its
/// node: the endpoint comes from a Lease, and another daemon may be there.
#[derive(Clone)]
pub struct Daemons {
    secrets: Api<Secret>,
}

impl std::fmt::Debug for Daemons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Daemons")
    }
}

impl Daemons {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { secrets: Api::namespaced(client, namespace) }
    }

    /// Read anew each time: calls are rare, and certificates are renewed.
    async fn tls(&self) -> Result<ClientConfig, ControlError> {
        let problem = |why: String| ControlError::Secret(why);
        let secret = self.secrets.get(SECRET).await.map_err(|e| match e {
            kube::Error::Api(status) => problem(status.message),
            other => problem(other.to_string()),
        })?;
        let data = secret.data.unwrap_or_default();
        let get =
            |key: &str| data.get(key).map(|v| &v.0).ok_or_else(|| problem(format!("it has no key {key}")));
        let certificates = |key: &str| -> Result<Vec<CertificateDer<'static>>, ControlError> {
            let found = CertificateDer::pem_slice_iter(get(key)?).collect::<Result<Vec<_>, _>>();
            found.map_err(|e| problem(format!("{key}: {e}")))
        };
        let mut roots = RootCertStore::empty();
        for authority in certificates("ca.crt")? {
            roots.add(authority).map_err(|e| problem(format!("ca.crt: {e}")))?;
        }
        let key =
            PrivateKeyDer::from_pem_slice(get("tls.key")?).map_err(|e| problem(format!("tls.key: {e}")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| problem(e.to_string()))?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates("tls.crt")?, key)
            .map_err(|e| problem(e.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    async fn connect(&self, endpoint: &str) -> Result<ControlClient<Channel>, ControlError> {
        let unreachable = |why: String| ControlError::Unreachable { endpoint: endpoint.to_owned(), why };
        let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|e| unreachable(e.to_string()))?;
        let tls = TlsConnector::from(Arc::new(self.tls().await?));
        let address = endpoint.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let (tls, name, address) = (tls.clone(), name.clone(), address.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                Ok::<_, io::Error>(TokioIo::new(tls.connect(name, stream).await?))
            }
        });
        // The scheme says nothing here: the connector speaks TLS already.
        let channel = Endpoint::from_static("http://purelbd.remote")
            .connect_timeout(CONNECT_WITHIN)
            .connect_with_connector(connector)
            .await
            .map_err(|e| unreachable(deepest(&e)))?;
        Ok(ControlClient::new(channel))
    }

    /// Who wins an address, as the daemon there sees it; None: nobody can take it.
    pub async fn winner(&self, endpoint: &str, ip: Vip) -> Result<Option<NodeName>, ControlError> {
        let request = WinnerRequest { ips: vec![ip.to_string()] };
        let mut client = self.connect(endpoint).await?;
        let answer = within(endpoint, client.winner(request)).await?;
        Ok(answer.results.first().and_then(|election| NodeName::new(&election.winner).ok()))
    }

    /// Has the daemon list and compare everything anew.
    pub async fn resync(&self, node: &NodeName, endpoint: &str) -> Result<ResyncResponse, ControlError> {
        let mut client = self.connect(endpoint).await?;
        within(endpoint, client.resync(ResyncRequest { node: node.to_string() })).await
    }

    /// Has the daemon hand everything over. Returns once it has begun; the daemon goes
    /// on by itself. The stream tells the progress.
    pub async fn drain(
        &self,
        node: &NodeName,
        endpoint: &str,
    ) -> Result<Streaming<DrainProgress>, ControlError> {
        let node = node.to_string();
        let request = DrainRequest { dry_run: false, force: false, timeout_seconds: FOLLOW, node };
        let mut client = self.connect(endpoint).await?;
        within(endpoint, client.drain(request)).await
    }

    pub async fn undrain(&self, node: &NodeName, endpoint: &str) -> Result<(), ControlError> {
        let mut client = self.connect(endpoint).await?;
        within(endpoint, client.undrain(UndrainRequest { node: node.to_string() })).await.map(drop)
    }
}

async fn within<T>(
    endpoint: &str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, ControlError> {
    let endpoint = endpoint.to_owned();
    match tokio::time::timeout(WITHIN, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(ControlError::Refused { endpoint, why: status.message().to_owned() }),
        Err(_) => Err(ControlError::Unreachable { endpoint, why: format!("no answer within {WITHIN:?}") }),
    }
}

fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
