//! The listeners: a unix socket for this machine, TCP with TLS for others.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tracing::{error, warn};

use super::peer::{ClientPeer, ClientRole, PeerIdentity};
use super::tls::ControlTls;
use super::{ControlError, ControlLimits, certificate_role};
use crate::config::Control;
use crate::control::connection::ControlConnection;
use crate::control::refusal_log::RefusalLog;

/// Owner and group may connect, nobody else.
const SOCKET_MODE: u32 = 0o660;
/// After an error of `accept`, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct ControlListeners {
    socket: Option<(UnixListener, SocketFile, u32)>,
    tcp: Option<(std::net::TcpListener, Arc<ControlTls>)>,
    /// What could not be opened, and why.
    pub trouble: Vec<String>,
}

/// Removed when the server ends, unless another one has taken the place since.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_some_and(|now| now == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|m| m.ino())
}

impl ControlListeners {
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    pub fn tls(&self) -> Option<Arc<ControlTls>> {
        self.tcp.as_ref().map(|(_, tls)| tls.clone())
    }
}

/// Opens what can be opened. A node must not stop serving addresses because the control
/// API cannot listen: what is wrong is logged, and shown in the status.
pub fn open(control: &Control) -> ControlListeners {
    let mut listeners = ControlListeners { socket: None, tcp: None, trouble: Vec::new() };
    if !control.socket.as_os_str().is_empty() {
        let opened = group(&control.socket_group, &mut listeners.trouble);
        match open_socket(&control.socket, opened) {
            Ok(socket) => listeners.socket = Some(socket),
            Err(error) => listeners.trouble.push(error.to_string()),
        }
    }
    if let Some(address) = control.listen {
        let listener = std::net::TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
        match listener {
            Ok(listener) => listeners.tcp = Some((listener, Arc::new(ControlTls::open(control)))),
            Err(error) => listeners.trouble.push(ControlError::Listen { address, error }.to_string()),
        }
    }
    for trouble in &listeners.trouble {
        error!("control API: {trouble}");
    }
    listeners
}

/// The socket is made under another name and moved into place with its owner and mode,
/// so that nobody can connect before they are right.
fn open_socket(path: &Path, group: u32) -> Result<(UnixListener, SocketFile, u32), ControlError> {
    let wrong = |error| ControlError::Socket { path: path.to_owned(), error };
    if let Ok(there) = fs::symlink_metadata(path)
        && !there.file_type().is_socket()
    {
        return Err(wrong(io::Error::other("something that is not a socket is there; remove it")));
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(wrong)?;
    }
    let making = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&making);
    let listener = UnixListener::bind(&making).map_err(wrong)?;
    let finish = || -> io::Result<u64> {
        fs::set_permissions(&making, fs::Permissions::from_mode(0o600))?;
        // Usually it is there already, and then nobody is asked: the unit's filter of system
        // calls lets nobody change owners.
        if fs::symlink_metadata(&making)?.gid() != group {
            chown(&making, None, Some(group)).map_err(|error| not_given(group, &error))?;
        }
        fs::set_permissions(&making, fs::Permissions::from_mode(SOCKET_MODE))?;
        listener.set_nonblocking(true)?;
        fs::rename(&making, path)?;
        inode(path).ok_or_else(|| io::Error::other("it vanished"))
    };
    match finish() {
        Ok(inode) => Ok((listener, SocketFile { path: path.to_owned(), inode }, group)),
        Err(error) => {
            let _ = fs::remove_file(&making);
            Err(wrong(error))
        }
    }
}

fn not_given(group: u32, error: &io::Error) -> io::Error {
    let hint = "control.socket_group has to be one of the daemon's own groups, see purelbd.toml(5)";
    io::Error::new(error.kind(), format!("cannot be given to group {group}: {error}; {hint}"))
}

/// The group that may connect; without it only our own, which is never more.
fn group(name: &str, trouble: &mut Vec<String>) -> u32 {
    let own = Gid::effective().as_raw();
    if name.is_empty() {
        return own;
    }
    match Group::from_name(name) {
        Ok(Some(group)) => group.gid.as_raw(),
        _ => {
            trouble.push(ControlError::NoGroup { group: name.to_owned() }.to_string());
            own
        }
    }
}

impl ControlListeners {
    /// Accepts on both until the receiver is gone.
    pub fn accept(
        self,
        limits: &Arc<ControlLimits>,
        conns: &mpsc::Sender<io::Result<ControlConnection>>,
    ) -> io::Result<()> {
        if let Some((listener, file, group)) = self.socket {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            let task = accept_socket(listener, file, group, limits.clone(), conns.clone());
            tokio::spawn(task);
        }
        if let Some((listener, tls)) = self.tcp {
            let listener = TcpListener::from_std(listener)?;
            tokio::spawn(accept_tls(listener, tls, limits.clone(), conns.clone()));
        }
        Ok(())
    }
}

async fn accept_socket(
    listener: tokio::net::UnixListener,
    _file: SocketFile,
    group: u32,
    limits: Arc<ControlLimits>,
    conns: mpsc::Sender<io::Result<ControlConnection>>,
) {
    let places = Arc::new(Semaphore::new(limits.socket_connections));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = conns.closed() => return,
        };
        match stream {
            Ok((stream, _)) => {
                let Some(peer) = socket_peer(&stream, group).await else { continue };
                if conns.send(Ok(ControlConnection::socket(stream, peer, place))).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                warn!(%error, "accepting on the control socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The kernel lets only owner and group connect; this holds where somebody opened the
/// file's mode wider, or passed a connected descriptor on.
async fn socket_peer(stream: &UnixStream, group: u32) -> Option<ClientPeer> {
    let credentials = stream.peer_cred().ok()?;
    let (uid, gid, pid) = (credentials.uid(), credentials.gid(), credentials.pid());
    let own = Uid::effective().as_raw();
    let mut allowed = uid == 0 || uid == own || gid == group || in_process_groups(pid, group);
    if !allowed {
        // Asks the user database, which may be somewhere else and slow.
        let asked = tokio::task::spawn_blocking(move || in_user_groups(uid, gid, group));
        allowed = asked.await.unwrap_or(false);
    }
    Some(ClientPeer {
        who: PeerIdentity::Socket { uid, gid, pid },
        role: allowed.then_some(ClientRole::Operator),
    })
}

fn in_process_groups(pid: Option<i32>, group: u32) -> bool {
    let Some(status) = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok()) else {
        return false;
    };
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    groups.is_some_and(|list| list.split_whitespace().any(|g| g.parse() == Ok(group)))
}

fn in_user_groups(uid: u32, gid: u32, group: u32) -> bool {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return false };
    let Ok(name) = std::ffi::CString::new(user.name) else { return false };
    getgrouplist(&name, Gid::from_raw(gid)).is_ok_and(|all| all.contains(&Gid::from_raw(group)))
}

async fn accept_tls(
    listener: TcpListener,
    tls: Arc<ControlTls>,
    limits: Arc<ControlLimits>,
    conns: mpsc::Sender<io::Result<ControlConnection>>,
) {
    let places = Arc::new(Semaphore::new(limits.tls_connections));
    let handshakes = Arc::new(Semaphore::new(limits.handshakes));
    let refusals = Arc::<RefusalLog>::default();
    let mut look = tokio::time::interval(limits.reload);
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok(turn) = handshakes.clone().acquire_owned().await else { return };
        let accepted = loop {
            tokio::select! {
                accepted = listener.accept() => break accepted,
                _ = look.tick() => tls.reload_if_changed(),
                () = conns.closed() => return,
            }
        };
        match accepted {
            Ok((stream, address)) => {
                let Some(config) = tls.config() else {
                    refusals.turned_away(address, &"there is no usable certificate to show it");
                    continue;
                };
                let (acceptor, conns, refusals) =
                    (TlsAcceptor::from(config), conns.clone(), refusals.clone());
                let patience = limits.handshake;
                let (tls, longest) = (tls.clone(), limits.connection_age + limits.connection_grace);
                tokio::spawn(async move {
                    let shaken = tokio::time::timeout(patience, shake(acceptor, stream, address)).await;
                    drop(turn);
                    match shaken {
                        Ok(Ok((stream, peer, chain))) => {
                            let subject = peer.to_string();
                            let end = async move {
                                let withdrawn = tls.withdrawn(chain);
                                if tokio::time::timeout(longest, withdrawn).await.is_ok() {
                                    warn!(client = subject, "its certificate is no longer good: cut off");
                                }
                            };
                            drop(conns.send(Ok(ControlConnection::tls(stream, peer, end, place))).await);
                        }
                        Ok(Err(why)) => refusals.turned_away(address, &why),
                        Err(_) => refusals.turned_away(address, &"the TLS handshake took too long"),
                    }
                });
            }
            Err(error) => {
                warn!(%error, "accepting on the control port");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

type TlsClient = (tokio_rustls::server::TlsStream<TcpStream>, ClientPeer, Vec<CertificateDer<'static>>);

async fn shake(acceptor: TlsAcceptor, stream: TcpStream, address: SocketAddr) -> Result<TlsClient, String> {
    let _ = stream.set_nodelay(true);
    let stream = acceptor.accept(stream).await.map_err(|e| e.to_string())?;
    let (_, session) = stream.get_ref();
    let chain: Vec<CertificateDer<'static>> =
        session.peer_certificates().unwrap_or_default().iter().map(|c| c.clone().into_owned()).collect();
    let (subject, role) = chain
        .first()
        .and_then(|der| certificate_role::subject_and_role(der))
        .ok_or("its certificate cannot be read")?;
    let peer = ClientPeer { who: PeerIdentity::Certificate { subject, address }, role };
    Ok((stream, peer, chain))
}
