//! What the kernel of a namespace holds: addresses with flags, lifetimes and protocol
//! mark, links, neighbours, routes; and changing addresses and neighbours by hand.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
pub use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressProtocol, CacheInfo};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
pub use netlink_packet_route::neighbour::NeighbourState;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
pub use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use purelb_wire::MacAddr;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

use super::netlink::Netlink;
use super::netns::Netns;

/// The kernel's way to write "for ever".
const INFINITY: u32 = u32::MAX;

/// How long the kernel may take to answer for an address it holds; it takes a moment.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// An address on an interface, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub net: IpNet,
    pub dev: String,
    pub index: u32,
    pub flags: AddressFlags,
    /// What is left of it; `None` is for ever.
    pub valid: Option<Duration>,
    pub preferred: Option<Duration>,
    /// The mark of who added it (IFA_PROTO); `None` if nobody left one.
    pub proto: Option<u8>,
}

impl Address {
    pub fn ip(&self) -> IpAddr {
        self.net.addr()
    }

    /// Whether the host answers for it: duplicate address detection is over and won.
    pub fn usable(&self) -> bool {
        usable(self.flags)
    }
}

fn usable(flags: AddressFlags) -> bool {
    !flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    pub index: u32,
    pub mac: Option<MacAddr>,
    /// Switched on by the administrator.
    pub up: bool,
    /// The other end is there.
    pub carrier: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub ip: IpAddr,
    pub dev: String,
    pub mac: Option<MacAddr>,
    pub state: NeighbourState,
}

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub destination: IpNet,
    pub gateway: Option<IpAddr>,
    pub dev: Option<String>,
    pub metric: u32,
    pub protocol: RouteProtocol,
}

/// An address to add by hand. Permanent and without a mark unless told otherwise.
#[derive(Clone, Debug)]
pub struct NewAddress {
    net: IpNet,
    flags: AddressFlags,
    valid: u32,
    preferred: u32,
    proto: Option<u8>,
    mode: u16,
}

impl NewAddress {
    pub fn new(net: impl Into<IpNet>) -> Self {
        Self {
            net: net.into(),
            flags: AddressFlags::empty(),
            valid: INFINITY,
            preferred: INFINITY,
            proto: None,
            mode: NLM_F_CREATE | NLM_F_EXCL,
        }
    }

    pub fn flags(mut self, flags: AddressFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Usable at once, without duplicate address detection.
    pub fn no_dad(self) -> Self {
        self.flags(AddressFlags::Nodad)
    }

    /// Lifetimes in whole seconds, as the kernel counts them.
    pub fn lifetimes(mut self, valid: u32, preferred: u32) -> Self {
        (self.valid, self.preferred) = (valid, preferred);
        self
    }

    pub fn proto(mut self, mark: u8) -> Self {
        self.proto = Some(mark);
        self
    }

    /// Changes the address if it is there.
    pub fn replace(mut self) -> Self {
        self.mode = NLM_F_CREATE | NLM_F_REPLACE;
        self
    }
}

pub(super) fn addresses(netns: &Netns) -> Result<Vec<Address>> {
    let names = names(netns)?;
    let found = Netlink::open(netns)?.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    Ok(found
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(message) => address(&message, &names),
            _ => None,
        })
        .collect())
}

/// Reads an address message; `None` if it carries no address.
pub(super) fn address(message: &AddressMessage, names: &HashMap<u32, String>) -> Option<Address> {
    let (mut local, mut peer, mut proto) = (None, None, None);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    let mut cache = CacheInfo::default();
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            AddressAttribute::CacheInfo(info) => cache = *info,
            AddressAttribute::Protocol(mark) => proto = Some(u8::from(*mark)),
            _ => {}
        }
    }
    let ip = local.or(peer)?;
    let lifetime = |seconds| (seconds != INFINITY).then(|| Duration::from_secs(u64::from(seconds)));
    Some(Address {
        net: IpNet::new(ip, message.header.prefix_len).ok()?,
        dev: name(names, message.header.index),
        index: message.header.index,
        flags,
        valid: lifetime(cache.ifa_valid),
        preferred: lifetime(cache.ifa_preferred),
        proto,
    })
}

pub(super) fn links(netns: &Netns) -> Result<Vec<Link>> {
    let found = Netlink::open(netns)?.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    Ok(found
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(message) => link(&message),
            _ => None,
        })
        .collect())
}

fn link(message: &LinkMessage) -> Option<Link> {
    let mut found = Link {
        name: String::new(),
        index: message.header.index,
        mac: None,
        up: message.header.flags.contains(LinkFlags::Up),
        carrier: message.header.flags.contains(LinkFlags::LowerUp),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name.clone_from(name),
            LinkAttribute::Address(bytes) => found.mac = mac(bytes),
            _ => {}
        }
    }
    (!found.name.is_empty()).then_some(found)
}

pub(super) fn names(netns: &Netns) -> Result<HashMap<u32, String>> {
    Ok(links(netns)?.into_iter().map(|link| (link.index, link.name)).collect())
}

pub(super) fn index_of(netns: &Netns, dev: &str) -> Result<u32> {
    let links = links(netns)?;
    let found = links.iter().find(|link| link.name == dev);
    found.map(|link| link.index).with_context(|| {
        let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        format!("{} has no interface {dev}; it has {}", netns.name(), names.join(", "))
    })
}

pub(super) fn neighbours(netns: &Netns) -> Result<Vec<Neighbour>> {
    let names = names(netns)?;
    let found = Netlink::open(netns)?.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
    Ok(found
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewNeighbour(message) => neighbour(&message, &names),
            _ => None,
        })
        .collect())
}

fn neighbour(message: &NeighbourMessage, names: &HashMap<u32, String>) -> Option<Neighbour> {
    let (mut ip, mut at) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => at = mac(bytes),
            _ => {}
        }
    }
    Some(Neighbour {
        ip: ip?,
        dev: name(names, message.header.ifindex),
        mac: at,
        state: message.header.state,
    })
}

pub(super) fn routes(netns: &Netns) -> Result<Vec<Route>> {
    let names = names(netns)?;
    let found = Netlink::open(netns)?.dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()))?;
    Ok(found
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(message) => route(&message, &names),
            _ => None,
        })
        .collect())
}

fn route(message: &RouteMessage, names: &HashMap<u32, String>) -> Option<Route> {
    if message.header.table != RouteHeader::RT_TABLE_MAIN {
        return None;
    }
    let ip = |address: &RouteAddress| match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    };
    let mut to = match message.header.address_family {
        AddressFamily::Inet => IpAddr::from([0; 4]),
        AddressFamily::Inet6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    let (mut gateway, mut dev, mut metric) = (None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address)?,
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Oif(index) => dev = Some(name(names, *index)),
            RouteAttribute::Priority(priority) => metric = *priority,
            _ => {}
        }
    }
    Some(Route {
        destination: IpNet::new(to, message.header.destination_prefix_length).ok()?,
        gateway,
        dev,
        metric,
        protocol: message.header.protocol,
    })
}

pub(super) fn add_address(netns: &Netns, dev: &str, new: &NewAddress) -> Result<()> {
    let mut message = mk_address(netns, dev, new.net)?;
    let mut cache = CacheInfo::default();
    (cache.ifa_valid, cache.ifa_preferred) = (new.valid, new.preferred);
    message.attributes.push(AddressAttribute::CacheInfo(cache));
    message.attributes.push(AddressAttribute::Flags(new.flags));
    if let Some(mark) = new.proto {
        message.attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(mark)));
    }
    Netlink::open(netns)?
        .change(RouteNetlinkMessage::NewAddress(message), new.mode)
        .with_context(|| format!("adding {} to {dev} of {}", new.net, netns.name()))?;
    if new.net.addr().is_ipv6() && new.flags.contains(AddressFlags::Nodad) {
        wait_until_answered_for(netns, new.net.addr())?;
    }
    Ok(())
}

/// An IPv6 address is shown before it is answered for: joining its multicast group and
/// making its local route is left to a kernel worker, in this order. A question that
/// comes first is lost, and the next one is asked a second later.
fn wait_until_answered_for(netns: &Netns, ip: IpAddr) -> Result<()> {
    let started = Instant::now();
    let mut netlink = Netlink::open(netns)?;
    loop {
        let mut ask = RouteMessage::default();
        ask.header.address_family = AddressFamily::Inet6;
        let found = netlink.dump(RouteNetlinkMessage::GetRoute(ask))?;
        let own = RouteAttribute::Destination(ip.into());
        let there = found.iter().any(|message| match message {
            RouteNetlinkMessage::NewRoute(route) => {
                route.header.kind == RouteType::Local && route.attributes.contains(&own)
            }
            _ => false,
        });
        if there {
            return Ok(());
        }
        ensure!(
            started.elapsed() < ANSWERED_WITHIN,
            "{} does not answer for {ip}: no local route",
            netns.name()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn del_address(netns: &Netns, dev: &str, ip: IpAddr) -> Result<()> {
    let held = addresses(netns)?;
    let found = held.iter().find(|address| address.dev == dev && address.ip() == ip);
    let found = found.with_context(|| format!("{dev} of {} does not hold {ip}", netns.name()))?;
    Netlink::open(netns)?
        .change(RouteNetlinkMessage::DelAddress(mk_address(netns, dev, found.net)?), 0)
        .with_context(|| format!("removing {ip} from {dev} of {}", netns.name()))
}

fn mk_address(netns: &Netns, dev: &str, net: IpNet) -> Result<AddressMessage> {
    let mut message = AddressMessage::default();
    message.header.family = family(net.addr());
    message.header.prefix_len = net.prefix_len();
    message.header.index = index_of(netns, dev)?;
    message.attributes.push(AddressAttribute::Local(net.addr()));
    message.attributes.push(AddressAttribute::Address(net.addr()));
    Ok(message)
}

/// Puts an entry into the neighbour cache, over whatever is there.
pub(super) fn set_neighbour(
    netns: &Netns,
    dev: &str,
    ip: IpAddr,
    mac: MacAddr,
    state: NeighbourState,
) -> Result<()> {
    let mut message = mk_neighbour(netns, dev, ip)?;
    message.header.state = state;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.octets().to_vec()));
    Netlink::open(netns)?
        .change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
        .with_context(|| format!("setting neighbour {ip} on {dev} of {}", netns.name()))
}

/// Removes an entry; none there is no error.
pub(super) fn del_neighbour(netns: &Netns, dev: &str, ip: IpAddr) -> Result<()> {
    let message = mk_neighbour(netns, dev, ip)?;
    match Netlink::open(netns)?.change(RouteNetlinkMessage::DelNeighbour(message), 0) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing neighbour {ip} on {dev} of {}", netns.name()))
        }
        _ => Ok(()),
    }
}

fn mk_neighbour(netns: &Netns, dev: &str, ip: IpAddr) -> Result<NeighbourMessage> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(ip);
    message.header.ifindex = index_of(netns, dev)?;
    let destination = match ip {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    message.attributes.push(NeighbourAttribute::Destination(destination));
    Ok(message)
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn name(names: &HashMap<u32, String>, index: u32) -> String {
    names.get(&index).cloned().unwrap_or_else(|| format!("if{index}"))
}

fn mac(bytes: &[u8]) -> Option<MacAddr> {
    bytes.try_into().ok().map(MacAddr)
}
