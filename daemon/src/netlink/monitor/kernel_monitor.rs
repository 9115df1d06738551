//! Watches links, addresses and default routes and tells the engine what changed.
//!
//! It subscribes first, dumps next, and applies what happened meanwhile: nothing falls
//! between. Links and addresses come through one socket, so that a dump and the events
//! around it stay in order. Default routes are read aside (see `routes`): however long
//! that takes, links and addresses are not kept waiting. Three things lead to a new dump, delivered as one [`Input::Kernel`]:
//! - the kernel's buffer overflowed and events are missing (R6);
//! - somebody asked for it with [`MonitorHandle::resync`];
//! - a dump failed half way.
//!
//! **When the engine's queue is full**, changes are no longer sent one by one. The
//! monitor keeps reading and remembering, and as soon as there is room sends everything
//! it knows as one [`Input::Kernel`]. Nothing is lost, and the kernel is never kept
//! waiting by a slow reader.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use purelb_core::ids::IfIndex;
use purelb_core::messages::Input;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};
use thiserror::Error;
use tokio::sync::{Notify, mpsc};

use crate::host::clock;
use crate::netlink::client::NetlinkError;
use crate::netlink::dump_requests;
use crate::netlink::message::{self, KernelRefusal, NetlinkRequest, RawMessage, RequestPayload};
use crate::netlink::monitor::default_routes::{DefaultRoutes, RouteReader};
use crate::netlink::monitor::monitor_state::MonitorState;
use crate::netlink::ownership::AddressOwnership;
use crate::netlink::parse::{self, KernelEvent};
use crate::netlink::socket::{NetlinkSocket, READ_BUFFER, ReadableSocket, SocketRead, register_readable};
use crate::netlink::{KernelLink, LinkTable};

const MULTICAST_GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Nexthop,
];
/// Events that arrive during a dump are applied after it. More than this is no
/// different from an overrun.
const EVENT_BACKLOG: usize = 16 * 1024;
/// Pause before a dump that failed is taken again, doubled each time up to the last.
const RETRY_LEAST: Duration = Duration::from_millis(10);
const RETRY_MOST: Duration = Duration::from_secs(1);
/// A dump that the kernel says was disturbed is taken again, so often.
const DUMP_TRIES: u32 = 8;
/// Datagrams taken in one go before anything else is looked at.
const READS_PER_TURN: usize = 64;

#[derive(Clone, Debug)]
pub struct MonitorSettings {
    /// Bytes the kernel may hold for us. Each event costs it about a kilobyte, so the
    /// default rides out a few thousand changes while the daemon does not get to run.
    pub receive_buffer: usize,
}

impl Default for MonitorSettings {
    fn default() -> Self {
        Self { receive_buffer: 8 * 1024 * 1024 }
    }
}

#[derive(Debug, Error)]
pub enum MonitorError {
    #[error("the netlink socket failed: {0}; the monitor has to be opened again")]
    Socket(#[from] io::Error),
}

/// What the monitor went through, for metrics.
#[derive(Debug, Default)]
pub struct MonitorStats {
    pub dumps: AtomicU64,
    pub overruns: AtomicU64,
    /// Times that the engine's queue was full.
    pub queue_full: AtomicU64,
    /// Times that the default routes were read.
    pub route_reads: AtomicU64,
}

#[derive(Clone, Debug)]
pub struct MonitorHandle {
    resync: Arc<Notify>,
    stats: Arc<MonitorStats>,
    links: LinkTable,
}

impl MonitorHandle {
    /// Dump again and send it all as one [`Input::Kernel`].
    pub fn resync(&self) {
        self.resync.notify_one();
    }

    pub fn stats(&self) -> &MonitorStats {
        &self.stats
    }

    pub fn links(&self) -> LinkTable {
        self.links.clone()
    }
}

#[derive(Debug)]
pub struct KernelMonitor {
    socket: Arc<NetlinkSocket>,
    state: MonitorState,
    /// Absent while it is at work.
    reader: Option<RouteReader>,
    inputs: mpsc::Sender<Input>,
    /// Before the default routes are read again, after that failed.
    route_pause: Duration,
    /// The engine's queue was full: it gets everything at once when there is room.
    behind: bool,
    handle: MonitorHandle,
    seq: u32,
    buffer: Box<[u8]>,
    backlog: Vec<KernelEvent>,
}

/// Why a dump did not come to its end.
enum DumpFailure {
    /// Events were lost: start over.
    Overrun,
    Refused(KernelRefusal),
    Io(io::Error),
}

impl From<io::Error> for DumpFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl KernelMonitor {
    /// Subscribes in the calling thread's network namespace. Nothing is sent before
    /// [`KernelMonitor::run`], but from here on nothing is missed.
    pub fn open(
        settings: &MonitorSettings,
        ownership: AddressOwnership,
        inputs: mpsc::Sender<Input>,
    ) -> io::Result<Self> {
        let socket = NetlinkSocket::open(&MULTICAST_GROUPS, settings.receive_buffer)?;
        socket.set_non_blocking()?;
        tracing::debug!(bytes = socket.receive_buffer().unwrap_or(0), "netlink receive buffer");
        let links = LinkTable::default();
        Ok(Self {
            socket: Arc::new(socket),
            state: MonitorState::new(ownership, links.clone()),
            reader: Some(RouteReader::open()?),
            inputs,
            route_pause: Duration::ZERO,
            behind: false,
            handle: MonitorHandle { resync: Arc::default(), stats: Arc::default(), links },
            seq: 0,
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            backlog: Vec::new(),
        })
    }

    pub fn handle(&self) -> MonitorHandle {
        self.handle.clone()
    }

    /// Runs until nobody receives the inputs any more.
    pub async fn run(mut self) -> Result<(), MonitorError> {
        let ready = register_readable(self.socket.clone())?;
        // Nothing is decided before the first dump is handed over: that one waits for the routes.
        while self.state.routes_stale {
            let read = self.start_reading();
            self.routes_were_read(read.await);
        }
        self.full_dump(&ready).await?;
        let inputs = self.inputs.clone();
        let mut reading = None;
        loop {
            if self.state.routes_stale && reading.is_none() {
                reading = Some(Box::pin(self.start_reading()));
            }
            tokio::select! {
                () = self.handle.resync.notified() => self.full_dump(&ready).await?,
                permit = inputs.reserve(), if self.behind => match permit {
                    Ok(permit) => {
                        self.behind = false;
                        permit.send(Input::Kernel(self.state.snapshot()));
                    }
                    Err(_) => return Ok(()),
                },
                () = inputs.closed() => return Ok(()),
                guard = ready.readable() => {
                    let mut guard = guard?;
                    if self.read_events()? == EventsTaken::All {
                        guard.clear_ready();
                    }
                }
                read = async { reading.as_mut().expect("checked before").await }, if reading.is_some() => {
                    reading = None;
                    self.routes_were_read(read);
                }
            }
        }
    }

    /// Reads the default routes on a thread of their own. What happens to them from now on
    /// makes them stale again.
    fn start_reading(&mut self) -> impl Future<Output = RoutesRead> + use<> {
        self.state.routes_stale = false;
        self.handle.stats.route_reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader.take().map_or_else(RouteReader::open, Ok);
        let pause = self.route_pause;
        async move {
            tokio::time::sleep(pause).await;
            let work = tokio::task::spawn_blocking(move || match reader {
                Ok(mut reader) => {
                    let result = reader.read();
                    RoutesRead { reader: Some(reader), result: Some(result) }
                }
                Err(error) => RoutesRead { reader: None, result: Some(Err(error.into())) },
            });
            work.await.unwrap_or_default()
        }
    }

    fn routes_were_read(&mut self, read: RoutesRead) {
        self.reader = read.reader;
        match read.result {
            Some(Ok(routes)) => {
                self.route_pause = Duration::ZERO;
                let change = self.state.set_routes(routes);
                change.into_iter().for_each(|input| self.send(input));
            }
            failed => {
                let error = failed.and_then(Result::err).map_or_else(String::new, |e| e.to_string());
                if self.route_pause.is_zero() {
                    tracing::warn!(%error, "default routes could not be read: tried again until they are");
                }
                self.route_pause = (self.route_pause * 2).clamp(RETRY_LEAST, RETRY_MOST);
                self.state.routes_stale = true;
            }
        }
    }

    /// Reads what is there, up to a bound. An overrun marks everything for a new dump.
    fn read_events(&mut self) -> io::Result<EventsTaken> {
        for _ in 0..READS_PER_TURN {
            match self.socket.read(&mut self.buffer) {
                Ok(SocketRead::Datagram(length)) => {
                    let mut seen: Vec<KernelEvent> = message::messages(&self.buffer[..length])
                        .filter_map(|message| parse::event(&message))
                        .collect();
                    for seen in seen.drain(..) {
                        self.apply(seen);
                    }
                }
                Ok(SocketRead::Overrun) => {
                    self.handle_overrun();
                    return Ok(EventsTaken::Some);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(EventsTaken::All),
                Err(error) => return Err(error),
            }
        }
        Ok(EventsTaken::Some)
    }

    fn handle_overrun(&mut self) {
        self.handle.stats.overruns.fetch_add(1, Ordering::Relaxed);
        tracing::warn!("the kernel reported more changes than its buffer held: everything is dumped again");
        self.handle.resync();
    }

    fn apply(&mut self, seen: KernelEvent) {
        let mut changes = Vec::new();
        self.state.apply(seen, &mut |input| changes.push(input));
        for change in changes {
            self.send(change);
        }
    }

    fn send(&mut self, input: Input) {
        if self.behind {
            return;
        }
        if let Err(mpsc::error::TrySendError::Full(_)) = self.inputs.try_send(input) {
            self.behind = true;
            self.handle.stats.queue_full.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("the engine's queue is full: kernel changes are gathered into one");
        }
    }

    /// Dumps everything and sends it, however often it takes.
    async fn full_dump(&mut self, ready: &ReadableSocket) -> Result<(), MonitorError> {
        let mut pause = RETRY_LEAST;
        loop {
            match self.try_full_dump(ready).await {
                Ok(()) => break,
                Err(DumpFailure::Io(error)) => return Err(error.into()),
                Err(DumpFailure::Overrun) => {
                    self.handle.stats.overruns.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("changes were lost during a dump: it is taken again");
                }
                Err(DumpFailure::Refused(no)) => {
                    tracing::warn!(error = %no, "dump of links and addresses failed: it is taken again");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MOST);
        }
        self.handle.stats.dumps.fetch_add(1, Ordering::Relaxed);
        self.send(Input::Kernel(self.state.snapshot()));
        Ok(())
    }

    async fn try_full_dump(&mut self, ready: &ReadableSocket) -> Result<(), DumpFailure> {
        let mut links: BTreeMap<IfIndex, KernelLink> = BTreeMap::new();
        self.dump_whole(ready, &dump_requests::links(), &mut links, &mut |links, message| {
            if let Some(KernelEvent::Link(link)) = parse::event(message) {
                links.insert(link.facts.index, link);
            }
        })
        .await?;
        let mut addresses = Vec::new();
        self.dump_whole(ready, &dump_requests::addresses(None), &mut addresses, &mut |addresses, message| {
            if let Some(KernelEvent::Address(address)) = parse::event(message) {
                addresses.push(address);
            }
        })
        .await?;
        self.state.replace(links.into_values().collect(), addresses);
        // Older or newer than the dump's own part: the last word on each thing is the
        // newest, and only the outcome is sent.
        for seen in std::mem::take(&mut self.backlog) {
            self.state.apply(seen, &mut |_| {});
        }
        Ok(())
    }

    /// A dump during which something came or went may pass over what was there all the
    /// time, and no event tells of that. It is taken again; should every try be disturbed,
    /// what any of them showed counts, less what the events since then took away.
    async fn dump_whole<T: Default + Send>(
        &mut self,
        ready: &ReadableSocket,
        request: &RequestPayload,
        found: &mut T,
        take: &mut (dyn FnMut(&mut T, &RawMessage<'_>) + Send),
    ) -> Result<(), DumpFailure> {
        for _ in 0..DUMP_TRIES {
            let mut fresh = T::default();
            let whole = self
                .dump(ready, request, &mut |message| {
                    take(&mut fresh, message);
                    take(found, message);
                })
                .await?;
            if whole {
                *found = fresh;
                return Ok(());
            }
        }
        tracing::debug!("every dump was disturbed: what any of them showed counts");
        Ok(())
    }

    /// One dump on the socket that also carries the events; those go to the backlog.
    /// `false`: it was disturbed, and may have passed over something.
    async fn dump(
        &mut self,
        ready: &ReadableSocket,
        request: &RequestPayload,
        take: &mut (dyn FnMut(&RawMessage<'_>) + Send),
    ) -> Result<bool, DumpFailure> {
        self.seq = self.seq.wrapping_add(1);
        let mut datagram = Vec::new();
        // Not timed, so never too late.
        let _ =
            NetlinkRequest::new(request.clone(), NLM_F_DUMP).encode(clock::now(), self.seq, &mut datagram);
        self.socket.send(&datagram)?;
        // No event was lost; nothing came or went.
        let (mut whole, mut quiet) = (true, true);
        loop {
            let length = match self.socket.read(&mut self.buffer) {
                Ok(SocketRead::Datagram(length)) => length,
                // The dump itself goes on, but events are missing. It is read to its end,
                // since the kernel refuses a second one before that.
                Ok(SocketRead::Overrun) => {
                    whole = false;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.readable().await?.clear_ready();
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let mut ended = None;
            for message in message::messages(&self.buffer[..length]) {
                if message.seq != self.seq {
                    whole &= self.backlog.len() < EVENT_BACKLOG;
                    if whole {
                        self.backlog.extend(parse::event(&message));
                    }
                    continue;
                }
                quiet &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_DONE => ended = Some(message::dump_end(&message)),
                    NLMSG_ERROR => ended = Some(message::acknowledgement(&message)),
                    _ => take(&message),
                }
            }
            match ended {
                None => {}
                Some(_) if !whole => {
                    self.backlog.clear();
                    return Err(DumpFailure::Overrun);
                }
                Some(Ok(())) => return Ok(quiet),
                Some(Err(no)) => return Err(DumpFailure::Refused(no)),
            }
        }
    }
}

/// What came of reading the default routes. Nothing at all: the thread panicked.
#[derive(Default)]
struct RoutesRead {
    reader: Option<RouteReader>,
    result: Option<Result<DefaultRoutes, NetlinkError>>,
}

#[derive(PartialEq, Eq)]
enum EventsTaken {
    All,
    Some,
}
