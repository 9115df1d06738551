//! The sockets of one interface.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use nix::sys::time::TimeSpec;
use purelb_core::Mono;
use purelb_core::ids::IfIndex;
use purelb_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::frame_filter;
use super::packet_socket::PacketSocket;

/// Frames of one turn and socket. The rest waits for the next one, a moment later, so that
/// a flood on the segment keeps nobody from the engine.
const FRAMES_PER_TURN: usize = 512;

#[derive(Debug)]
pub(super) struct InterfaceSockets {
    /// Wake the task that reads.
    claims: [Heard<AsyncFd<PacketSocket>>; 2],
    /// Are read when it is awake.
    rest: [Heard<PacketSocket>; 3],
}

/// A socket, and until when every frame of it has been read.
#[derive(Debug)]
struct Heard<S> {
    socket: S,
    until: Mono,
}

/// What one turn over all sockets of an interface brought.
#[derive(Debug)]
pub(super) struct InterfaceTurn {
    pub(super) until: Mono,
    pub(super) drained: bool,
    pub(super) lost: u64,
}

impl InterfaceSockets {
    /// In a runtime, and in the calling thread's network namespace.
    pub(super) fn open(index: IfIndex, echo_id: u16, now: Mono) -> io::Result<Self> {
        let claims = |ethertype, filter: &[_]| {
            let socket = wake_for(PacketSocket::open(ethertype, index, filter)?)?;
            io::Result::Ok(Heard { socket, until: now })
        };
        let rest = |ethertype, filter: &[_]| {
            let socket = PacketSocket::open(ethertype, index, filter)?;
            io::Result::Ok(Heard { socket, until: now })
        };
        Ok(Self {
            claims: [
                claims(ETHERTYPE_ARP, &frame_filter::arp_claims())?,
                claims(ETHERTYPE_IPV6, &frame_filter::ipv6_claims())?,
            ],
            rest: [
                rest(ETHERTYPE_ARP, &frame_filter::arp_rest())?,
                rest(ETHERTYPE_IPV4, &frame_filter::ipv4_rest(echo_id))?,
                rest(ETHERTYPE_IPV6, &frame_filter::ipv6_rest(echo_id))?,
            ],
        })
    }

    /// Five of them, in the order of [`Self::read`].
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let claims = self.claims.iter().map(|heard| heard.socket.get_ref().as_fd());
        claims.chain(self.rest.iter().map(|heard| heard.socket.as_fd()))
    }

    /// Reads the sockets that have something; `ready` tells which, as they were at `now`.
    /// `take` is told since when the frame can have been there at the earliest.
    pub(super) fn read(
        &mut self,
        now: Mono,
        ready: &[bool],
        mut take: impl FnMut(&[u8], Option<TimeSpec>, Mono),
    ) -> io::Result<InterfaceTurn> {
        let claims = self.claims.iter_mut().map(|heard| (heard.socket.get_ref(), &mut heard.until));
        let rest = self.rest.iter_mut().map(|heard| (&heard.socket, &mut heard.until));
        let mut all = InterfaceTurn { until: now, drained: true, lost: 0 };
        for ((socket, until), ready) in claims.chain(rest).zip(ready) {
            if *ready {
                let not_before = *until;
                let turn = socket.read(FRAMES_PER_TURN, |frame, stamp| take(frame, stamp, not_before))?;
                all.lost += turn.lost;
                all.drained &= turn.drained;
                if !turn.drained {
                    all.until = all.until.min(not_before);
                    continue;
                }
            }
            *until = now;
        }
        Ok(all)
    }

    /// Ready when somebody claimed an address since this was last asked.
    pub(super) fn poll_claim(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut any = Poll::Pending;
        for heard in &self.claims {
            // An error is for whoever reads.
            while let Poll::Ready(guard) = heard.socket.poll_read_ready(cx) {
                any = Poll::Ready(());
                match guard {
                    // Whatever comes after this makes it ready again.
                    Ok(mut guard) => guard.clear_ready(),
                    Err(_) => break,
                }
            }
        }
        any
    }
}

#[allow(unsafe_code)]
fn wake_for(socket: PacketSocket) -> io::Result<AsyncFd<PacketSocket>> {
    // SAFETY: the descriptor belongs to `socket`, which the result keeps and never gives out
    // by value: it stays open and the same for as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}
