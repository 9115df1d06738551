//! Links, addresses and default routes out of netlink messages.
//!
//! No message makes this panic, and a message that lacks what it must have is `None`.

use std::net::IpAddr;

use ipnet::IpNet;
use purelb_core::facts::{AddrFacts, LinkFacts};
use purelb_core::ids::{Family, IfIndex, IfName};

use crate::netlink::apply::dummy_link::ALIAS;
use crate::netlink::message::{RawMessage, attributes, text_of, u16_at, u32_at};
use crate::netlink::ownership::AddressOwnership;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
pub(crate) const RTM_GETNEXTHOP: u16 = 106;

const LINK_HEADER: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET_CONF: u16 = 1;
/// Position in the array of IPv4 settings; the kernel counts from one.
const PROMOTE_SECONDARIES: usize = 20 - 1;
const ARPHRD_ETHER: u16 = 1;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 1 << 3;
const IFF_NOARP: u32 = 1 << 7;
const IFF_LOWER_UP: u32 = 1 << 16;

const ADDRESS_HEADER: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFA_PROTO: u16 = 11;
const IFA_F_SECONDARY: u32 = 0x01;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_DEPRECATED: u32 = 0x20;
const IFA_F_TENTATIVE: u32 = 0x40;
const IFA_F_PERMANENT: u32 = 0x80;
const IFA_F_NOPREFIXROUTE: u32 = 0x200;

const ROUTE_HEADER: usize = 12;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
/// A gateway of the other family.
const RTA_VIA: u16 = 18;
const RTA_NH_ID: u16 = 30;
const RTN_UNICAST: u8 = 1;
const RT_TABLE_MAIN: u32 = 254;
const RT_SCOPE_LINK: u8 = 253;
const NEXTHOP_HEADER: usize = 8;

/// Of a nexthop object; the next hops inside a route have a header of their own.
const NEXTHOP_OBJECT_HEADER: usize = 8;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const GROUP_ENTRY: usize = 8;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// What a message of ours to know tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelEvent {
    Link(KernelLink),
    LinkGone(IfIndex),
    Address(KernelAddress),
    AddressGone(KernelAddress),
    /// A default route of the main table changed; which ones there are now, a dump says.
    DefaultRoute,
    /// This nexthop object changed, or is gone.
    Nexthop(u32),
}

/// A link, and what of it the engine does not need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLink {
    pub facts: LinkFacts,
    /// The kernel neither asks nor answers for addresses here (dummy, tunnels).
    pub no_arp: bool,
    /// IPv4: secondary addresses survive their primary. `None` where not reported.
    pub promotes_secondaries: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelAddress {
    pub(crate) index: IfIndex,
    pub(crate) net: IpNet,
    /// The other end of a point-to-point address.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) flags: u32,
    pub(crate) link_scope: bool,
    pub(crate) proto: Option<u8>,
    /// When it was created, in hundredths of a second since boot.
    pub(crate) created: u32,
}

impl KernelAddress {
    pub(crate) fn facts(&self, ownership: &AddressOwnership) -> AddrFacts {
        let is = |flag| self.flags & flag != 0;
        AddrFacts {
            index: self.index,
            net: self.net,
            ours: ownership.is_ours(self),
            link_local: self.link_scope || is_link_local(self.net.addr()),
            // An optimistic address is tentative as well: it may be used, but others
            // must not be told to override what they know (RFC 4429).
            tentative: is(IFA_F_TENTATIVE),
            dad_failed: is(IFA_F_DADFAILED),
            deprecated: is(IFA_F_DEPRECATED),
            permanent: is(IFA_F_PERMANENT),
            no_prefix_route: self.no_prefix_route(),
        }
    }

    pub(crate) fn no_prefix_route(&self) -> bool {
        self.flags & IFA_F_NOPREFIXROUTE != 0
    }

    pub(crate) fn secondary(&self) -> bool {
        self.flags & IFA_F_SECONDARY != 0
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

pub(crate) fn event(message: &RawMessage<'_>) -> Option<KernelEvent> {
    match message.kind {
        RTM_NEWLINK => link(message.body).map(KernelEvent::Link),
        RTM_DELLINK => link_index(message.body).map(KernelEvent::LinkGone),
        RTM_NEWADDR => address(message.body).map(KernelEvent::Address),
        RTM_DELADDR => address(message.body).map(KernelEvent::AddressGone),
        RTM_NEWROUTE | RTM_DELROUTE if is_default(message.body) => {
            (table(message.body)? == RT_TABLE_MAIN).then_some(KernelEvent::DefaultRoute)
        }
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => nexthop(message).map(|nexthop| KernelEvent::Nexthop(nexthop.id)),
        _ => None,
    }
}

/// Messages of the bridge and IPv6 families speak of a link's membership in a bridge
/// or of its settings: their RTM_DELLINK does not mean that the link is gone.
fn link_index(body: &[u8]) -> Option<IfIndex> {
    (*body.first()? == AF_UNSPEC).then_some(())?;
    u32_at(body, 4).filter(|index| *index != 0).map(IfIndex)
}

fn link(body: &[u8]) -> Option<KernelLink> {
    let index = link_index(body)?;
    let layer = u16_at(body, 2)?;
    let flags = u32_at(body, 8)?;
    let (mut name, mut mac, mut alias, mut made_as, mut promotes_secondaries) =
        (None, None, None, None, None);
    for (kind, value) in attributes(body.get(LINK_HEADER..)?) {
        match kind {
            IFLA_IFNAME => name = IfName::new(&text_of(value)).ok(),
            IFLA_ADDRESS if layer == ARPHRD_ETHER => mac = value.try_into().ok(),
            IFLA_IFALIAS => alias = Some(text_of(value)),
            IFLA_LINKINFO => {
                let mut about = attributes(value).filter(|(kind, _)| *kind == IFLA_INFO_KIND);
                made_as = about.next().map(|(_, kind)| text_of(kind));
            }
            IFLA_AF_SPEC => promotes_secondaries = ipv4_setting(value, PROMOTE_SECONDARIES),
            _ => {}
        }
    }
    // The alias alone is anybody's to set: nobody's VLAN or bond is ours to remove.
    let no_arp = flags & IFF_NOARP != 0;
    let of_our_kind = match made_as.as_deref() {
        Some("dummy") => true,
        Some("bridge") => no_arp,
        _ => false,
    };
    Some(KernelLink {
        facts: LinkFacts {
            index,
            name: name?,
            loopback: flags & IFF_LOOPBACK != 0,
            up: flags & IFF_UP != 0,
            carrier: flags & IFF_LOWER_UP != 0,
            mac,
            ours: of_our_kind && alias.as_deref() == Some(ALIAS),
        },
        no_arp,
        promotes_secondaries,
    })
}

fn ipv4_setting(af_spec: &[u8], position: usize) -> Option<bool> {
    let (_, inet) = attributes(af_spec).find(|(kind, _)| *kind == u16::from(AF_INET))?;
    let (_, settings) = attributes(inet).find(|(kind, _)| *kind == IFLA_INET_CONF)?;
    u32_at(settings, position * 4).map(|value| value != 0)
}

pub(crate) fn address(body: &[u8]) -> Option<KernelAddress> {
    let (family, prefix) = (*body.first()?, *body.get(1)?);
    let (mut flags, scope) = (u32::from(*body.get(2)?), *body.get(3)?);
    let index = u32_at(body, 4).filter(|index| *index != 0).map(IfIndex)?;
    let (mut local, mut other, mut proto, mut created) = (None, None, None, 0);
    for (kind, value) in attributes(body.get(ADDRESS_HEADER..)?) {
        match kind {
            IFA_LOCAL => local = ip(family, value),
            IFA_ADDRESS => other = ip(family, value),
            // The header has room for the first eight flags only.
            IFA_FLAGS => flags = u32_at(value, 0).unwrap_or(flags),
            IFA_CACHEINFO => created = u32_at(value, 8).unwrap_or(0),
            IFA_PROTO => proto = value.first().copied(),
            _ => {}
        }
    }
    // The interface's own address is IFA_LOCAL, and IFA_ADDRESS the far end of a
    // point-to-point link; IPv6 leaves IFA_LOCAL out where there is no far end.
    let own = local.or(other)?;
    Some(KernelAddress {
        index,
        net: IpNet::new(own, prefix).ok()?,
        peer: other.filter(|ip| *ip != own),
        flags,
        link_scope: scope == RT_SCOPE_LINK,
        proto,
        created,
    })
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        AF_INET6 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Looks at the header alone: a router's table changes a thousand times a second, and
/// none of that is about default routes.
fn is_default(body: &[u8]) -> bool {
    matches!(body, [AF_INET | AF_INET6, 0, ..])
}

fn table(body: &[u8]) -> Option<u32> {
    // The header's field has room for the small numbers only.
    let small = u32::from(*body.get(4)?);
    let mut attributes = attributes(body.get(ROUTE_HEADER..)?);
    attributes.find(|(kind, _)| *kind == RTA_TABLE).map_or(Some(small), |(_, value)| u32_at(value, 0))
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    pub(crate) index: IfIndex,
    pub(crate) gateway: Option<IpAddr>,
}

impl NextHop {
    /// Without an interface it leads nowhere.
    fn of(index: Option<u32>, gateway: Option<IpAddr>) -> Option<Self> {
        index.filter(|index| *index != 0).map(|index| Self { index: IfIndex(index), gateway })
    }
}

/// A default route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedRoute {
    pub(crate) family: Family,
    pub(crate) metric: u32,
    /// Its next hops, as far as it names them itself.
    pub(crate) hops: Vec<NextHop>,
    /// The nexthop object that has them. With `net.ipv4.nexthop_compat_mode` off, the
    /// route names nothing else.
    pub(crate) nexthop: Option<u32>,
    /// The source address it prefers: without that address it vanishes.
    pub(crate) source: Option<IpAddr>,
}

pub(crate) fn default_route(message: &RawMessage<'_>) -> Option<ParsedRoute> {
    if message.kind != RTM_NEWROUTE {
        return None;
    }
    let body = message.body;
    let number = *body.first()?;
    let family = match number {
        AF_INET => Family::V4,
        AF_INET6 => Family::V6,
        _ => return None,
    };
    let unicast = *body.get(7)? == RTN_UNICAST;
    // A route for some sources only is nobody's default.
    let from_anywhere = *body.get(2)? == 0;
    if !is_default(body) || !unicast || !from_anywhere || table(body)? != RT_TABLE_MAIN {
        return None;
    }
    let (mut metric, mut hops, mut nexthop, mut source) = (0, Vec::new(), None, None);
    let attached = body.get(ROUTE_HEADER..)?;
    for (kind, value) in attributes(attached) {
        match kind {
            RTA_PRIORITY => metric = u32_at(value, 0)?,
            RTA_OIF => hops.extend(NextHop::of(u32_at(value, 0), gateway(number, attached))),
            RTA_MULTIPATH => hops.extend(next_hops(number, value)),
            RTA_NH_ID => nexthop = u32_at(value, 0),
            RTA_PREFSRC => source = ip(number, value),
            _ => {}
        }
    }
    Some(ParsedRoute { family, metric, hops, nexthop, source })
}

/// A nexthop object: one interface, or a group of other objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NexthopObject {
    pub(crate) id: u32,
    pub(crate) hop: Option<NextHop>,
    pub(crate) group: Vec<u32>,
}

pub(crate) fn nexthop(message: &RawMessage<'_>) -> Option<NexthopObject> {
    if !matches!(message.kind, RTM_NEWNEXTHOP | RTM_DELNEXTHOP) {
        return None;
    }
    let family = *message.body.first()?;
    let (mut id, mut index, mut gateway, mut group) = (None, None, None, Vec::new());
    for (kind, value) in attributes(message.body.get(NEXTHOP_OBJECT_HEADER..)?) {
        match kind {
            NHA_ID => id = u32_at(value, 0),
            NHA_OIF => index = u32_at(value, 0),
            NHA_GATEWAY => gateway = ip(family, value),
            NHA_GROUP => group.extend(value.chunks_exact(GROUP_ENTRY).filter_map(|entry| u32_at(entry, 0))),
            _ => {}
        }
    }
    Some(NexthopObject { id: id?, hop: NextHop::of(index, gateway), group })
}

/// Where a route or a next hop leads.
fn gateway(family: u8, attached: &[u8]) -> Option<IpAddr> {
    attributes(attached).find_map(|(kind, value)| match kind {
        RTA_GATEWAY => ip(family, value),
        RTA_VIA => {
            let family = u8::try_from(u16_at(value, 0)?).ok()?;
            ip(family, value.get(2..)?)
        }
        _ => None,
    })
}

fn next_hops(family: u8, mut rest: &[u8]) -> impl Iterator<Item = NextHop> {
    let hops = std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        if length < NEXTHOP_HEADER {
            return None;
        }
        let index = u32_at(rest, 4)?;
        let gateway = gateway(family, rest.get(NEXTHOP_HEADER..length).unwrap_or_default());
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(NextHop::of(Some(index), gateway))
    });
    hops.flatten()
}

#[cfg(test)]
mod tests;
