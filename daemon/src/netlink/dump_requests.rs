//! What we ask the kernel to list.

use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_packet_route::route::{RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use purelb_core::ids::IfIndex;

use crate::netlink::message::RequestPayload;
use crate::netlink::parse::RTM_GETNEXTHOP;

/// All links, without their counters.
pub(crate) fn links() -> RequestPayload {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    RouteNetlinkMessage::GetLink(message).into()
}

/// All addresses, or those of one interface where the kernel can filter.
pub(crate) fn addresses(only: Option<IfIndex>) -> RequestPayload {
    let mut message = AddressMessage::default();
    message.header.index = only.map_or(0, |index| index.0);
    RouteNetlinkMessage::GetAddress(message).into()
}

/// The kernel filters by table and kind, where it can: the main table of a router can
/// hold a million routes, other tables as many.
pub(crate) fn main_routes(family: AddressFamily) -> RequestPayload {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.kind = RouteType::Unicast;
    RouteNetlinkMessage::GetRoute(message).into()
}

/// All nexthop objects: a header of any family, and no filter.
pub(crate) fn nexthops() -> RequestPayload {
    RequestPayload::Plain { kind: RTM_GETNEXTHOP, body: vec![0; 8] }
}
