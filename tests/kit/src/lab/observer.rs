//! The observer on the wire: every ARP and neighbour discovery claim on the lab's
//! segments, with the time the kernel saw it.
//!
//! One packet socket in the lab's root namespace. The segments' bridges are
//! promiscuous, so each frame a port lets in passes the bridge itself once, also those
//! between two ports. It passes after the rules of [`cuts`](super::cuts): what a host
//! says while it is cut off is not on the segment and not recorded.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use purelb_core::Mono;
use purelb_wire::{AddressClaim, ClaimKind, MacAddr, classify};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::claims::{self, Duplicate, Holding};
use super::clock::{self, prefer_this_thread};
use super::netns::Netns;

/// Claims kept. A lab that makes more of them runs for days; then the oldest count and
/// later ones are only counted.
const MAX_CLAIMS: usize = 1_000_000;
const RECEIVE_BUFFER: usize = 8 << 20;
/// How often the thread looks whether it is to end, when nothing comes.
const LOOK_EVERY_MS: u16 = 50;

/// A claim seen on a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenClaim {
    pub at: Mono,
    pub segment: String,
    pub ip: IpAddr,
    pub mac: MacAddr,
    /// The lab's host with that MAC; `None` for a MAC no host has.
    pub host: Option<String>,
    pub kind: ClaimKind,
}

/// What the observer must know of the lab.
#[derive(Clone, Debug)]
pub(super) struct Wiretap {
    pub(super) root: Netns,
    /// Segment by the index of its bridge.
    pub(super) segments: HashMap<u32, String>,
    pub(super) hosts: HashMap<MacAddr, String>,
}

/// A running observer. Dropping it stops it.
#[derive(Debug)]
pub struct Observer {
    ear: Arc<Ear>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The socket and what was heard on it.
#[derive(Debug)]
struct Ear {
    socket: Socket,
    tap: Wiretap,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    claims: Vec<SeenClaim>,
    beyond: u64,
}

impl Ear {
    /// The book, with everything the kernel has taken from the wire until now: whoever
    /// asks after a frame was sent finds it, however busy the observer's thread is.
    fn book(&self) -> MutexGuard<'_, Book> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(heard) = next_claim(&self.socket, &self.tap) {
            match heard {
                Some(claim) if book.claims.len() < MAX_CLAIMS => book.claims.push(claim),
                Some(_) => book.beyond += 1,
                None => {}
            }
        }
        book
    }
}

impl Observer {
    pub(super) fn start(tap: Wiretap) -> Result<Self> {
        let socket = tap.root.enter(|| open(&tap))?.context("opening the observer's packet socket")?;
        let ear = Arc::new(Ear { socket, tap, book: Mutex::default() });
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, ended) = (Arc::clone(&ear), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("observer".into())
            .spawn(move || {
                prefer_this_thread();
                while !ended.load(Ordering::Relaxed) {
                    let mut waiting = [PollFd::new(shared.socket.as_fd(), PollFlags::POLLIN)];
                    // An interrupted wait is like one in which nothing came.
                    let _ = poll(&mut waiting, PollTimeout::from(LOOK_EVERY_MS));
                    drop(shared.book());
                }
            })
            .context("starting the observer's thread")?;
        Ok(Self { ear, stop, thread: Some(thread) })
    }

    /// All claims of an address, in order.
    pub fn claims(&self, vip: IpAddr) -> Vec<SeenClaim> {
        self.ear.book().claims.iter().filter(|claim| claim.ip == vip).cloned().collect()
    }

    /// Announcements (gratuitous ARP, unsolicited advertisements) of an address.
    pub fn announcements(&self, vip: IpAddr) -> Vec<SeenClaim> {
        let mut claims = self.claims(vip);
        claims.retain(|claim| claim.kind.is_announcement());
        claims
    }

    /// Who claimed an address, one after the other.
    pub fn owners(&self, vip: IpAddr) -> Vec<Holding> {
        claims::owners(&self.claims(vip))
    }

    /// When two owners claimed the address at the same time: one of them spoke again
    /// within `window` after the other began to. A clean move is none: there the old
    /// owner is silent once the new one has spoken. A move back within `window` looks
    /// like a duplicate; take the window shorter than a deliberate one.
    pub fn duplicates(&self, vip: IpAddr, window: Duration) -> Vec<Duplicate> {
        claims::duplicates(&self.claims(vip), window)
    }

    /// Claims that did not fit; zero in any sane test.
    pub fn not_recorded(&self) -> u64 {
        self.ear.book().beyond
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open(tap: &Wiretap) -> io::Result<Socket> {
    // Frames that arrive before the filter stands are of no segment and passed over.
    let all = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(all))?;
    let mut bridges: Vec<u32> = tap.segments.keys().copied().collect();
    bridges.sort_unstable();
    socket.attach_filter(&filter(&bridges))?;
    socket.set_nonblocking(true)?;
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    Ok(socket)
}

/// A packet filter that takes ARP, ICMPv6 and tagged frames on the bridges, so that
/// probes do not wake the observer.
fn filter(bridges: &[u32]) -> Vec<SockFilter> {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let interface = (libc::SKF_AD_OFF + libc::SKF_AD_IFINDEX) as u32;
    let mut program = vec![SockFilter::new(LOAD_WORD, 0, 0, interface)];
    for (nth, bridge) in bridges.iter().enumerate() {
        // Over the other bridges and the refusal after them.
        let to_frame = (bridges.len() - nth) as u8;
        program.push(SockFilter::new(EQUAL, to_frame, 0, *bridge));
    }
    program.extend([
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(LOAD_HALF, 0, 0, 12),
        SockFilter::new(EQUAL, 5, 0, libc::ETH_P_ARP as u32),
        SockFilter::new(EQUAL, 4, 0, libc::ETH_P_8021Q as u32),
        SockFilter::new(EQUAL, 0, 2, libc::ETH_P_IPV6 as u32),
        SockFilter::new(LOAD_BYTE, 0, 0, 14 + 6),
        SockFilter::new(EQUAL, 1, 0, libc::IPPROTO_ICMPV6 as u32),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]);
    program
}

/// The next frame's claim (`Some(None)`: it makes none), or `None` if there is no frame.
fn next_claim(socket: &Socket, tap: &Wiretap) -> Option<Option<SeenClaim>> {
    let mut buffer = [0; 2048];
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let fd = socket.as_fd().as_raw_fd();
    let got = recvmsg::<LinkAddr>(fd, &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT).ok()?;
    let stamp = got.cmsgs().ok().and_then(|mut controls| {
        controls.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(clock::from_wall(stamp)),
            _ => None,
        })
    });
    let bridge = got.address.map(|address| address.ifindex() as u32);
    let length = got.bytes;
    Some((|| {
        let segment = tap.segments.get(&bridge?)?.clone();
        let AddressClaim { ip, mac, kind } = classify(&buffer[..length]).claim()?;
        let host = tap.hosts.get(&mac).cloned();
        Some(SeenClaim { at: stamp.unwrap_or_else(clock::now), segment, ip, mac, host, kind })
    })())
}
