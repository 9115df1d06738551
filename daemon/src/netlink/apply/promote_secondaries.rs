//! Keeps IPv4 addresses from going down with their primary.
//!
//! Of several IPv4 addresses in one subnet on an interface the kernel calls the first
//! the primary. When that one is removed or expires, it removes all the others too,
//! an operator's among them, unless the interface has `promote_secondaries` set.
//! systemd sets it everywhere; where nobody did, we set it on the interface before we
//! add the first address that is not alone in its subnet.

use std::collections::BTreeSet;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{AfSpecInet, AfSpecUnspec, InetDevConf, LinkAttribute, LinkMessage};
use purelb_core::ids::IfIndex;
use purelb_core::messages::KernelChange;

use crate::netlink::client::NetlinkClient;
use crate::netlink::ownership::AddressId;
use crate::netlink::parse::{self, KernelEvent};

/// Called before a batch is sent. A failure is only reported: the change itself is
/// still right, and what the kernel removes too much, the engine puts back.
pub(crate) fn set_where_needed(client: &mut NetlinkClient, ops: &[KernelChange], added: &[AddressId]) {
    let removed = ops.iter().filter_map(|op| match op {
        KernelChange::Remove { index, net } => Some((*index, *net)),
        _ => None,
    });
    // A full-length prefix is a subnet of its own: it has no secondaries.
    let shared = |net: &IpNet| matches!(net, IpNet::V4(net) if net.prefix_len() < 32);
    let interfaces: BTreeSet<IfIndex> =
        removed.chain(added.iter().copied()).filter(|(_, net)| shared(net)).map(|(index, _)| index).collect();
    for index in interfaces {
        let link = client.get(&get(index).into(), |message| match parse::event(message) {
            Some(KernelEvent::Link(link)) => Some(link),
            _ => None,
        });
        let Ok(Some(link)) = link else { continue };
        if link.promotes_secondaries != Some(false) {
            continue;
        }
        match client.change(promote(index), 0) {
            Ok(()) => tracing::info!(
                interface = %link.facts.name,
                "set promote_secondaries, so that removing one address does not remove its neighbours"
            ),
            Err(error) => tracing::warn!(
                interface = %link.facts.name, %error,
                "promote_secondaries could not be set: removing one address may remove others of its subnet"
            ),
        }
    }
}

fn get(index: IfIndex) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index.0;
    RouteNetlinkMessage::GetLink(message)
}

fn promote(index: IfIndex) -> RouteNetlinkMessage {
    let mut settings = InetDevConf::default();
    settings.promote_secondaries = 1;
    let mut message = LinkMessage::default();
    message.header.index = index.0;
    message.attributes =
        vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(
            settings,
        )])])];
    RouteNetlinkMessage::SetLink(message)
}
