//! What hosts on our segments say of addresses, and questions to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use purelb_core::ids::{IfIndex, IfName, Vip};
use purelb_core::segment::{QuestionKind, SegmentQuestion, SegmentReport, SegmentSighting, SightingKind};
use purelb_core::{Input, Mono};
use purelb_wire::ethernet::EthernetFrame;
use purelb_wire::{
    AddressClaim, AddressQuestion, ClaimKind, EchoKind, EchoMessage, FrameClass, MacAddr, classify,
};
use tracing::{debug, info};

use super::arrival_clock::ArrivalClock;
use super::interface_sockets::InterfaceSockets;
use super::segment_stats::SegmentStats;
use crate::announce::packet_sender::{AnnounceError, PacketSender, usable_mac};
use crate::host::clock;
use crate::netlink::LinkTable;

/// The sockets are read at least this often: who asks for others is heard by then.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Before what one turn left over is read.
const FLOOD_PAUSE: Duration = Duration::from_millis(5);
/// So many claims in so much time wake the engine's task at once. More wait for the end of
/// that time: a host that announces without end costs no more than this.
const PROMPT_CLAIMS: u32 = 8;
const PROMPT_WINDOW: Duration = Duration::from_millis(200);
/// Between reading the clock and the kernel's having the frame. If it takes longer we were
/// held up, and nobody knows when the question left.
const LONGEST_SEND: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct SegmentListener {
    links: LinkTable,
    wanted: BTreeMap<IfIndex, IfName>,
    open: BTreeMap<IfIndex, InterfaceSockets>,
    /// Where we cannot listen, and why, as the engine was told.
    trouble: BTreeMap<IfIndex, String>,
    /// Ours among all programs of this host that send echo requests.
    echo_id: u16,
    /// In each echo request: nobody who has not seen one can answer it.
    cookie: [u8; 8],
    sequence: u16,
    last_read: Mono,
    /// The last turn left something over.
    behind: bool,
    prompt_since: Mono,
    prompt_claims: u32,
    stats: Arc<SegmentStats>,
}

impl SegmentListener {
    /// `links` is the monitor's table. Sockets are opened later, by [`Self::listen`], in the
    /// network namespace of the thread that calls it.
    pub fn new(links: LinkTable, stats: Arc<SegmentStats>) -> Self {
        let [a, b, cookie @ ..] = uuid::Uuid::new_v4().into_bytes();
        let mut short = [0; 8];
        short.copy_from_slice(&cookie[6..]);
        Self {
            links,
            wanted: BTreeMap::new(),
            open: BTreeMap::new(),
            trouble: BTreeMap::new(),
            echo_id: u16::from_be_bytes([a, b]),
            cookie: short,
            sequence: 0,
            last_read: Mono::ZERO,
            behind: false,
            prompt_since: Mono::ZERO,
            prompt_claims: 0,
            stats,
        }
    }

    /// Carries out one `Effect::Listen`: there, and nowhere else. Inside a runtime.
    pub fn listen(&mut self, wanted: BTreeMap<IfIndex, IfName>, answers: &mut Vec<Input>) {
        self.open.retain(|index, _| wanted.contains_key(index));
        self.trouble.clear();
        self.wanted = wanted;
        for index in self.open.keys() {
            answers.push(Input::Listening { index: *index, result: Ok(()) });
        }
        self.open_missing(answers);
    }

    /// Opens what is wanted and not open. What is as bad as before is not said again.
    fn open_missing(&mut self, answers: &mut Vec<Input>) {
        let missing: Vec<_> = self
            .wanted
            .iter()
            .filter(|(index, _)| !self.open.contains_key(index))
            .map(|(i, n)| (*i, n.clone()))
            .collect();
        for (index, name) in missing {
            match self.open_one(index) {
                Ok(sockets) => {
                    debug!(interface = %name, "listening to the segment");
                    self.open.insert(index, sockets);
                    self.trouble.remove(&index);
                    answers.push(Input::Listening { index, result: Ok(()) });
                }
                Err(error) => self.complain(index, &name, error.to_string(), answers),
            }
        }
    }

    fn open_one(&self, index: IfIndex) -> Result<InterfaceSockets, AnnounceError> {
        let link = self.links.get(index).ok_or(AnnounceError::NoInterface(index))?;
        usable_mac(&link)?;
        let name = || link.facts.name.to_string();
        if !link.facts.up {
            return Err(AnnounceError::Down(name()));
        }
        InterfaceSockets::open(index, self.echo_id, clock::now()).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENETDOWN) => AnnounceError::Down(name()),
                Some(libc::ENODEV) => AnnounceError::NoInterface(index),
                _ => AnnounceError::Listening { interface: name(), error },
            }
        })
    }

    fn complain(&mut self, index: IfIndex, name: &IfName, why: String, answers: &mut Vec<Input>) {
        if self.trouble.get(&index) != Some(&why) {
            info!(interface = %name, why, "not listening to the segment");
            self.trouble.insert(index, why.clone());
            answers.push(Input::Listening { index, result: Err(why) });
        }
    }

    /// Carries out one `Effect::Ask`.
    pub fn ask(&mut self, sender: &PacketSender, question: &SegmentQuestion) -> Input {
        let asked = self.send_question(sender, question);
        self.stats.count_question(question.kind, asked.is_ok());
        if let Err(error) = &asked {
            debug!(target = %question.target, interface = %question.interface, error, "question not sent");
        }
        Input::Asked { id: question.id, result: asked }
    }

    fn send_question(&mut self, sender: &PacketSender, question: &SegmentQuestion) -> Result<Mono, String> {
        let link = self.links.get(question.index).ok_or(AnnounceError::NoInterface(question.index));
        let link = link.map_err(|error| error.to_string())?;
        let mac = usable_mac(&link).map_err(|error| error.to_string())?;
        let asked = AddressQuestion {
            target: question.target.ip(),
            from: question.from.map(|ip| ip.to_canonical()),
            mac,
            to: question.to.map(MacAddr),
        };
        let frame = match question.kind {
            QuestionKind::Resolve => asked.resolve_frame(),
            QuestionKind::Echo => {
                self.sequence = self.sequence.wrapping_add(1);
                asked.echo_frame(self.echo_id, self.sequence, &self.cookie)
            }
        };
        let frame = frame.map_err(|error| error.to_string())?;
        // Before it leaves: an answer may be there before the call returns.
        let left = clock::now();
        sender.send_frame(&link, &frame).map_err(|error| error.to_string())?;
        let took = clock::now().since(left);
        if took > LONGEST_SEND {
            return Err(format!("held up for {took:?} while sending: nobody knows when the question left"));
        }
        Ok(left)
    }

    /// Reads what has arrived: changes of where we listen, and then a report.
    pub fn read(&mut self, answers: &mut Vec<Input>) {
        if self.wanted.is_empty() {
            return;
        }
        self.stats.reads.fetch_add(1, Ordering::Relaxed);
        let now = clock::now();
        self.last_read = now;
        self.behind = false;
        self.begin_prompt_window(now);
        self.open_missing(answers);
        if self.open.is_empty() {
            return;
        }
        let ready = self.ready_sockets();
        let mut own: Option<BTreeSet<MacAddr>> = None;
        let mut report = SegmentReport { listened_until: now, ..SegmentReport::default() };
        let mut collected = Collected::default();
        let mut failed = Vec::new();
        for ((index, sockets), ready) in self.open.iter_mut().zip(ready.chunks(SOCKETS)) {
            let cookie = &self.cookie;
            let own = &mut own;
            let links = &self.links;
            let turn = sockets.read(now, ready, |frame, stamp, not_before| {
                let own = own.get_or_insert_with(|| own_macs(links));
                collected.frames += 1;
                if let Some(seen) = sighting(frame, cookie).filter(|seen| !own.contains(&seen.mac)) {
                    collected.seen.push((*index, seen, stamp, not_before));
                }
            });
            match turn {
                Ok(turn) => {
                    report.listened_until = report.listened_until.min(turn.until);
                    self.behind |= !turn.drained;
                    if turn.lost > 0 {
                        report.overrun.push(*index);
                        self.stats.lost.fetch_add(turn.lost, Ordering::Relaxed);
                    }
                }
                Err(error) => failed.push((*index, error)),
            }
        }
        self.stats.frames.fetch_add(collected.frames, Ordering::Relaxed);
        report.sightings = collected.sightings();
        self.stats.count_sightings(&report.sightings);
        for (index, error) in failed {
            self.open.remove(&index);
            let name = self.wanted.get(&index).cloned();
            let shown = name.as_ref().map_or_else(|| index.0.to_string(), ToString::to_string);
            let why = match error.raw_os_error() {
                Some(libc::ENETDOWN) => AnnounceError::Down(shown),
                Some(libc::ENODEV | libc::ENXIO) => AnnounceError::NoInterface(index),
                _ => AnnounceError::Listening { interface: shown, error },
            };
            if let Some(name) = name {
                self.complain(index, &name, why.to_string(), answers);
            }
        }
        answers.push(Input::Heard(report));
    }

    /// Which sockets have something, in the order of their interfaces.
    fn ready_sockets(&self) -> Vec<bool> {
        let wanted = PollFlags::POLLIN;
        let mut all: Vec<PollFd<'_>> = self
            .open
            .values()
            .flat_map(InterfaceSockets::descriptors)
            .map(|fd| PollFd::new(fd, wanted))
            .collect();
        match poll(&mut all, PollTimeout::ZERO) {
            // Errors too: they are found by reading.
            Ok(_) => all.iter().map(|fd| fd.revents().is_none_or(|events| !events.is_empty())).collect(),
            Err(_) => vec![true; all.len()],
        }
    }

    /// Ready when somebody said something to all that should not wait for a tick.
    pub fn poll_claim(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.open.is_empty() {
            return Poll::Pending;
        }
        self.begin_prompt_window(clock::now());
        if self.prompt_claims >= PROMPT_CLAIMS {
            return Poll::Pending;
        }
        let mut any = Poll::Pending;
        for sockets in self.open.values() {
            if sockets.poll_claim(cx).is_ready() {
                any = Poll::Ready(());
            }
        }
        if any.is_ready() {
            self.prompt_claims += 1;
            self.stats.claim_reads.fetch_add(1, Ordering::Relaxed);
        }
        any
    }

    /// Whoever reads begins a new one as well: the end of the last one would stay the moment
    /// to read at, and the engine's task, whose timer comes first, would do nothing else.
    fn begin_prompt_window(&mut self, now: Mono) {
        if now >= self.prompt_since + PROMPT_WINDOW {
            self.prompt_since = now;
            self.prompt_claims = 0;
        }
    }

    /// When [`Self::read`] is to be called at the latest.
    pub fn next_read(&self) -> Option<Mono> {
        if self.wanted.is_empty() {
            return None;
        }
        let prompt = (self.prompt_claims >= PROMPT_CLAIMS).then(|| self.prompt_since + PROMPT_WINDOW);
        let behind = self.behind.then(|| self.last_read + FLOOD_PAUSE);
        [Some(self.last_read + READ_INTERVAL), prompt, behind].into_iter().flatten().min()
    }
}

/// Of one interface.
const SOCKETS: usize = 5;

/// Frames of one turn, before their stamps are moments.
#[derive(Debug, Default)]
struct Collected {
    frames: u64,
    seen: Vec<(IfIndex, Seen, Option<nix::sys::time::TimeSpec>, Mono)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    ip: IpAddr,
    mac: MacAddr,
    kind: SightingKind,
}

impl Collected {
    fn sightings(self) -> Vec<SegmentSighting> {
        if self.seen.is_empty() {
            return Vec::new();
        }
        let clock = ArrivalClock::read();
        let mut askers = BTreeMap::new();
        let mut sightings: Vec<SegmentSighting> = Vec::with_capacity(self.seen.len());
        for (index, Seen { ip, mac, kind }, stamp, not_before) in self.seen {
            let at = stamp.map_or(not_before, |stamp| clock.arrival(stamp, not_before));
            let sighting = SegmentSighting { index, address: Vip::new(ip), mac: mac.octets(), kind, at };
            // A host that asks for a thousand others is one host.
            if kind == SightingKind::Asker {
                let known = askers.entry((index, ip, mac)).or_insert(sightings.len());
                if let Some(earlier) = sightings.get_mut(*known) {
                    earlier.at = earlier.at.max(at);
                    continue;
                }
            }
            sightings.push(sighting);
        }
        sightings.sort_by_key(|sighting| sighting.at);
        sightings
    }
}

/// What a frame says of an address, if it says something.
fn sighting(frame: &[u8], cookie: &[u8]) -> Option<Seen> {
    let (ip, mac, kind) = match classify(frame) {
        FrameClass::Claim(AddressClaim { ip, mac, kind }) => (ip, mac, claim_sighting(kind)),
        FrameClass::Probe { ip, mac } => (ip, mac, SightingKind::Probe),
        FrameClass::Other => {
            let frame = EthernetFrame::parse(frame)?;
            let echo = EchoMessage::parse(frame.payload)?;
            if echo.kind != EchoKind::Reply || echo.payload != cookie {
                return None;
            }
            (echo.source, frame.source, SightingKind::EchoReply)
        }
    };
    mac.is_unicast().then_some(Seen { ip, mac, kind })
}

fn claim_sighting(kind: ClaimKind) -> SightingKind {
    match kind {
        ClaimKind::GarpRequest | ClaimKind::GarpReply | ClaimKind::UnsolicitedAdvertisement { .. } => {
            SightingKind::Announcement
        }
        ClaimKind::ArpReply | ClaimKind::SolicitedAdvertisement { .. } => SightingKind::ResolveReply,
        ClaimKind::ArpRequestSender | ClaimKind::SolicitationSource => SightingKind::Asker,
    }
}

/// Frames that come from one of these are our own.
fn own_macs(links: &LinkTable) -> BTreeSet<MacAddr> {
    links.all().values().filter_map(|link| link.facts.mac).map(MacAddr).collect()
}
