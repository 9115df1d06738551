//! Netlink messages as bytes: taking datagrams apart, putting requests together.
//!
//! ```text
//!  0               4       6       8               12              16
//! +---------------+-------+-------+---------------+---------------+--------
//! | length        | type  | flags | sequence      | port          | body …
//! +---------------+-------+-------+---------------+---------------+--------
//! ```
//! All in host byte order, each message padded to four bytes.

use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use purelb_core::Mono;
use purelb_core::messages::AddressSpec;
use rtnetlink::packet_core::{
    NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NlasIterator,
};
use thiserror::Error;

const HEADER_LEN: usize = 16;
const ATTR_MESSAGE: u16 = 1;

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawMessage<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    pub(crate) body: &'a [u8],
}

/// The kernel said no.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{}", errno.desc(), hint.as_ref().map(|h| format!(" ({h})")).unwrap_or_default())]
pub struct KernelRefusal {
    pub errno: Errno,
    /// The kernel's own explanation, where it gives one.
    pub hint: Option<String>,
}

/// The whole messages in a datagram. What does not add up ends it: nothing after a
/// wrong length can be trusted.
pub(crate) fn messages(mut rest: &[u8]) -> impl Iterator<Item = RawMessage<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(rest, 0)?).ok()?;
        if length < HEADER_LEN {
            return None;
        }
        let message = RawMessage {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            seq: u32_at(rest, 8)?,
            body: rest.get(HEADER_LEN..length)?,
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Attributes that are whole; the walk ends at the first that is not.
pub(crate) fn attributes(body: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(body)
        .map_while(Result::ok)
        .map(|nla| (nla.kind(), nla.into_inner()))
        // The value follows the attribute's own header of four bytes.
        .filter_map(|(kind, nla)| {
            let length = usize::from(u16_at(nla, 0)?);
            Some((kind, nla.get(4..length)?))
        })
}

/// What an acknowledgement (`NLMSG_ERROR`) says.
pub(crate) fn acknowledgement(message: &RawMessage<'_>) -> Result<(), KernelRefusal> {
    match u32_at(message.body, 0).map(u32::cast_signed) {
        Some(0) => Ok(()),
        Some(code) => {
            Err(KernelRefusal { errno: Errno::from_raw(code.saturating_neg()), hint: explanation(message) })
        }
        None => Err(KernelRefusal { errno: Errno::EBADMSG, hint: None }),
    }
}

/// What the end of a dump (`NLMSG_DONE`) says: a dump can fail half way.
pub(crate) fn dump_end(message: &RawMessage<'_>) -> Result<(), KernelRefusal> {
    match u32_at(message.body, 0).map_or(0, u32::cast_signed) {
        code if code < 0 => Err(KernelRefusal { errno: Errno::from_raw(code.saturating_neg()), hint: None }),
        _ => Ok(()),
    }
}

fn explanation(message: &RawMessage<'_>) -> Option<String> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    // Error code, then the request: its header only, or all of it.
    let request = if message.flags & NLM_F_CAPPED != 0 {
        HEADER_LEN
    } else {
        usize::try_from(u32_at(message.body, 4)?).ok()?.checked_next_multiple_of(4)?
    };
    let extra = message.body.get(4_usize.checked_add(request)?..)?;
    attributes(extra).find(|(kind, _)| *kind == ATTR_MESSAGE).map(|(_, text)| text_of(text))
}

/// Text up to its closing zero.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// What a request says.
#[derive(Clone, Debug)]
pub(crate) enum RequestPayload {
    Route(Box<RouteNetlinkMessage>),
    /// A kind that the library has no words for.
    Plain {
        kind: u16,
        body: Vec<u8>,
    },
}

impl From<RouteNetlinkMessage> for RequestPayload {
    fn from(message: RouteNetlinkMessage) -> Self {
        Self::Route(Box::new(message))
    }
}

/// A request and its flags besides `NLM_F_REQUEST`.
#[derive(Clone, Debug)]
pub(crate) struct NetlinkRequest {
    body: RequestBody,
    pub(crate) flags: u16,
}

#[derive(Clone, Debug)]
enum RequestBody {
    Ready(RequestPayload),
    /// Says something about time, and so is made when it is sent.
    Timed {
        spec: AddressSpec,
        make: fn(&AddressSpec, Mono) -> Option<RouteNetlinkMessage>,
    },
}

impl NetlinkRequest {
    pub(crate) fn new(payload: impl Into<RequestPayload>, flags: u16) -> Self {
        Self { body: RequestBody::Ready(payload.into()), flags }
    }

    pub(crate) fn timed(
        spec: AddressSpec,
        make: fn(&AddressSpec, Mono) -> Option<RouteNetlinkMessage>,
        flags: u16,
    ) -> Self {
        Self { body: RequestBody::Timed { spec, make }, flags }
    }

    /// By when it has to reach the kernel is part of what it says.
    pub(crate) fn is_timed(&self) -> bool {
        matches!(&self.body, RequestBody::Timed { spec, .. } if spec.until.is_some())
    }

    /// Appends the request to a datagram, as it has to be now. `false`: it is too late
    /// for it.
    #[must_use]
    pub(crate) fn encode(self, now: Mono, seq: u32, datagram: &mut Vec<u8>) -> bool {
        let payload = match self.body {
            RequestBody::Ready(payload) => Some(payload),
            RequestBody::Timed { spec, make } => make(&spec, now).map(RequestPayload::from),
        };
        let Some(payload) = payload else { return false };
        let start = datagram.len();
        let flags = self.flags | NLM_F_REQUEST;
        match payload {
            RequestPayload::Route(message) => {
                let mut header = NetlinkHeader::default();
                header.flags = flags;
                header.sequence_number = seq;
                let mut message = NetlinkMessage::new(header, (*message).into());
                message.finalize();
                let length = message.buffer_len();
                datagram.resize(start + length.next_multiple_of(4), 0);
                message.serialize(&mut datagram[start..start + length]);
            }
            RequestPayload::Plain { kind, body } => {
                let length = u32::try_from(HEADER_LEN + body.len()).unwrap_or(u32::MAX);
                datagram.extend(length.to_ne_bytes());
                datagram.extend(kind.to_ne_bytes());
                datagram.extend(flags.to_ne_bytes());
                datagram.extend(seq.to_ne_bytes());
                // The port: the kernel fills it in.
                datagram.extend([0; 4]);
                datagram.extend(body);
                datagram.resize(datagram.len().next_multiple_of(4), 0);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
