//! The answering end of probes: in every node, UDP and TCP, both families.
//!
//! Sockets listen on the wildcard address, so a probe is answered exactly where the
//! kernel takes the packet as its own. With the `Host` data plane that is where the VIP
//! is on an interface; with `Proxy` it is wherever the frame was delivered. The answer
//! leaves from the address that was asked, as a Service's must.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::message::{self, REQUEST_LEN};
use crate::lab::background::Background;
use crate::lab::forward;
use crate::lab::netns::Netns;

/// The port probes go to, in UDP and TCP.
pub const PROBE_PORT: u16 = 7007;

/// TCP probes a node serves at once; more wait in the listen queue.
const CONNECTIONS: usize = 4096;

/// A client that goes away without a word does not hold a place for ever.
const CONNECTION_LIFE: Duration = Duration::from_secs(5);

const WILDCARDS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// How nodes take packets for a VIP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPlane {
    /// Only where the address is on the node: the strict one.
    #[default]
    Host,
    /// Every node takes what is delivered to it, by a DNAT before routing, as kube-proxy
    /// does. Who gets the frames is still decided by ARP and neighbour discovery.
    Proxy,
}

impl DataPlane {
    /// Brings a node's rules to this data plane.
    pub(in crate::lab) fn apply(self, netns: &Netns) -> Result<()> {
        let chain = match self {
            Self::Host => String::new(),
            Self::Proxy => format!(
                "table inet lab-proxy {{\nchain services {{\ntype nat hook prerouting priority dstnat; policy accept;\n\
                 udp dport {PROBE_PORT} redirect\ntcp dport {PROBE_PORT} redirect\n}}\n}}\n"
            ),
        };
        netns.nft(&format!("table inet lab-proxy\ndelete table inet lab-proxy\n{chain}"))
    }
}

/// Starts answering in a node, with the node's name.
pub(in crate::lab) fn start(background: &Background, netns: &Netns, name: &str) -> Result<()> {
    let name: Arc<str> = name.into();
    for ip in WILDCARDS {
        let at = SocketAddr::new(ip, PROBE_PORT);
        let udp = udp_socket(netns, at)?;
        background.spawn(answer_udp(udp, Arc::clone(&name)));
        let tcp = forward::listen(netns, at)?;
        background.spawn(answer_tcp(tcp, Arc::clone(&name)));
    }
    Ok(())
}

fn udp_socket(netns: &Netns, at: SocketAddr) -> Result<std::net::UdpSocket> {
    netns
        .enter(|| {
            let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
            if at.is_ipv6() {
                socket.set_only_v6(true)?;
                setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
            } else {
                setsockopt(&socket, Ipv4PacketInfo, &true)?;
            }
            socket.set_nonblocking(true)?;
            socket.bind(&at.into())?;
            Ok::<_, io::Error>(std::net::UdpSocket::from(socket))
        })?
        .with_context(|| format!("answering UDP probes in {}", netns.name()))
}

async fn answer_udp(socket: std::net::UdpSocket, name: Arc<str>) {
    let socket = match UdpSocket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return eprintln!("lab: a responder cannot be used: {error}"),
    };
    loop {
        let answered = socket.async_io(Interest::READABLE, || answer_one(&socket, &name)).await;
        // An address that went away between question and answer is a lost probe, and a
        // reset from a client that left is nothing; neither ends the responder.
        drop(answered);
    }
}

/// Takes one probe and answers it from the address it was sent to.
fn answer_one(socket: &UdpSocket, name: &str) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let mut buffer = [0; 64];
    let mut control = nix::cmsg_space!(libc::in6_pktinfo);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let received = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let Some(peer) = received.address else {
        return Ok(());
    };
    let asked = received.cmsgs()?.next();
    let length = received.bytes;
    let Some(reply) = message::reply(&buffer[..length], name) else {
        return Ok(());
    };
    let parts = [IoSlice::new(&reply)];
    // Interface 0: the route back decides.
    match asked {
        Some(ControlMessageOwned::Ipv4PacketInfo(info)) => {
            let from =
                libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: info.ipi_addr, ipi_addr: info.ipi_addr };
            let control = [ControlMessage::Ipv4PacketInfo(&from)];
            sendmsg(fd, &parts, &control, MsgFlags::MSG_DONTWAIT, Some(&peer))?;
        }
        Some(ControlMessageOwned::Ipv6PacketInfo(info)) => {
            let from = libc::in6_pktinfo { ipi6_addr: info.ipi6_addr, ipi6_ifindex: 0 };
            let control = [ControlMessage::Ipv6PacketInfo(&from)];
            sendmsg(fd, &parts, &control, MsgFlags::MSG_DONTWAIT, Some(&peer))?;
        }
        _ => {}
    }
    Ok(())
}

async fn answer_tcp(listener: std::net::TcpListener, name: Arc<str>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return eprintln!("lab: a responder cannot be used: {error}"),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&room).acquire_owned().await.expect("never closed");
        let Ok((client, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let name = Arc::clone(&name);
        tokio::spawn(async move {
            // Late or broken probes are the prober's to count.
            let _ = tokio::time::timeout(CONNECTION_LIFE, answer_connection(client, &name)).await;
            drop(place);
        });
    }
}

async fn answer_connection(mut client: TcpStream, name: &str) -> io::Result<()> {
    let mut request = [0; REQUEST_LEN];
    loop {
        client.read_exact(&mut request).await?;
        let Some(reply) = message::reply(&request, name) else {
            return Ok(());
        };
        client.write_all(&reply).await?;
    }
}
