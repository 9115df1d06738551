//! Requests to the kernel, each with its answer.
//!
//! The kernel works a request off while we send it, so that the answers lie in the
//! receive buffer when `send` returns: many requests can go out in one datagram, and
//! are carried out in order.

use std::io;
use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};
use thiserror::Error;

use crate::host::clock;
use crate::netlink::message::{self, KernelRefusal, NetlinkRequest, RawMessage, RequestPayload};
use crate::netlink::socket::{NetlinkSocket, READ_BUFFER, SocketRead};

/// Requests per datagram: their answers (some 800 bytes each as the kernel counts
/// them) must fit the receive buffer, or they are lost.
const REQUESTS_PER_DATAGRAM: usize = 256;
const RECEIVE_BUFFER: usize = 1024 * 1024;
/// An answer is there at once; this only keeps a kernel that never answers from
/// holding us for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The kernel counts a lifetime from when it gets to the request, which waits while
/// another process holds the kernel's configuration lock. What took longer than this
/// would outlive what it was given, and is said to have been held up.
const HELD_UP_AFTER: Duration = Duration::from_millis(250);

/// How often a dump that the kernel says was disturbed is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DumpTries(u32);

impl DumpTries {
    /// Until it is whole, within reason: somebody may change addresses without end.
    pub(crate) const SEVERAL: Self = Self(8);
    /// A walk over routes goes by their keys: what changes elsewhere in the table does not
    /// hide a route from it, and a table that always changes would be walked for ever.
    pub(crate) const ONE: Self = Self(1);
}

/// What a dump brought.
#[derive(Debug)]
pub(crate) struct DumpResult<T> {
    pub(crate) found: T,
    /// False: something changed while it was taken, each time, and some of what is there
    /// may be missing. Nothing may be concluded from an absence.
    pub(crate) whole: bool,
}

#[derive(Debug, Error)]
pub enum NetlinkError {
    #[error("the netlink socket failed: {0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(#[from] KernelRefusal),
    #[error("the kernel's answer was lost; the state is compared and the change tried again")]
    AnswerLost,
    #[error("it came too late to be sent")]
    TooLate,
    #[error("the kernel took {0:?} to get to it")]
    HeldUp(Duration),
}

#[derive(Debug)]
pub(crate) struct NetlinkClient {
    socket: NetlinkSocket,
    seq: u32,
    buffer: Box<[u8]>,
}

impl NetlinkClient {
    /// In the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = NetlinkSocket::open(&[], RECEIVE_BUFFER)?;
        socket.set_receive_timeout(ANSWER_TIMEOUT)?;
        Ok(Self { socket, seq: 0, buffer: vec![0; READ_BUFFER].into_boxed_slice() })
    }

    /// Carries the requests out in order, however the ones before ended; one result each.
    pub(crate) fn transact(&mut self, requests: Vec<NetlinkRequest>) -> Vec<Result<(), NetlinkError>> {
        let mut results = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let first = self.seq.wrapping_add(1);
            let mut datagram = Vec::new();
            let mut answers = Vec::new();
            let mut timed = Vec::new();
            let sent = clock::now();
            for mut request in requests.by_ref().take(REQUESTS_PER_DATAGRAM) {
                self.seq = self.seq.wrapping_add(1);
                request.flags |= NLM_F_ACK;
                timed.push(request.is_timed());
                let made = request.encode(sent, self.seq, &mut datagram);
                answers.push((!made).then_some(Err(NetlinkError::TooLate)));
            }
            let answers = self.send_and_collect(&datagram, first, answers);
            let took = clock::now().since(sent);
            results.extend(answers.into_iter().zip(timed).map(|(answer, timed)| match answer {
                Ok(()) if timed && took > HELD_UP_AFTER => Err(NetlinkError::HeldUp(took)),
                other => other,
            }));
        }
        results
    }

    /// One answer for each place that has none yet.
    fn send_and_collect(
        &mut self,
        datagram: &[u8],
        first: u32,
        mut answers: Vec<Option<Result<(), NetlinkError>>>,
    ) -> Vec<Result<(), NetlinkError>> {
        let mut missing = answers.iter().filter(|a| a.is_none()).count();
        if missing > 0
            && let Err(error) = self.socket.send(datagram)
        {
            let failed = || NetlinkError::Io(io::Error::new(error.kind(), error.to_string()));
            return answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(failed()))).collect();
        }
        while missing > 0 {
            // After an overrun the answers that did arrive are still read; what never
            // comes ends with the timeout.
            let length = match self.socket.read(&mut self.buffer) {
                Ok(SocketRead::Datagram(length)) => length,
                Ok(SocketRead::Overrun) => continue,
                Err(_) => break,
            };
            for message in message::messages(&self.buffer[..length]) {
                let at = usize::try_from(message.seq.wrapping_sub(first)).unwrap_or(usize::MAX);
                if message.kind != NLMSG_ERROR {
                    continue;
                }
                if let Some(slot) = answers.get_mut(at)
                    && slot.is_none()
                {
                    *slot = Some(message::acknowledgement(&message).map_err(NetlinkError::Refused));
                    missing -= 1;
                }
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or(Err(NetlinkError::AnswerLost))).collect()
    }

    /// One change.
    pub(crate) fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), NetlinkError> {
        self.transact(vec![NetlinkRequest::new(message, flags)])
            .pop()
            .unwrap_or(Err(NetlinkError::AnswerLost))
    }

    /// Everything of one kind, gathered by `take`. What the kernel says was disturbed is
    /// asked for again, and what the tries before showed is kept: each may have left
    /// something out, and none shows what was never there.
    pub(crate) fn dump<T: Default>(
        &mut self,
        request: &RequestPayload,
        tries: DumpTries,
        mut take: impl FnMut(&mut T, &RawMessage<'_>),
    ) -> Result<DumpResult<T>, NetlinkError> {
        let mut gathered = T::default();
        for _ in 0..tries.0 {
            let mut found = T::default();
            let whole = self.ask(request, NLM_F_DUMP, |message| {
                take(&mut found, message);
                take(&mut gathered, message);
            })?;
            if whole {
                return Ok(DumpResult { found, whole });
            }
        }
        Ok(DumpResult { found: gathered, whole: false })
    }

    /// One object, or `None` if the kernel has no such.
    pub(crate) fn get<T>(
        &mut self,
        request: &RequestPayload,
        mut read: impl FnMut(&RawMessage<'_>) -> Option<T>,
    ) -> Result<Option<T>, NetlinkError> {
        let mut found = None;
        match self.ask(request, NLM_F_ACK, |message| {
            found = read(message).or(found.take());
        }) {
            Ok(_) => Ok(found),
            Err(NetlinkError::Refused(no)) if no.errno == Errno::ENODEV => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks, and reads until the end of the answer. `false`: it was disturbed.
    fn ask(
        &mut self,
        request: &RequestPayload,
        flags: u16,
        mut take: impl FnMut(&RawMessage<'_>),
    ) -> Result<bool, NetlinkError> {
        self.seq = self.seq.wrapping_add(1);
        let mut datagram = Vec::new();
        // Not timed, so never too late.
        let _ = NetlinkRequest::new(request.clone(), flags).encode(clock::now(), self.seq, &mut datagram);
        self.socket.send(&datagram)?;
        let mut clean = true;
        loop {
            let length = match self.socket.read(&mut self.buffer)? {
                SocketRead::Datagram(length) => length,
                SocketRead::Overrun => {
                    clean = false;
                    continue;
                }
            };
            for message in message::messages(&self.buffer[..length]) {
                // An answer to an earlier request that was given up.
                if message.seq != self.seq {
                    continue;
                }
                clean &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_DONE => return Ok(message::dump_end(&message).map(|()| clean)?),
                    NLMSG_ERROR => return Ok(message::acknowledgement(&message).map(|()| clean)?),
                    _ => take(&message),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
