//! Probes from a client to VIPs: a steady stream, one every millisecond, each with its
//! number, so that what a user of a VIP would notice can be counted.
//!
//! ```text
//!   sender thread  --- absolute schedule, in the client's namespace ---> VIP
//!        | notes: number, VIP, time                                      |
//!        v                                                               | answer with
//!     records  <--- notes: answer, time, who --- receiver thread <-------+ the node's name
//! ```
//!
//! UDP: one socket per family, answers stamped by the kernel on arrival. TCP: a new
//! connection per probe, one request and answer, closed with a reset so that no port
//! stays behind in TIME-WAIT (at 1,000/s they would run out in half a minute). A SYN is
//! sent again after one second at the earliest, which is the timeout, so a TCP probe too
//! tells about one moment.

mod message;
mod report;
mod responder;
mod tcp;
mod udp;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use purelb_core::Mono;

use super::clock;
use super::netns::Netns;
use report::Record;
pub use report::{Gap, Lag, Loss, Report, Turn, VipReport};
pub(super) use responder::start as start_responder;
pub use responder::{DataPlane, PROBE_PORT};

/// A prober that runs this far behind drops what it missed instead of sending a burst
/// that would say nothing about the time it stands for.
const GIVE_UP_BEHIND: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_millis(5);

/// Records kept: three hours at 1,000/s, about 400 MB. Then sending ends.
const MAX_RECORDS: usize = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Udp,
    Tcp,
}

/// What to probe, and how.
#[derive(Clone, Debug)]
pub struct Probing {
    protocol: Protocol,
    vips: Vec<IpAddr>,
    per_second: u32,
    timeout: Duration,
}

impl Probing {
    pub fn udp(vips: impl IntoIterator<Item = IpAddr>) -> Self {
        Self::new(Protocol::Udp, vips)
    }

    pub fn tcp(vips: impl IntoIterator<Item = IpAddr>) -> Self {
        Self::new(Protocol::Tcp, vips)
    }

    fn new(protocol: Protocol, vips: impl IntoIterator<Item = IpAddr>) -> Self {
        let vips = vips.into_iter().collect();
        Self { protocol, vips, per_second: 1000, timeout: Duration::from_secs(1) }
    }

    /// Probes per second over all VIPs, which take turns. 1,000 unless told otherwise.
    pub fn per_second(mut self, probes: u32) -> Self {
        self.per_second = probes;
        self
    }

    /// An answer later than this is a loss. One second unless told otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(super) fn start(self, client: &Netns) -> Result<Prober> {
        ensure!(!self.vips.is_empty(), "a prober needs at least one VIP");
        ensure!(
            (1..=100_000).contains(&self.per_second),
            "{} probes per second: give 1 to 100,000",
            self.per_second
        );
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let notes = Arc::new(Notes {
            run: (u64::from(std::process::id()) << 32) | RUNS.fetch_add(1, Ordering::Relaxed),
            probing: self,
            book: Mutex::default(),
            stop_sending: AtomicBool::new(false),
            stop_receiving: AtomicBool::new(false),
        });
        let (sender, receiver) = match notes.probing.protocol {
            Protocol::Udp => udp::start(client, &notes)?,
            Protocol::Tcp => tcp::start(client, &notes)?,
        };
        Ok(Prober { notes, sender: Some(sender), receiver: Some(receiver) })
    }
}

/// Shared by a prober's threads.
#[derive(Debug)]
struct Notes {
    run: u64,
    probing: Probing,
    book: Mutex<Book>,
    stop_sending: AtomicBool,
    stop_receiving: AtomicBool,
}

#[derive(Debug, Default)]
struct Book {
    records: Vec<Record>,
    nodes: Vec<String>,
    lag: Lag,
}

impl Notes {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, sequence: u64, from: IpAddr, node: &str, at: Mono) {
        let mut book = self.book();
        let who = match book.nodes.iter().position(|known| known == node) {
            Some(index) => index,
            None => {
                book.nodes.push(node.to_owned());
                book.nodes.len() - 1
            }
        };
        let Some(record) = usize::try_from(sequence).ok().and_then(|n| book.records.get_mut(n)) else {
            return;
        };
        // An answer from another address would not reach a client that asked the VIP;
        // of two answers the first is what a client sees.
        if self.probing.vips[record.vip as usize] == from && record.answer.is_none() {
            record.answer = Some((at, who as u32));
        }
    }

    /// Calls `send` with number and VIP of each probe at its time, until stopped.
    fn keep_schedule(&self, mut send: impl FnMut(u64, IpAddr)) {
        let interval = Duration::from_nanos(1_000_000_000 / u64::from(self.probing.per_second));
        let mut due = clock::now();
        let mut next_vip = 0;
        while !self.stop_sending.load(Ordering::Relaxed) {
            clock::sleep_until(due);
            let sent = clock::now();
            let behind = sent.since(due);
            let sequence = {
                let mut book = self.book();
                book.lag.worst = book.lag.worst.max(behind);
                book.lag.late += u64::from(behind > LATE);
                if book.records.len() >= MAX_RECORDS {
                    return;
                }
                book.records.push(Record { vip: next_vip, sent, answer: None });
                book.records.len() as u64 - 1
            };
            send(sequence, self.probing.vips[next_vip as usize]);
            next_vip = (next_vip + 1) % self.probing.vips.len() as u32;
            due += interval;
            if behind > GIVE_UP_BEHIND {
                let missed = (behind.as_nanos() / interval.as_nanos().max(1)) as u64;
                self.book().lag.skipped += missed;
                due += interval * u32::try_from(missed).unwrap_or(u32::MAX);
            }
        }
    }

    /// Takes back the last probe: it could not be sent.
    fn not_sent(&self, sequence: u64) {
        let mut book = self.book();
        if book.records.len() as u64 == sequence + 1 {
            book.records.pop();
            book.lag.skipped += 1;
        }
    }
}

/// A running prober. Dropping it stops it.
#[derive(Debug)]
pub struct Prober {
    notes: Arc<Notes>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<()>>,
}

impl Prober {
    /// What was found so far, while it goes on.
    pub fn report(&self) -> Report {
        let Probing { vips, timeout, .. } = &self.notes.probing;
        let book = self.notes.book();
        Report::of(vips, &book.nodes, &book.records, book.lag, *timeout, clock::now())
    }

    /// Sends no more, waits for answers still under way (at most the timeout), and
    /// reports.
    pub fn stop(mut self) -> Report {
        self.notes.stop_sending.store(true, Ordering::Relaxed);
        join(&mut self.sender);
        let stopped = clock::now();
        // Only the last timeout's worth of probes can be under way.
        let under_way = |book: &Book| {
            let recent =
                book.records.iter().rev().take_while(|r| stopped.since(r.sent) <= self.notes.probing.timeout);
            recent.filter(|record| record.answer.is_none()).count()
        };
        while clock::now().since(stopped) <= self.notes.probing.timeout && under_way(&self.notes.book()) > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.end();
        self.report()
    }

    fn end(&mut self) {
        self.notes.stop_sending.store(true, Ordering::Relaxed);
        join(&mut self.sender);
        self.notes.stop_receiving.store(true, Ordering::Relaxed);
        join(&mut self.receiver);
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.end();
    }
}

fn join(thread: &mut Option<JoinHandle<()>>) {
    if let Some(thread) = thread.take() {
        let _ = thread.join();
    }
}
