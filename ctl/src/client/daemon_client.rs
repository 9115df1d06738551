//! Connects to a daemon: over its socket, or over TCP with TLS. Errors say what to do next.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use purelb_proto::control::v1::control_client::ControlClient;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::cli::TargetArgs;
use crate::error::{CommandError, CommandResult, exit_code};

pub type DaemonClient = ControlClient<Channel>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Ten thousand addresses with their Services are a few megabytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The daemon on this machine.
pub async fn connect_local(path: &Path, timeout: Duration) -> CommandResult<DaemonClient> {
    // Connected here first, because what the kernel says is lost on its way through gRPC.
    let first = UnixStream::connect(path).await.map_err(|e| socket_failure(path, &e))?;
    let mut first = Some(first);
    let path = path.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let (ready, path) = (first.take(), path.clone());
        async move {
            let stream = match ready {
                Some(stream) => stream,
                None => UnixStream::connect(path).await?,
            };
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    let endpoint =
        Endpoint::from_static("http://purelbd.local").connect_timeout(CONNECT_TIMEOUT).timeout(timeout);
    let channel = endpoint.connect_with_connector(connector).await;
    let channel = channel.map_err(|e| {
        CommandError::new("the daemon does not answer").because(root_cause(&e)).code(exit_code::CRITICAL)
    })?;
    Ok(client_over(channel))
}

fn client_over(channel: Channel) -> DaemonClient {
    ControlClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

fn socket_failure(path: &Path, error: &io::Error) -> CommandError {
    let what = format!("cannot reach purelbd on {}", path.display());
    let failure = CommandError::new(what).code(exit_code::CRITICAL);
    match error.kind() {
        io::ErrorKind::NotFound => failure
            .because("there is no such socket")
            .next("is the daemon running? `systemctl status purelbd`; another socket is named with --socket"),
        io::ErrorKind::ConnectionRefused => failure
            .because("nobody listens on it")
            .next("the daemon is not running: `systemctl status purelbd`, `journalctl -u purelbd`"),
        io::ErrorKind::PermissionDenied => {
            let group = std::fs::metadata(path).ok().and_then(|m| group_name(m.gid()));
            let group = group.unwrap_or_else(|| "purelb".to_owned());
            failure.because("you may not open it").next(format!(
                "become root, or join the group {group}: `sudo usermod -aG {group} $USER`, then log in again"
            ))
        }
        _ => failure.because(error),
    }
}

/// Without the name service: a small tool shall not wait for a directory server.
fn group_name(gid: u32) -> Option<String> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let mut lines = groups.lines().map(|l| l.split(':').collect::<Vec<_>>());
    lines.find(|f| f.get(2).and_then(|g| g.parse().ok()) == Some(gid)).map(|f| f[0].to_owned())
}

/// A daemon elsewhere.
pub async fn connect_remote(target: &TargetArgs, address: &str) -> CommandResult<DaemonClient> {
    let config = Arc::new(tls_config(target)?);
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = target.tls_name.as_deref().unwrap_or(host).to_owned();
    let server = ServerName::try_from(name.clone()).map_err(|e| {
        CommandError::new(format!("{name:?} is not a name a certificate can have")).because(e)
    })?;
    let dialer = TlsDialer { address: address.to_owned(), config, server };
    let first = tokio::time::timeout(CONNECT_TIMEOUT, dialer.clone().dial()).await;
    let first =
        first.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in 5 seconds")));
    let mut first = Some(first.map_err(|e| tls_failure(address, &name, &e))?);
    let connector = tower::service_fn(move |_: Uri| {
        let (ready, dialer) = (first.take(), dialer.clone());
        async move {
            match ready {
                Some(stream) => Ok(TokioIo::new(stream)),
                None => dialer.dial().await.map(TokioIo::new),
            }
        }
    });
    // The scheme says nothing here: the connector speaks TLS already.
    let endpoint = Endpoint::from_static("http://purelbd.remote");
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(target.request_timeout);
    let channel = endpoint.connect_with_connector(connector).await;
    let channel = channel.map_err(|e| {
        let cause = root_cause(&e);
        tls_failure(address, &name, &io::Error::other(cause))
    })?;
    Ok(client_over(channel))
}

#[derive(Clone)]
struct TlsDialer {
    address: String,
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl TlsDialer {
    async fn dial(self) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        TlsConnector::from(self.config).connect(self.server, stream).await
    }
}

fn tls_config(target: &TargetArgs) -> CommandResult<ClientConfig> {
    let how = "give --ca, --cert and --key (or PURELB_CA, PURELB_CERT, PURELB_KEY)";
    let (Some(ca), Some(cert), Some(key)) = (&target.ca, &target.cert, &target.key) else {
        return Err(CommandError::new(
            "daemons of other nodes are asked over mutual TLS, and certificates are missing",
        )
        .next(how));
    };
    let wrong = |path: &Path, e: &dyn std::fmt::Display| {
        CommandError::new(format!("cannot use {}", path.display())).because(e).next(how)
    };
    let read = |path: &Path| -> CommandResult<Vec<CertificateDer<'static>>> {
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = found.map_err(|e| wrong(path, &e))?;
        if found.is_empty() { Err(wrong(path, &"there is no certificate in it")) } else { Ok(found) }
    };
    let mut roots = RootCertStore::empty();
    for authority in read(ca)? {
        roots.add(authority).map_err(|e| wrong(ca, &e))?;
    }
    let chain = read(cert)?;
    check_not_expired(cert, &chain)?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| CommandError::new("TLS cannot be set up").because(e))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key_der)
        .map_err(|e| wrong(cert, &e))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// An expired certificate would be refused with a bare alert; say it first.
fn check_not_expired(path: &Path, chain: &[CertificateDer<'_>]) -> CommandResult<()> {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let Some((_, certificate)) = chain.first().and_then(|der| X509Certificate::from_der(der).ok()) else {
        return Ok(());
    };
    let validity = certificate.validity();
    let now = jiff::Timestamp::now().as_second();
    if validity.not_after.timestamp() >= now {
        return Ok(());
    }
    let at = jiff::Timestamp::from_second(validity.not_after.timestamp())
        .map(|t| t.to_string())
        .unwrap_or_default();
    Err(CommandError::new(format!("the client certificate {} has expired", path.display()))
        .because(format!("it was valid until {at}"))
        .next("get a new one from whoever runs the certificate authority"))
}

fn tls_failure(address: &str, name: &str, error: &io::Error) -> CommandError {
    let failure = CommandError::new(format!("cannot reach purelbd at {address}")).code(exit_code::CRITICAL);
    let text = error.to_string();
    let next = if text.contains("NotValidForName") || text.contains("not valid for name") {
        format!("the daemon's certificate is not for {name}: name what it is for with --tls-name")
    } else if text.contains("UnknownIssuer") {
        "the daemon's certificate is not from the authority in --ca".to_owned()
    } else if text.contains("Expired") || text.contains("expired") {
        "a certificate has expired: replace it on that node (it is read without a restart), or yours"
            .to_owned()
    } else if text.contains("alert") || text.contains("AlertReceived") {
        "the daemon does not accept your certificate: is it from the authority in its control.client_ca?"
            .to_owned()
    } else {
        "is the daemon running there, and does it listen (control.listen)? Is a firewall between?".to_owned()
    };
    failure.because(text).next(next)
}

/// The last error of a chain: the others only say who passed it on.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(next) = error.source() {
        error = next;
    }
    error.to_string()
}

/// The error of a call that a daemon refused, or did not answer.
pub fn call_error(status: &Status) -> CommandError {
    let failure = CommandError::new(match status.code() {
        Code::PermissionDenied => "not allowed",
        Code::Unavailable => "the daemon has gone away",
        Code::DeadlineExceeded => "the daemon did not answer in time",
        Code::Unimplemented => "the daemon does not know this call",
        Code::NotFound => "not found",
        Code::FailedPrecondition => "another daemon answered",
        _ => "the daemon refused",
    });
    // A certificate that the daemon does not take shows at the first call: in TLS 1.3
    // the client is done before the server has looked at it.
    let mut cause = status.message().to_owned();
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(error) = source {
        cause = error.to_string();
        source = error.source();
    }
    let next = match status.code() {
        _ if cause.contains("alert") || cause.contains("AlertReceived") => {
            "the daemon does not accept your certificate: is it from the authority in its control.client_ca, and still valid?"
        }
        // Its alert can be lost when it closes the connection under our first request.
        _ if cause.contains("broken pipe") || cause.contains("onnection reset") => {
            "the daemon closed the connection: over TLS it does not accept your certificate (is it from the authority in \
             its control.client_ca, and still valid?), else see `journalctl -u purelbd` there"
        }
        Code::Unavailable | Code::DeadlineExceeded => {
            "see `systemctl status purelbd` and `journalctl -u purelbd` there"
        }
        Code::FailedPrecondition => {
            "the endpoint in that node's Lease leads to another node: see `kubectl get lease -o yaml`, and control.advertise there"
        }
        Code::Unimplemented => "it is older than this program: upgrade it",
        _ => return failure.because(cause),
    };
    failure.because(cause).next(next).code(exit_code::CRITICAL)
}
