//! The dummy interface that carries the addresses of remote pools.
//!
//! One that exists is adopted, whatever its kind: an operator may want something else
//! there. One that we make carries the alias [`ALIAS`]; only such a one is ever removed,
//! also by a later run of the daemon.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use nix::errno::Errno;
use purelb_core::ids::IfName;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use crate::netlink::apply::kernel_applier::ApplyError;
use crate::netlink::client::{NetlinkClient, NetlinkError};
use crate::netlink::message::NetlinkRequest;
use crate::netlink::parse::{self, KernelEvent, KernelLink};

/// The alias of a link that we made (`ip link show` prints it).
pub(crate) const ALIAS: &str = "purelb";

pub(crate) fn ensure(client: &mut NetlinkClient, name: &IfName) -> Result<(), ApplyError> {
    let fail = |error| link_error(name, error);
    if let Some(link) = find(client, name).map_err(fail)? {
        if link.facts.up {
            return Ok(());
        }
        // Nothing else of an adopted link is ours to change.
        return client.change(up(name, LinkFlags::Up), 0).map_err(fail);
    }
    match make(client, name, InfoKind::Dummy) {
        Err(NetlinkError::Refused(no)) if no.errno == Errno::EOPNOTSUPP => {
            tracing::warn!(
                interface = %name,
                "this kernel has no dummy interfaces: a bridge without ports takes its place"
            );
            make(client, name, InfoKind::Bridge).map_err(fail)
        }
        made => made.map_err(fail),
    }
}

pub(crate) fn remove(client: &mut NetlinkClient, name: &IfName) -> Result<(), ApplyError> {
    let fail = |error| link_error(name, error);
    let Some(link) = find(client, name).map_err(fail)? else {
        return Ok(());
    };
    if !link.facts.ours {
        tracing::debug!(interface = %name, "not made by purelb: it stays");
        return Ok(());
    }
    let mut message = LinkMessage::default();
    message.header.index = link.facts.index.0;
    match client.change(RouteNetlinkMessage::DelLink(message), 0) {
        Err(NetlinkError::Refused(no)) if no.errno == Errno::ENODEV => Ok(()),
        other => other.map_err(fail),
    }
}

fn link_error(name: &IfName, error: NetlinkError) -> ApplyError {
    match error {
        NetlinkError::Refused(no) if no.errno == Errno::EPERM => ApplyError::NotPermitted,
        error => ApplyError::Link { name: name.clone(), error },
    }
}

fn find(client: &mut NetlinkClient, name: &IfName) -> Result<Option<KernelLink>, NetlinkError> {
    let request = RouteNetlinkMessage::GetLink(named(name)).into();
    client.get(&request, |message| match parse::event(message) {
        Some(KernelEvent::Link(link)) => Some(link),
        _ => None,
    })
}

/// All in one datagram, which the kernel works off whatever becomes of this process:
/// no link of ours is left behind without its mark.
fn make(client: &mut NetlinkClient, name: &IfName, kind: InfoKind) -> Result<(), NetlinkError> {
    let mut create = named(name);
    create.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
    let mut mark = named(name);
    mark.attributes.push(LinkAttribute::IfAlias(ALIAS.to_owned()));
    // Nobody is there to talk to: no link-local address, hence no router solicitation.
    let mut quiet = named(name);
    quiet.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![
        AfSpecInet6::AddrGenMode(In6AddrGenMode::None),
    ])]));
    // A dummy is without ARP by itself, and so without duplicate address detection, which
    // a bridge without ports could never finish.
    let set = |message| NetlinkRequest::new(RouteNetlinkMessage::SetLink(message), 0);
    let mut answers = client
        .transact(vec![
            NetlinkRequest::new(RouteNetlinkMessage::NewLink(create), NLM_F_CREATE | NLM_F_EXCL),
            set(mark),
            set(quiet),
            NetlinkRequest::new(up(name, LinkFlags::Up | LinkFlags::Noarp), 0),
        ])
        .into_iter();
    let mut next = || answers.next().unwrap_or(Err(NetlinkError::AnswerLost));
    let (created, marked, quieted, upped) = (next(), next(), next(), next());
    created?;
    if let Err(error) = quieted {
        // A host without IPv6 says so here.
        tracing::debug!(interface = %name, %error, "IPv6 settings of the interface");
    }
    marked.and(upped)
}

fn up(name: &IfName, flags: LinkFlags) -> RouteNetlinkMessage {
    let mut message = named(name);
    message.header.flags = flags;
    message.header.change_mask = flags;
    RouteNetlinkMessage::SetLink(message)
}

fn named(name: &IfName) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(name.to_string())];
    message
}
