//! A host of the lab: what can be done inside it and to it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use ipnet::IpNet;
use nix::sys::signal::Signal;
use purelb_wire::MacAddr;

use super::cuts::{Cut, Faults, Power, segment_port};
use super::kernel::{self, Address, Link, Neighbour, NeighbourState, NewAddress, Route};
use super::netns::Netns;
use super::plan::{HostPlan, Port, Role};
use super::probe::{Prober, Probing};
use super::process::Process;
use super::shared::Shared;
use super::{packet, run, wiring};

/// A node or a client. A cheap handle; clones are the same host.
#[derive(Clone)]
pub struct Node {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
}

impl Node {
    fn plan(&self) -> &HostPlan {
        &self.shared.plan.hosts[self.index]
    }

    pub fn name(&self) -> &str {
        &self.plan().name
    }

    pub fn role(&self) -> Role {
        self.plan().role
    }

    /// Its namespace, to run code or look around inside.
    pub fn netns(&self) -> &Netns {
        &self.shared.namespaces[self.index]
    }

    /// Its links to segments, in the order given: eth0, eth1, …
    pub fn ports(&self) -> &[Port] {
        &self.plan().ports
    }

    /// Its link to a segment.
    pub fn port(&self, segment: &str) -> Result<&Port> {
        let found = self.ports().iter().find(|port| port.segment_name == segment);
        found.with_context(|| format!("{} is not on segment {segment}", self.name()))
    }

    /// Its address on the management network; only nodes have one.
    pub fn management_address(&self) -> Option<Ipv4Addr> {
        self.plan().management.as_ref().map(|port| port.address)
    }

    /// A directory of its own, removed with the lab.
    pub fn dir(&self) -> PathBuf {
        self.shared.dir.join(self.name())
    }

    // --- processes -----------------------------------------------------------------

    /// Starts a process inside, its output in a log file in [`dir`](Self::dir).
    pub fn spawn(&self, name: &str, command: Command) -> Result<Process> {
        Process::start(self.netns(), name, command, self.dir().join(format!("{name}.log")))
    }

    /// Runs code on a thread inside the namespace. Sockets made there stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.netns().enter(work)
    }

    // --- faults --------------------------------------------------------------------

    /// Drops packets from now on: both ways, established connections stall.
    pub fn cut(&self, cut: Cut) -> Result<()> {
        self.shared.change_faults(|faults| {
            faults.cut(self.index, cut);
            Ok(())
        })
    }

    pub fn heal(&self, cut: &Cut) -> Result<()> {
        self.shared.change_faults(|faults| {
            faults.heal(self.index, cut);
            Ok(())
        })
    }

    /// Ends all cuts and losses of this host. Carrier and power stay as they are.
    pub fn heal_all(&self) -> Result<()> {
        self.shared.change_faults(|faults| {
            faults.heal_all(self.index);
            Ok(())
        })
    }

    /// Loses this share of the frames on a segment, each way. 0 ends it.
    pub fn set_loss(&self, segment: &str, percent: f64) -> Result<()> {
        self.shared.change_faults(|faults| faults.set_loss(self.index, segment, percent))
    }

    /// Loses this share of the ARP and neighbour discovery frames that it sends on a
    /// segment. 0 ends it. Set for every host, each such frame has this chance once.
    pub fn set_discovery_loss(&self, segment: &str, percent: f64) -> Result<()> {
        self.shared.change_faults(|faults| faults.set_discovery_loss(self.index, segment, percent))
    }

    /// Pulls the cable: the host sees its carrier go.
    pub fn pull_carrier(&self, segment: &str) -> Result<()> {
        self.set_bridge_port(segment, "down")
    }

    pub fn restore_carrier(&self, segment: &str) -> Result<()> {
        self.set_bridge_port(segment, "up")
    }

    fn set_bridge_port(&self, segment: &str, state: &str) -> Result<()> {
        let port = segment_port(self.plan(), segment)?;
        self.shared.root.ip(&[format!("link set {port} {state}")])
    }

    /// Takes the power away: silent at once, all processes gone without a word, and
    /// with them the links and addresses.
    pub fn power_off(&self) -> Result<()> {
        self.set_power(Power::Off)?;
        run::kill_all_in(self.netns().name())?;
        wiring::disconnect(&self.shared.root, self.plan())
    }

    /// Boots it: links as at the begin, no VIPs, no processes.
    pub fn power_on(&self) -> Result<()> {
        let Shared { root, plan, dad, .. } = &*self.shared;
        wiring::connect(root, plan, self.plan(), self.netns(), *dad)?;
        self.set_power(Power::On)
    }

    /// Holds the machine, as a hypervisor does: its processes stand still, and no frame
    /// comes out of it or gets in. The one kernel of all hosts goes on, so what was queued
    /// is lost, and lifetimes of addresses go on counting.
    pub fn pause(&self) -> Result<()> {
        self.set_power(Power::Off)?;
        run::signal_all_in(self.netns().name(), Signal::SIGSTOP)
    }

    /// Lets it go on: first its kernel, then its processes.
    pub fn resume(&self) -> Result<()> {
        self.set_power(Power::On)?;
        run::signal_all_in(self.netns().name(), Signal::SIGCONT)
    }

    fn set_power(&self, power: Power) -> Result<()> {
        self.shared.change_faults(|faults: &mut Faults| {
            faults.power(self.index, power);
            Ok(())
        })
    }

    // --- the API and back ----------------------------------------------------------

    /// Sends this node's connections to the API elsewhere than everybody's.
    pub fn set_api(&self, target: SocketAddr) -> Result<()> {
        let address = self.management_address().context("only nodes have a management link")?;
        self.shared.api.set_for(address, target);
        Ok(())
    }

    /// A port on the host's loopback that leads to `port` of this node, over the
    /// management network. Stays until the lab ends.
    pub fn expose(&self, port: u16) -> Result<SocketAddr> {
        let address = self.management_address().context("only nodes have a management link")?;
        self.shared.expose(SocketAddr::from((address, port)))
    }

    // --- the kernel's view ---------------------------------------------------------

    pub fn addresses(&self) -> Result<Vec<Address>> {
        kernel::addresses(self.netns())
    }

    /// The address if it is on any interface.
    pub fn address(&self, ip: IpAddr) -> Result<Option<Address>> {
        Ok(self.addresses()?.into_iter().find(|address| address.ip() == ip))
    }

    pub fn links(&self) -> Result<Vec<Link>> {
        kernel::links(self.netns())
    }

    /// Frames it has sent on an interface, since the link is there.
    pub fn frames_sent(&self, dev: &str) -> Result<u64> {
        // Of the thread that asks: the process itself is in another namespace.
        let table = self.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(dev)?.strip_prefix(':'));
        let counts = line.with_context(|| format!("{} has no interface {dev}", self.name()))?;
        // Eight columns of what came in, then bytes and frames that went out.
        Ok(counts.split_whitespace().nth(9).context("a line of counters")?.parse()?)
    }

    pub fn routes(&self) -> Result<Vec<Route>> {
        kernel::routes(self.netns())
    }

    pub fn neighbours(&self) -> Result<Vec<Neighbour>> {
        kernel::neighbours(self.netns())
    }

    // --- by hand -------------------------------------------------------------------

    /// Adds an address. One without duplicate address detection is answered for when
    /// this returns.
    pub fn add_address(&self, dev: &str, address: &NewAddress) -> Result<()> {
        kernel::add_address(self.netns(), dev, address)
    }

    /// Adds an address as `ip addr add` does, permanent.
    pub fn add(&self, dev: &str, net: impl Into<IpNet>) -> Result<()> {
        self.add_address(dev, &NewAddress::new(net))
    }

    pub fn del_address(&self, dev: &str, ip: IpAddr) -> Result<()> {
        kernel::del_address(self.netns(), dev, ip)
    }

    /// Sends the announcement an owner of `vip` sends: gratuitous ARP in both forms, or
    /// an unsolicited advertisement, with the interface's MAC. Whether it owns it or not.
    pub fn announce(&self, dev: &str, vip: IpAddr) -> Result<()> {
        packet::announce(self.netns(), dev, vip, self.mac(dev)?)
    }

    /// Sends frames as they are.
    pub fn send_frames(&self, dev: &str, frames: &[Vec<u8>]) -> Result<()> {
        packet::send(self.netns(), dev, frames)
    }

    fn mac(&self, dev: &str) -> Result<MacAddr> {
        let link = self.links()?.into_iter().find(|link| link.name == dev);
        link.and_then(|link| link.mac)
            .with_context(|| format!("{} has no interface {dev} with a MAC", self.name()))
    }

    // --- neighbour cache -----------------------------------------------------------

    /// The cache's entry for an address.
    pub fn neighbour(&self, ip: IpAddr) -> Result<Option<Neighbour>> {
        Ok(self.neighbours()?.into_iter().find(|neighbour| neighbour.ip == ip))
    }

    /// Puts an entry into the cache, right or wrong. `Stale` is believed until used.
    pub fn set_neighbour(&self, dev: &str, ip: IpAddr, mac: MacAddr, state: NeighbourState) -> Result<()> {
        kernel::set_neighbour(self.netns(), dev, ip, mac, state)
    }

    pub fn forget_neighbour(&self, dev: &str, ip: IpAddr) -> Result<()> {
        kernel::del_neighbour(self.netns(), dev, ip)
    }

    /// Empties the cache.
    pub fn flush_neighbours(&self) -> Result<()> {
        let devs = self.ports().iter().map(|port| format!("neigh flush dev {} nud all", port.dev));
        self.netns().ip(&devs.collect::<Vec<_>>())
    }

    // --- probes --------------------------------------------------------------------

    /// Starts probing from here.
    pub fn probe(&self, probing: Probing) -> Result<Prober> {
        probing.start(self.netns())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.name())
    }
}
