//! The drawing of a lab: which segments and hosts there are, and which names and
//! addresses they get. Nothing here touches the system.
//!
//! ```text
//!              root namespace of the lab (bridges only)
//!   +---------------------------------------------------------------+
//!   |   sg0 "lan" (bridge)      sg1 "storage"       mgmt (bridge)   |
//!   |    |p0s0 |p1s0 |p2s0       |p1s1               |m0   |m1      |  10.250.0.1  API
//!   +----+-----+-----+-----------+-------------------+-----+--------+  10.250.0.2  tools
//!        |     |     |           |                   |     |
//!       eth0  eth0  eth0        eth1               mgmt0  mgmt0
//!       node0 node1 client0     node1              node0  node1       10.250.1.x
//! ```

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, bail, ensure};
use ipnet::{IpNet, Ipv4Net};
use purelb_wire::MacAddr;

/// The management network. Not for segments.
pub(super) const MANAGEMENT: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 250, 0, 0), 16);

/// Where nodes find the API server on the management network.
pub const API_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 250, 0, 1);
pub const API_PORT: u16 = 6443;

/// Where connections from the test to a node come from, so that cutting a node off the
/// API leaves them alone.
pub(super) const TOOLS_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 250, 0, 2);

pub(super) const MANAGEMENT_BRIDGE: &str = "mgmt";
pub(super) const MANAGEMENT_DEV: &str = "mgmt0";

/// Host numbers in a subnet: router .1, clients from .2, nodes from .11 on.
const GATEWAY: u32 = 1;
const FIRST_CLIENT: u32 = 2;
const FIRST_NODE: u32 = 11;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers probes and has a management link.
    Node,
    /// Only on its segments.
    Client,
    /// Where default routes point to. It answers, as any host does, and forwards nothing.
    Router,
}

#[derive(Clone, Debug)]
pub struct Segment {
    pub name: String,
    pub nets: Vec<IpNet>,
    /// The bridge in the lab's root namespace.
    pub bridge: String,
}

/// One end of a veth pair inside a host, the other on a segment's bridge.
#[derive(Clone, Debug)]
pub struct Port {
    /// Index into the plan's segments.
    pub(super) segment: usize,
    /// Name of the segment.
    pub segment_name: String,
    /// The interface inside the host: eth0, eth1, …
    pub dev: String,
    /// The interface on the bridge.
    pub bridge_port: String,
    pub mac: MacAddr,
    /// One per subnet of the segment.
    pub addresses: Vec<IpNet>,
    /// The gateways default routes point to; a router lives there, or nobody.
    pub(super) gateways: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
pub(super) struct HostPlan {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) ports: Vec<Port>,
    pub(super) management: Option<ManagementPort>,
}

#[derive(Clone, Debug)]
pub(super) struct ManagementPort {
    pub(super) address: Ipv4Addr,
    pub(super) bridge_port: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) segments: Vec<Segment>,
    pub(super) hosts: Vec<HostPlan>,
}

/// What the builder was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    pub(super) segments: Vec<(String, Vec<String>)>,
    pub(super) hosts: Vec<(Role, String, Vec<String>)>,
}

impl Plan {
    pub(super) fn draw(wishes: &Wishes) -> Result<Self> {
        let mut plan = Self::default();
        for (name, nets) in &wishes.segments {
            plan.add_segment(name, nets)?;
        }
        for (role, name, segments) in &wishes.hosts {
            plan.add_host(*role, name, segments)?;
        }
        Ok(plan)
    }

    fn add_segment(&mut self, name: &str, nets: &[String]) -> Result<()> {
        check_name(name)?;
        ensure!(self.segments.iter().all(|other| other.name != name), "two segments are named {name}");
        let nets = nets
            .iter()
            .map(|text| {
                let net: IpNet = text
                    .parse()
                    .with_context(|| format!("segment {name}: {text} is not a subnet in CIDR form"))?;
                ensure!(net == net.trunc(), "segment {name}: {net} has host bits set, write {}", net.trunc());
                let shared = net.contains(&IpNet::from(MANAGEMENT)) || IpNet::from(MANAGEMENT).contains(&net);
                ensure!(!shared, "segment {name}: {net} overlaps the management network {MANAGEMENT}");
                Ok(net)
            })
            .collect::<Result<Vec<_>>>()?;
        let bridge = format!("sg{}", self.segments.len());
        self.segments.push(Segment { name: name.to_owned(), nets, bridge });
        Ok(())
    }

    fn add_host(&mut self, role: Role, name: &str, segments: &[String]) -> Result<()> {
        check_name(name)?;
        ensure!(self.hosts.iter().all(|other| other.name != name), "two hosts are named {name}");
        let index = self.hosts.len();
        let of_role = self.hosts.iter().filter(|host| host.role == role).count();
        let nth = u32::try_from(of_role)?;
        let number = match role {
            Role::Node => FIRST_NODE + nth,
            Role::Client => FIRST_CLIENT + nth,
            Role::Router => GATEWAY,
        };
        ensure!(
            role != Role::Client || number < FIRST_NODE,
            "a lab has at most {} clients",
            FIRST_NODE - FIRST_CLIENT
        );
        let mut ports = Vec::new();
        let mut seen = BTreeSet::new();
        for wanted in segments {
            ensure!(seen.insert(wanted), "host {name}: segment {wanted} is named twice");
            let Some(segment) = self.segments.iter().position(|segment| &segment.name == wanted) else {
                bail!("host {name}: there is no segment {wanted}; name it with `segment` first");
            };
            let routed = self.hosts.iter().any(|host| {
                host.role == Role::Router && host.ports.iter().any(|port| port.segment == segment)
            });
            ensure!(role != Role::Router || !routed, "segment {wanted} has two routers");
            ports.push(self.port(index, role, number, segment, ports.len())?);
        }
        let management = match role {
            Role::Node => Some(ManagementPort {
                address: management_address(of_role)?,
                bridge_port: format!("m{index}"),
            }),
            Role::Client | Role::Router => None,
        };
        self.hosts.push(HostPlan { name: name.to_owned(), role, ports, management });
        Ok(())
    }

    fn port(&self, host: usize, role: Role, number: u32, segment: usize, nth: usize) -> Result<Port> {
        let Segment { name, nets, .. } = &self.segments[segment];
        let [_, _, high, low] = u32::try_from(host)?.to_be_bytes();
        let kind = match role {
            Role::Node => 0,
            Role::Client => 1,
            Role::Router => 2,
        };
        let mac = MacAddr([2, b'p', u8::try_from(segment)?, kind, high, low]);
        let addresses = nets.iter().map(|net| host_in(*net, number)).collect::<Result<_>>()?;
        let routed = nets.iter().filter(|_| role != Role::Router);
        let gateways = routed.map(|net| Ok(host_in(*net, GATEWAY)?.addr())).collect::<Result<_>>()?;
        Ok(Port {
            segment,
            segment_name: name.clone(),
            dev: format!("eth{nth}"),
            bridge_port: format!("p{host}s{segment}"),
            mac,
            addresses,
            gateways,
        })
    }
}

/// Names become parts of file names and of `ip` command lines.
fn check_name(name: &str) -> Result<()> {
    let good = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    ensure!(good, "`{name}` is not a good name: use a-z, 0-9 and -");
    Ok(())
}

fn management_address(nth: usize) -> Result<Ipv4Addr> {
    let number = 0x0100 + 1 + u32::try_from(nth)?;
    Ok(Ipv4Addr::from(u32::from(MANAGEMENT.network()) + number))
}

/// The address with this number in the subnet, with the subnet's prefix length.
fn host_in(net: IpNet, number: u32) -> Result<IpNet> {
    let (ip, last) = match net {
        IpNet::V4(v4) => {
            let ip = Ipv4Addr::from(u32::from(v4.network()).saturating_add(number));
            (IpAddr::V4(ip), IpAddr::V4(v4.broadcast()))
        }
        IpNet::V6(v6) => {
            let ip = Ipv6Addr::from(u128::from(v6.network()).saturating_add(number.into()));
            (IpAddr::V6(ip), IpAddr::V6(v6.broadcast()))
        }
    };
    ensure!(
        net.contains(&ip) && ip < last,
        "{net} is too small for host number {number}: take a larger subnet"
    );
    Ok(IpNet::new(ip, net.prefix_len())?)
}

#[cfg(test)]
mod tests;
