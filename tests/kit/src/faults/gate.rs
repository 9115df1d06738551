//! The link between a client and its proxy: up, or cut in one of three ways.
//!
//! A cut acts on the bytes of connections that exist already, below HTTP and TLS: they
//! stay open and nothing passes, as behind a pulled cable. What was sent meanwhile
//! passes when the link is back, as a retransmission would.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How a client is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// Connections stall; new ones are taken and stall as well.
    Hang,
    /// Connections stall; new ones are refused.
    Refuse,
    /// Connections break; new ones are refused: a server that was killed.
    Down,
}

#[derive(Debug, Default)]
struct State {
    /// Every cut in force. The worst of them counts.
    cuts: BTreeMap<u64, Cut>,
    next: u64,
    waiting: Vec<Waker>,
}

/// The state of one link.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    worst: watch::Sender<Option<Cut>>,
}

impl Gate {
    pub(super) fn new() -> Arc<Gate> {
        Arc::new(Gate { state: Mutex::default(), worst: watch::Sender::new(None) })
    }

    /// Tells the listener what is in force.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Cut>> {
        self.worst.subscribe()
    }

    pub(super) fn cut(self: &Arc<Self>, cut: Cut) -> Severed {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next += 1;
        let id = state.next;
        state.cuts.insert(id, cut);
        self.publish(&mut state);
        Severed { gate: self.clone(), id }
    }

    fn publish(&self, state: &mut State) {
        let worst = state.cuts.values().max().copied();
        self.worst.send_replace(worst);
        if worst.is_none() {
            state.waiting.drain(..).for_each(Waker::wake);
        }
    }

    /// Ready when bytes may pass.
    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.cuts.is_empty() {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A cut in force; the link is back when this is dropped (and no other cut is left).
#[derive(Debug)]
#[must_use = "the link is restored when this is dropped"]
pub struct Severed {
    gate: Arc<Gate>,
    id: u64,
}

impl Severed {
    /// Ends the cut.
    pub fn restore(self) {}
}

impl Drop for Severed {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.cuts.remove(&self.id);
        self.gate.publish(&mut state);
    }
}

/// A connection behind a gate.
#[derive(Debug)]
pub(super) struct Gated {
    socket: TcpStream,
    gate: Arc<Gate>,
}

impl Gated {
    pub(super) fn new(socket: TcpStream, gate: Arc<Gate>) -> Gated {
        Gated { socket, gate }
    }
}

macro_rules! when_open {
    ($gated:expr, $cx:expr) => {
        if $gated.gate.poll_open($cx).is_pending() {
            return Poll::Pending;
        }
    };
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        when_open!(self, cx);
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        when_open!(self, cx);
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        when_open!(self, cx);
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        when_open!(self, cx);
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
