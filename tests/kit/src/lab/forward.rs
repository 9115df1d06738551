//! TCP between namespaces: nodes reach the API server on the host's loopback, the test
//! reaches what listens inside a node.
//!
//! ```text
//!   node --- management link (cut here) --- 10.250.0.1:6443 ==task==> 127.0.0.1:PORT
//!   test --- 127.0.0.1:PORT ==task==> 10.250.0.2 --- management link --- node:PORT
//! ```
//!
//! Each task holds a socket in either namespace and copies bytes, so the host needs no
//! route, address or rule. Packets really cross the management link, and dropping them
//! there stalls established connections.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use super::netns::Netns;
use super::plan::TOOLS_ADDRESS;

/// Connections a forwarder carries at once. More wait in the listen queue: a test that
/// needs more has a leak, and should stall rather than eat the machine.
const CONNECTIONS: usize = 1024;
const BACKLOG: i32 = 256;

/// Where a node's connections to the API go.
#[derive(Clone, Debug, Default)]
pub(super) struct ApiTargets(Arc<Mutex<Targets>>);

#[derive(Debug, Default)]
struct Targets {
    everybody: Option<SocketAddr>,
    by_node: HashMap<IpAddr, SocketAddr>,
}

impl ApiTargets {
    pub(super) fn set_for_all(&self, target: SocketAddr) {
        self.lock().everybody = Some(target);
    }

    pub(super) fn set_for(&self, node: Ipv4Addr, target: SocketAddr) {
        self.lock().by_node.insert(node.into(), target);
    }

    fn of(&self, node: IpAddr) -> Option<SocketAddr> {
        let targets = self.lock();
        targets.by_node.get(&node).copied().or(targets.everybody)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Targets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener inside a namespace.
pub(super) fn listen(netns: &Netns, at: SocketAddr) -> Result<std::net::TcpListener> {
    netns
        .enter(|| {
            let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            if at.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.bind(&at.into())?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(std::net::TcpListener::from(socket))
        })?
        .with_context(|| format!("listening on {at} in {}", netns.name()))
}

/// Carries nodes' connections to the API server.
pub(super) async fn serve_api(listener: std::net::TcpListener, targets: ApiTargets) {
    accept_each(listener, move |client, peer| {
        let target = targets.of(peer.ip());
        async move {
            match target {
                Some(target) => carry(client, TcpStream::connect(target).await).await,
                // No API server yet: refuse, as a machine without one does.
                None => refuse(&client),
            }
        }
    })
    .await;
}

/// Carries connections from the host to `to`, out of the lab's root namespace.
pub(super) async fn serve_node(listener: std::net::TcpListener, root: Netns, to: SocketAddr) {
    accept_each(listener, move |client, _| {
        let root = root.clone();
        async move { carry(client, connect_from(&root, to).await).await }
    })
    .await;
}

async fn connect_from(root: &Netns, to: SocketAddr) -> io::Result<TcpStream> {
    let made = root.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddr::from((TOOLS_ADDRESS, 0)).into())?;
        Ok::<_, io::Error>(socket)
    });
    let socket = made.map_err(io::Error::other)??;
    TcpSocket::from_std_stream(socket.into()).connect(to).await
}

async fn accept_each<F, Fut>(listener: std::net::TcpListener, serve: F)
where
    F: Fn(TcpStream, SocketAddr) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return eprintln!("lab: a listener cannot be used: {error}"),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&room).acquire_owned().await.expect("never closed");
        match listener.accept().await {
            Ok((client, peer)) => {
                let serving = serve(client, peer);
                tokio::spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            // Out of descriptors, or a client that left: neither may end the forwarder.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn carry(mut client: TcpStream, server: io::Result<TcpStream>) {
    match server {
        Ok(mut server) => {
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            // Either side closing or failing ends both; the other end notices itself.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
        Err(_) => refuse(&client),
    }
}

/// Closing with a reset, which is how a refused connection looks.
fn refuse(client: &TcpStream) {
    let _ = socket2::SockRef::from(client).set_linger(Some(std::time::Duration::ZERO));
}
