//! A route-netlink socket of one namespace: one question, one answer, no async.

use std::io;

use anyhow::{Context, Result, bail};
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::netns::Netns;

#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open(netns: &Netns) -> Result<Self> {
        let socket = netns.enter(|| {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok::<_, io::Error>(socket)
        })?;
        Ok(Self { socket: socket.context("opening a netlink socket")?, sequence: 0 })
    }

    /// Everything the kernel answers to a dump request. A dump that something changed
    /// under is asked for again: half a picture is worse than a late one.
    pub(super) fn dump(&mut self, ask: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>> {
        loop {
            self.send(ask.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            let mut found = Vec::new();
            let mut interrupted = false;
            'answer: loop {
                for message in self.receive()? {
                    // NLM_F_DUMP_INTR
                    interrupted |= message.header.flags & 0x10 != 0;
                    match message.payload {
                        NetlinkPayload::InnerMessage(inner) => found.push(inner),
                        NetlinkPayload::Done(_) => break 'answer,
                        NetlinkPayload::Error(error) => bail!("netlink dump: {}", error.to_io()),
                        other => bail!("netlink dump: unexpected {other:?}"),
                    }
                }
            }
            if !interrupted {
                return Ok(found);
            }
        }
    }

    /// Asks for a change and waits for the kernel's word on it.
    pub(super) fn change(&mut self, ask: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(ask, NLM_F_REQUEST | NLM_F_ACK | flags).map_err(io::Error::other)?;
        for message in self.receive().map_err(io::Error::other)? {
            if let NetlinkPayload::Error(answer) = message.payload {
                return if answer.code.is_none() { Ok(()) } else { Err(answer.to_io()) };
            }
        }
        Err(io::Error::other("the kernel did not acknowledge"))
    }

    fn send(&mut self, ask: RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(ask));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).context("sending to netlink")?;
        Ok(())
    }

    /// The messages of one datagram that answer the last question.
    fn receive(&mut self) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
        let (bytes, _) = self.socket.recv_from_full().context("reading from netlink")?;
        let mut messages = parse(&bytes)?;
        messages.retain(|message| message.header.sequence_number == self.sequence);
        Ok(messages)
    }
}

/// Splits a datagram into its messages.
pub(super) fn parse(mut bytes: &[u8]) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).context("reading netlink")?;
        let length = usize::try_from(message.header.length)?.next_multiple_of(4);
        messages.push(message);
        if length == 0 {
            break;
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(messages)
}
