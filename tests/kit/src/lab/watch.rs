//! Who held which address when, by the kernel's own word.
//!
//! One netlink socket in the lab's root namespace hears the address events of all hosts
//! (NETLINK_LISTEN_ALL_NSID). One queue for all means that the kernel's order between
//! two hosts is kept, however late the events are read: an overlap that was not cannot
//! be made up, and one that was cannot be missed. Times are those of reading.

use std::collections::{HashMap, HashSet};
use std::io::IoSliceMut;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use netlink_packet_route::RouteNetlinkMessage;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind,
    recvmsg, setsockopt, socket,
};
use purelb_core::Mono;
use rtnetlink::packet_core::NetlinkPayload;
use socket2::SockRef;

use super::clock::{self, prefer_this_thread};
use super::netns::Netns;
use super::timeline::Timeline;
use super::{kernel, netlink};

/// Groups of rtnetlink(7): IPv4 and IPv6 addresses.
const GROUPS: u32 = 0x10 | 0x100;
const RECEIVE_BUFFER: usize = 16 << 20;
/// How often the thread looks whether it is to end, when nothing comes.
const LOOK_EVERY_MS: u16 = 50;
const NETLINK_ALL_NSID: i32 = 8;

/// Events kept; later ones make the timelines unusable, which is said.
const MAX_EVENTS: usize = 1_000_000;

/// An address came to a host, changed there, or left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressEvent {
    pub at: Mono,
    pub host: String,
    pub address: kernel::Address,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Added, or changed: flags and lifetimes are new.
    Set,
    Removed,
}

/// A running watch over the addresses of all hosts. Dropping it stops it.
#[derive(Debug)]
pub struct AddressWatch {
    ear: Arc<Ear>,
    started: Mono,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The queue and what was read from it.
#[derive(Debug)]
struct Ear {
    queue: OwnedFd,
    hosts: Known,
    book: Mutex<Book>,
}

impl Ear {
    /// The book, with everything the kernel has said until now: whoever asks after a
    /// change finds it, however busy the watch's thread is.
    fn book(&self) -> MutexGuard<'_, Book> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = read(&self.queue, &self.hosts, &mut book) {
            book.broken = Some(format!("{error:#}"));
        }
        book
    }
}

#[derive(Debug, Default)]
struct Book {
    events: Vec<AddressEvent>,
    /// Why events are missing, if they are.
    broken: Option<String>,
}

/// A host as the watch sees it: the number its events carry, its name, its namespace.
pub(super) type Watched = (i32, String, Netns);

/// Hosts by the number their events carry, with the names of their interfaces.
type Known = HashMap<i32, (String, HashMap<u32, String>)>;

impl AddressWatch {
    pub(super) fn start(root: &Netns, hosts: Vec<Watched>) -> Result<Self> {
        let queue = root.enter(open)?.context("opening the socket that hears address events")?;
        let started = clock::now();
        // First listen, then look: what comes in between is seen twice, never not at all.
        let mut book = Book::default();
        for (_, name, netns) in &hosts {
            for address in kernel::addresses(netns)? {
                let event = AddressEvent { at: started, host: name.clone(), address, change: Change::Set };
                book.events.push(event);
            }
        }
        let mut known = Known::new();
        for (id, name, netns) in hosts {
            known.insert(id, (name, kernel::names(&netns)?));
        }
        let ear = Arc::new(Ear { queue, hosts: known, book: Mutex::new(book) });
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, ended) = (Arc::clone(&ear), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("address-watch".into())
            .spawn(move || {
                prefer_this_thread();
                while !ended.load(Ordering::Relaxed) {
                    let mut waiting = [PollFd::new(shared.queue.as_fd(), PollFlags::POLLIN)];
                    // An interrupted wait is like one in which nothing came.
                    let _ = poll(&mut waiting, PollTimeout::from(LOOK_EVERY_MS));
                    drop(shared.book());
                }
            })
            .context("starting the thread that reads address events")?;
        Ok(Self { ear, started, stop, thread: Some(thread) })
    }

    /// All events of an address, in the kernel's order. Hosts that held it when the
    /// watch began have an event at that time.
    pub fn events(&self, ip: IpAddr) -> Vec<AddressEvent> {
        self.ear.book().events.iter().filter(|event| event.address.ip() == ip).cloned().collect()
    }

    /// Who held the address when, since the watch began. Fails if events were missed,
    /// since then nobody can tell.
    pub fn owners_timeline(&self, vip: IpAddr) -> Result<Timeline> {
        let events = self.events(vip);
        if let Some(why) = &self.ear.book().broken {
            bail!("address events were missed, so nobody can tell who held {vip}: {why}");
        }
        Ok(Timeline::of(vip, self.started, clock::now(), &events))
    }
}

impl Drop for AddressWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open() -> nix::Result<OwnedFd> {
    let queue =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    setsockopt(&queue, RcvBufForce, &RECEIVE_BUFFER)?;
    listen_to_all(&queue)?;
    bind(queue.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
    SockRef::from(&queue).set_nonblocking(true).map_err(|_| nix::errno::Errno::EINVAL)?;
    Ok(queue)
}

/// Hears all namespaces that have a number in this one. No wrapper knows this option.
#[allow(unsafe_code)]
fn listen_to_all(queue: &OwnedFd) -> nix::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int, `on` is one and outlives the call, and the length
    // is that of an int.
    let result = unsafe {
        libc::setsockopt(
            queue.as_raw_fd(),
            libc::SOL_NETLINK,
            NETLINK_ALL_NSID,
            std::ptr::from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    nix::errno::Errno::result(result).map(drop)
}

/// Reads until the queue is empty.
fn read(queue: &OwnedFd, hosts: &Known, book: &mut Book) -> Result<()> {
    loop {
        let mut buffer = [0; 16 << 10];
        let mut control = nix::cmsg_space!(libc::c_int);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let received = recvmsg::<NetlinkAddr>(queue.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let at = clock::now();
        let (length, from) = match received {
            Ok(got) => (got.bytes, got.cmsgs().ok().and_then(|mut controls| controls.find_map(namespace_id))),
            Err(nix::errno::Errno::EAGAIN) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error).context("reading the queue of address events"),
        };
        // Events of the root namespace itself carry no number.
        let Some((host, names)) = from.and_then(|id| hosts.get(&id)) else {
            continue;
        };
        for message in netlink::parse(&buffer[..length])? {
            let (address, change) = match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(new)) => (new, Change::Set),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(old)) => (old, Change::Removed),
                _ => continue,
            };
            let Some(address) = kernel::address(&address, names) else {
                continue;
            };
            ensure!(book.events.len() < MAX_EVENTS, "there were more than {MAX_EVENTS}");
            book.events.push(AddressEvent { at, host: host.clone(), address, change });
        }
    }
}

fn namespace_id(control: ControlMessageOwned) -> Option<i32> {
    match control {
        ControlMessageOwned::Unknown(unknown)
            if unknown.cmsg_header.cmsg_level == libc::SOL_NETLINK
                && unknown.cmsg_header.cmsg_type == NETLINK_ALL_NSID =>
        {
            unknown.data_bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
        }
        _ => None,
    }
}

/// Hosts that hold an address, as events are played back. A host may hold it on two
/// interfaces; it is one owner.
#[derive(Debug, Default)]
pub(super) struct Holders(HashSet<(String, u32)>);

impl Holders {
    pub(super) fn apply(&mut self, event: &AddressEvent) {
        let place = (event.host.clone(), event.address.index);
        // A tentative address is not answered for, a failed one never will be.
        if event.change == Change::Set && event.address.usable() {
            self.0.insert(place);
        } else {
            self.0.remove(&place);
        }
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<_> = self.0.iter().map(|(host, _)| host.clone()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}
