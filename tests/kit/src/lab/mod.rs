//! A network of real Linux hosts, in one process and gone afterwards: segments
//! (bridges), nodes and clients (network namespaces joined by veth), a management
//! network to the API server; faults; and instruments that measure what clients, the
//! wire and the kernel saw.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use purelb_kit::lab::{Cut, Lab, Probing};
//!
//! let lab = Lab::builder()
//!     .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
//!     .node("a", ["lan"])
//!     .node("b", ["lan"])
//!     .client("c", ["lan"])
//!     .build()?;
//! let vip = "192.0.2.100".parse()?;
//! let (a, b, c) = (lab.node("a"), lab.node("b"), lab.node("c"));
//!
//! // An address moves by hand, while a client watches.
//! let (wire, kernel) = (lab.observe()?, lab.watch_addresses()?);
//! a.add("eth0", "192.0.2.100/24".parse::<ipnet::IpNet>()?)?;
//! let prober = c.probe(Probing::udp([vip]))?;
//! b.add("eth0", "192.0.2.100/24".parse::<ipnet::IpNet>()?)?;
//! b.announce("eth0", vip)?;
//! a.del_address("eth0", vip)?;
//! let report = prober.stop();
//! println!("{report}\n{}", kernel.owners_timeline(vip)?);
//! assert_eq!(report.lost(), 0);
//! assert!(wire.duplicates(vip, std::time::Duration::from_secs(1)).is_empty());
//!
//! // Faults: packets are dropped, nobody is told.
//! b.cut(Cut::Api)?;
//! b.cut(Cut::segment("lan"))?;
//! b.heal_all()?;
//! b.pull_carrier("lan")?;
//! b.power_off()?;
//! # Ok(()) }
//! ```
//!
//! Nothing of it touches the host's own namespace. All names carry the process and its
//! start time, so that labs run side by side; everything is removed when the lab is
//! dropped, on a panic, on SIGINT, SIGTERM and SIGHUP, and what a killed run leaves is
//! removed by the next. All calls block for some milliseconds at most, unless they say
//! otherwise, and may be made from async tests. For hands-on use: `ip netns`,
//! [`Lab::describe`].
//!
//! Needs root, `ip` and `nft`; [`preflight`] says what is missing.

mod background;
mod claims;
mod clock;
mod cuts;
mod forward;
mod kernel;
mod netlink;
mod netns;
mod node;
mod observer;
mod packet;
mod plan;
mod probe;
mod process;
mod run;
mod shared;
mod timeline;
mod tools;
mod watch;
mod wiring;

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};

use background::Background;
pub use claims::{Duplicate, Holding};
pub use clock::now;
pub use cuts::Cut;
use forward::ApiTargets;
pub use kernel::{Address, AddressFlags, Link, Neighbour, NeighbourState, NewAddress, Route, RouteProtocol};
pub use netns::Netns;
pub use node::Node;
use observer::Wiretap;
pub use observer::{Observer, SeenClaim};
pub use plan::{API_ADDRESS, API_PORT, Port, Role, Segment};
use plan::{Plan, Wishes};
pub use probe::{DataPlane, Gap, Lag, Loss, PROBE_PORT, Prober, Probing, Report, Turn, VipReport};
pub use process::Process;
pub use run::Signals;
use run::{Cleanup, RunId};
use shared::Shared;
pub use timeline::{Span, Timeline};
pub use tools::preflight;
pub use watch::{AddressEvent, AddressWatch, Change};
pub use wiring::Dad;

/// A lab, alive until dropped.
#[derive(Debug)]
pub struct Lab {
    shared: Arc<Shared>,
    // Dropped in this order: servers close their sockets, then namespaces go.
    _background: Arc<Background>,
    _cleanup: Cleanup,
}

/// Draws a lab; see [`Lab::builder`].
#[derive(Clone, Debug, Default)]
pub struct LabBuilder {
    wishes: Wishes,
    data_plane: DataPlane,
    dad: Dad,
    signals: Signals,
    api: Option<SocketAddr>,
}

impl LabBuilder {
    /// A segment with its subnets, of either family. Hosts get an address in each:
    /// clients from number 2 on, nodes from 11 on; number 1 is the gateway, where
    /// nobody lives unless there is a [`router`](Self::router).
    pub fn segment<S: Into<String>>(mut self, name: &str, subnets: impl IntoIterator<Item = S>) -> Self {
        self.wishes.segments.push((name.to_owned(), subnets.into_iter().map(Into::into).collect()));
        self
    }

    /// A node on these segments: eth0, eth1, … in this order, default routes on the
    /// first. On none, it is a host of the management network only.
    pub fn node<S: Into<String>>(self, name: &str, segments: impl IntoIterator<Item = S>) -> Self {
        self.host(Role::Node, name, segments)
    }

    /// A client on these segments. At most nine of them.
    pub fn client<S: Into<String>>(self, name: &str, segments: impl IntoIterator<Item = S>) -> Self {
        self.host(Role::Client, name, segments)
    }

    /// The gateway of these segments: a host that everybody's default routes point to, and
    /// that answers ARP, neighbour discovery and echo. It forwards nothing.
    pub fn router<S: Into<String>>(self, name: &str, segments: impl IntoIterator<Item = S>) -> Self {
        self.host(Role::Router, name, segments)
    }

    fn host<S: Into<String>>(
        mut self,
        role: Role,
        name: &str,
        segments: impl IntoIterator<Item = S>,
    ) -> Self {
        self.wishes.hosts.push((role, name.to_owned(), segments.into_iter().map(Into::into).collect()));
        self
    }

    /// How nodes take probes: `Host` unless told otherwise.
    pub fn data_plane(mut self, data_plane: DataPlane) -> Self {
        self.data_plane = data_plane;
        self
    }

    /// Whether addresses added later go through duplicate address detection: `Real`
    /// unless told otherwise.
    pub fn dad(mut self, dad: Dad) -> Self {
        self.dad = dad;
        self
    }

    /// Who acts on SIGINT and the like: the lab, unless told otherwise.
    pub fn signals(mut self, signals: Signals) -> Self {
        self.signals = signals;
        self
    }

    /// Where the API server listens on the host; see [`Lab::set_api`].
    pub fn api(mut self, target: SocketAddr) -> Self {
        self.api = Some(target);
        self
    }

    /// Builds it: some tens of milliseconds for a few nodes.
    pub fn build(self) -> Result<Lab> {
        let plan = Plan::draw(&self.wishes)?;
        preflight()?;
        run::sweep();
        let run = RunId::next()?;
        // First the promise to clean up, then the things to clean.
        let cleanup = Cleanup::of(run, self.signals)?;
        let dir = run.dir();
        for host in &plan.hosts {
            let dir = dir.join(&host.name);
            std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        }
        let root_name = run.netns("root");
        let names: Vec<_> = plan.hosts.iter().map(|host| run.netns(&format!("h-{}", host.name))).collect();
        let all: Vec<_> = names.iter().cloned().chain([root_name.clone()]).collect();
        wiring::make_namespaces(&all)?;
        let root = Netns::open(&root_name)?;
        let namespaces = names.iter().map(|name| Netns::open(name)).collect::<Result<Vec<_>>>()?;
        wiring::make_root(&root, &plan, &names)?;
        for (host, netns) in plan.hosts.iter().zip(&namespaces) {
            wiring::prepare_host(netns)?;
            wiring::connect(&root, &plan, host, netns, self.dad)?;
        }
        let background = Arc::new(Background::start()?);
        let shared = Arc::new(Shared {
            plan,
            dad: self.dad,
            dir,
            root,
            namespaces,
            api: ApiTargets::default(),
            faults: Mutex::default(),
            background: Arc::downgrade(&background),
        });
        let lab = Lab { shared, _background: background, _cleanup: cleanup };
        lab.serve(self.data_plane, self.api)?;
        Ok(lab)
    }
}

impl Lab {
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }

    fn serve(&self, data_plane: DataPlane, api: Option<SocketAddr>) -> Result<()> {
        let listener = forward::listen(&self.shared.root, SocketAddr::from((API_ADDRESS, API_PORT)))?;
        self._background.spawn(forward::serve_api(listener, self.shared.api.clone()));
        if let Some(target) = api {
            self.set_api(target);
        }
        for node in self.nodes() {
            probe::start_responder(&self._background, node.netns(), node.name())?;
        }
        if data_plane != DataPlane::Host {
            self.set_data_plane(data_plane)?;
        }
        Ok(())
    }

    /// A node or client by name.
    ///
    /// # Panics
    /// If the lab has none of that name: a mistake in the test.
    pub fn node(&self, name: &str) -> Node {
        let hosts = &self.shared.plan.hosts;
        let index = hosts.iter().position(|host| host.name == name).unwrap_or_else(|| {
            let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
            panic!("the lab has no host {name}; it has {}", names.join(", "))
        });
        self.host(index)
    }

    /// All nodes, without the clients.
    pub fn nodes(&self) -> Vec<Node> {
        let hosts = &self.shared.plan.hosts;
        (0..hosts.len())
            .filter(|index| hosts[*index].role == Role::Node)
            .map(|index| self.host(index))
            .collect()
    }

    fn host(&self, index: usize) -> Node {
        Node { shared: Arc::clone(&self.shared), index }
    }

    pub fn segments(&self) -> &[Segment] {
        &self.shared.plan.segments
    }

    /// A directory for this lab's files, removed with it.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Sends what nodes say to [`API_ADDRESS`]:[`API_PORT`] to a server on the host,
    /// usually on its loopback. New connections go there; open ones stay.
    pub fn set_api(&self, target: SocketAddr) {
        self.shared.api.set_for_all(target);
    }

    // --- faults between hosts --------------------------------------------------------

    /// On a segment none of `deaf` hears any of `silent` any more; the other way stays.
    pub fn mute(&self, segment: &str, silent: &[&str], deaf: &[&str]) -> Result<()> {
        let pairs: Vec<_> = silent.iter().flat_map(|from| deaf.iter().map(|to| (*from, *to))).collect();
        self.change_mutes(segment, &pairs)
    }

    /// A segment falls in two: no host of one part hears one of the other.
    pub fn split(&self, segment: &str, one: &[&str], other: &[&str]) -> Result<()> {
        let pairs = one.iter().flat_map(|a| other.iter().flat_map(|b| [(*a, *b), (*b, *a)]));
        self.change_mutes(segment, &pairs.collect::<Vec<_>>())
    }

    /// Everybody hears everybody again on a segment: ends mutes and splits.
    pub fn join(&self, segment: &str) -> Result<()> {
        self.shared.change_faults(|faults| {
            faults.unmute(segment);
            Ok(())
        })
    }

    fn change_mutes(&self, segment: &str, pairs: &[(&str, &str)]) -> Result<()> {
        let pairs: Vec<_> =
            pairs.iter().map(|(from, to)| (self.node(from).index, self.node(to).index)).collect();
        self.shared.change_faults(|faults| {
            pairs.iter().for_each(|(from, to)| faults.mute(segment, *from, *to));
            Ok(())
        })
    }

    /// Changes how all nodes take probes.
    pub fn set_data_plane(&self, data_plane: DataPlane) -> Result<()> {
        self.nodes().iter().try_for_each(|node| data_plane.apply(node.netns()))
    }

    /// Starts recording claims on all segments.
    pub fn observe(&self) -> Result<Observer> {
        let bridges = kernel::names(&self.shared.root)?;
        let segments = bridges
            .into_iter()
            .filter_map(|(index, name)| {
                let segment = self.segments().iter().find(|segment| segment.bridge == name)?;
                Some((index, segment.name.clone()))
            })
            .collect();
        let hosts = &self.shared.plan.hosts;
        let macs = hosts.iter().flat_map(|host| host.ports.iter().map(|port| (port.mac, host.name.clone())));
        Observer::start(Wiretap { root: self.shared.root.clone(), segments, hosts: macs.collect() })
    }

    /// Starts recording which host holds which address.
    pub fn watch_addresses(&self) -> Result<AddressWatch> {
        let hosts = self.shared.plan.hosts.iter().zip(&self.shared.namespaces).enumerate();
        let watched =
            hosts.map(|(id, (host, netns))| Ok((i32::try_from(id)?, host.name.clone(), netns.clone())));
        AddressWatch::start(&self.shared.root, watched.collect::<Result<_>>()?)
    }

    /// The lab in words, with the commands that look into it.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (host, netns) in self.shared.plan.hosts.iter().zip(&self.shared.namespaces) {
            let _ = writeln!(text, "{:?} {}: ip netns exec {} bash", host.role, host.name, netns.name());
            for port in &host.ports {
                let addresses: Vec<_> = port.addresses.iter().map(ToString::to_string).collect();
                let _ = writeln!(
                    text,
                    "  {} on {} ({}): {}",
                    port.dev,
                    port.segment_name,
                    port.mac,
                    addresses.join(", ")
                );
            }
        }
        let _ = writeln!(text, "bridges: ip netns exec {} bridge link", self.shared.root.name());
        text
    }
}
