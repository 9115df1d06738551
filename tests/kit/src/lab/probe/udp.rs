//! UDP probes.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;

use super::message::{self, REPLY_MAX};
use super::{Notes, PROBE_PORT};
use crate::lab::clock;
use crate::lab::netns::Netns;

/// How often the receiver looks whether it is to end, when nothing comes.
const LOOK_EVERY_MS: u16 = 50;

/// Answers wait here while the receiver does not get to run: a second's worth and more.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Probes to an address nobody answers for wait in the neighbour table and count
/// against the socket: they must not keep those to other addresses from being sent.
const SEND_BUFFER: usize = 64 << 20;

pub(super) fn start(client: &Netns, notes: &Arc<Notes>) -> Result<(JoinHandle<()>, JoinHandle<()>)> {
    let wildcards = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let sockets = client
        .enter(|| -> io::Result<Vec<UdpSocket>> { wildcards.into_iter().map(socket).collect() })?
        .context("opening the prober's sockets")?;
    let sockets = Arc::new(sockets);
    let receiver = {
        let (notes, sockets) = (Arc::clone(notes), Arc::clone(&sockets));
        client.thread("probe-receive", move || {
            clock::prefer_this_thread();
            receive(&notes, &sockets);
        })?
    };
    let notes = Arc::clone(notes);
    let sender = client.thread("probe-send", move || {
        clock::prefer_this_thread();
        notes.keep_schedule(|sequence, vip| {
            let socket = &sockets[usize::from(vip.is_ipv6())];
            // A probe the kernel refuses (no route, no carrier) is a lost probe.
            let _ = socket.send_to(&message::request(notes.run, sequence), (vip, PROBE_PORT));
        });
    })?;
    Ok((sender, receiver))
}

fn socket(ip: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((ip, 0))?;
    socket.set_nonblocking(true)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
    setsockopt(&socket, nix::sys::socket::sockopt::SndBufForce, &SEND_BUFFER)?;
    Ok(socket)
}

fn receive(notes: &Notes, sockets: &[UdpSocket]) {
    while !notes.stop_receiving.load(Ordering::Relaxed) {
        let mut waiting: Vec<_> = sockets.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
        // An interrupted wait is like one in which nothing came.
        let _ = poll(&mut waiting, PollTimeout::from(LOOK_EVERY_MS));
        for socket in sockets {
            while let Some((sequence, from, name, at)) = receive_one(notes, socket) {
                if let Some((sequence, name)) = sequence.zip(name) {
                    notes.answered(sequence, from, &name, at);
                }
            }
        }
    }
}

type Received = (Option<u64>, IpAddr, Option<String>, purelb_core::Mono);

/// One datagram, or `None` if there is none left.
fn receive_one(notes: &Notes, socket: &UdpSocket) -> Option<Received> {
    let mut buffer = [0; REPLY_MAX];
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let fd = socket.as_fd().as_raw_fd();
    let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT).ok()?;
    let stamp = got.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(clock::from_wall(stamp)),
        _ => None,
    });
    let from = got.address.as_ref().and_then(ip_of).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let length = got.bytes;
    let (sequence, name) = message::read_reply(&buffer[..length], notes.run).unzip();
    Some((sequence, from, name.map(str::to_owned), stamp.unwrap_or_else(clock::now)))
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    let v6 = address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into()));
    v4.or(v6).map(|address| address.ip())
}
