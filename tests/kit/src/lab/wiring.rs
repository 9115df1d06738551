//! Bringing a plan into the kernel, and one host's links down and up again.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use purelb_wire::MacAddr;

use super::netns::Netns;
use super::plan::{
    API_ADDRESS, HostPlan, MANAGEMENT, MANAGEMENT_BRIDGE, MANAGEMENT_DEV, Plan, TOOLS_ADDRESS,
};
use super::{kernel, tools};

/// How long links may take to be there. They take some milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Whether VIPs and other addresses added later go through duplicate address detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dad {
    /// As on a real host: about a second until an IPv6 address can be used.
    #[default]
    Real,
    Off,
}

/// Makes the namespaces, in one go.
pub(super) fn make_namespaces(names: &[String]) -> Result<()> {
    let lines: Vec<_> = names.iter().map(|name| format!("netns add {name}")).collect();
    tools::ip_batch(None, &lines)
}

/// The bridges, and numbers for the hosts' namespaces, under which their events are
/// heard in the root namespace.
pub(super) fn make_root(root: &Netns, plan: &Plan, host_namespaces: &[String]) -> Result<()> {
    // The bridges only carry frames: without IPv6 of their own they never say a word.
    root.sysctls(&[("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")])?;
    let mut lines = vec!["link set lo up".to_owned()];
    for (number, segment) in plan.segments.iter().enumerate() {
        let bridge = &segment.bridge;
        let mac = bridge_mac(number);
        // Promiscuous: the observer sees unicast between ports. No snooping: whether a
        // group was joined must not decide whether neighbour discovery works.
        lines.push(format!("link add {bridge} address {mac} type bridge stp_state 0 mcast_snooping 0"));
        lines.push(format!("link set {bridge} promisc on up"));
    }
    let mac = bridge_mac(plan.segments.len());
    lines
        .push(format!("link add {MANAGEMENT_BRIDGE} address {mac} type bridge stp_state 0 mcast_snooping 0"));
    lines.push(format!("link set {MANAGEMENT_BRIDGE} up"));
    for address in [API_ADDRESS, TOOLS_ADDRESS] {
        lines.push(format!("addr add {address}/{} dev {MANAGEMENT_BRIDGE}", MANAGEMENT.prefix_len()));
    }
    for (id, name) in host_namespaces.iter().enumerate() {
        lines.push(format!("netns set {name} {id}"));
    }
    root.ip(&lines)
}

/// A bridge without an address of its own takes the lowest one of its ports, and another
/// when that port goes: then a node's death would leave every other node with a stale
/// neighbour entry for the API server, and no way to it until the entry is found wrong.
fn bridge_mac(number: usize) -> MacAddr {
    let [.., high, low] = number.to_be_bytes();
    MacAddr([2, b'p', 0xff, 0, high, low])
}

/// Settings of a host's namespace that its links take over when they are made.
pub(super) fn prepare_host(netns: &Netns) -> Result<()> {
    netns.sysctls(&[
        ("ipv4/ip_forward", "0"),
        // A dual-homed node may answer on another interface than the one asked on.
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
        // Nobody sends router advertisements here; asking for them is noise.
        ("ipv6/conf/default/accept_ra", "0"),
        ("ipv6/conf/default/autoconf", "0"),
        ("ipv6/conf/default/router_solicitations", "0"),
    ])?;
    netns.ip(&["link set lo up".to_owned()])
}

/// Makes a host's links with all their addresses, and waits until they can be used.
pub(super) fn connect(root: &Netns, plan: &Plan, host: &HostPlan, netns: &Netns, dad: Dad) -> Result<()> {
    // The lab's own addresses are known to be free: detection would only cost a second.
    set_dad(netns, host, Dad::Off, IncludingLinks::No)?;
    root.ip(&root_lines(plan, host, netns))?;
    netns.ip(&host_lines(host))?;
    wait_until_usable(netns, host)?;
    set_dad(netns, host, dad, IncludingLinks::Yes)
}

/// Removes a host's links; the kernel takes the addresses away with them.
pub(super) fn disconnect(root: &Netns, host: &HostPlan) -> Result<()> {
    let ports = host.ports.iter().map(|port| &port.bridge_port);
    let management = host.management.iter().map(|port| &port.bridge_port);
    let lines: Vec<_> = ports.chain(management).map(|port| format!("link del {port}")).collect();
    root.ip(&lines)
}

fn root_lines(plan: &Plan, host: &HostPlan, netns: &Netns) -> Vec<String> {
    let mut lines = Vec::new();
    let inside = netns.name();
    for port in &host.ports {
        let (outer, dev, mac) = (&port.bridge_port, &port.dev, port.mac);
        lines.push(format!("link add {outer} type veth peer name {dev} address {mac} netns {inside}"));
        lines.push(format!("link set {outer} master {} up", plan.segments[port.segment].bridge));
    }
    if let Some(port) = &host.management {
        let outer = &port.bridge_port;
        lines.push(format!("link add {outer} type veth peer name {MANAGEMENT_DEV} netns {inside}"));
        lines.push(format!("link set {outer} master {MANAGEMENT_BRIDGE} up"));
    }
    lines
}

fn host_lines(host: &HostPlan) -> Vec<String> {
    let mut lines = Vec::new();
    for (nth, port) in host.ports.iter().enumerate() {
        let dev = &port.dev;
        lines.push(format!("link set {dev} up"));
        lines.extend(port.addresses.iter().map(|address| format!("addr add {address} dev {dev}")));
        // The first link has the default routes, as `localInterface: default` looks for.
        if nth == 0 {
            lines.extend(port.gateways.iter().map(|gateway| {
                let any = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
                format!("route add {any} via {gateway} dev {dev}")
            }));
        }
    }
    if let Some(port) = &host.management {
        lines.push(format!("link set {MANAGEMENT_DEV} up"));
        lines.push(format!("addr add {}/{} dev {MANAGEMENT_DEV}", port.address, MANAGEMENT.prefix_len()));
    }
    lines
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IncludingLinks {
    Yes,
    No,
}

fn set_dad(netns: &Netns, host: &HostPlan, dad: Dad, links: IncludingLinks) -> Result<()> {
    let value = match dad {
        Dad::Real => "1",
        Dad::Off => "0",
    };
    let mut settings = vec![("ipv6/conf/default/accept_dad".to_owned(), value)];
    if links == IncludingLinks::Yes {
        settings.extend(host.ports.iter().map(|port| (format!("ipv6/conf/{}/accept_dad", port.dev), value)));
    }
    netns.sysctls(&settings)
}

/// A link without carrier, or whose own IPv6 addresses are still tentative, would look
/// like loss in the first probes.
fn wait_until_usable(netns: &Netns, host: &HostPlan) -> Result<()> {
    let started = Instant::now();
    loop {
        let links = kernel::links(netns)?;
        let addresses = kernel::addresses(netns)?;
        let ready = host.ports.iter().all(|port| {
            let carrier = links.iter().any(|link| link.name == port.dev && link.carrier);
            let mut own = addresses.iter().filter(|address| address.dev == port.dev && address.usable());
            let link_local = own.any(|address| match address.ip() {
                std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
                std::net::IpAddr::V4(_) => false,
            });
            carrier && link_local
        });
        if ready && addresses.iter().all(kernel::Address::usable) {
            return Ok(());
        }
        if started.elapsed() > READY_WITHIN {
            bail!(
                "the links of {} are not usable after {READY_WITHIN:?}: {links:#?} {addresses:#?}",
                host.name
            );
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
