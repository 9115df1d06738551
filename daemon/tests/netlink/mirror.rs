//! What an engine would know that is fed by a monitor.

use std::collections::BTreeMap;

use ipnet::IpNet;
use purelb_core::facts::{AddrFacts, DefaultRoute, LinkFacts};
use purelb_core::ids::IfIndex;
use purelb_core::messages::{FactsUpdate, Input};
use purelbd::netlink::{AddressOwnership, KernelMonitor, MonitorHandle, MonitorSettings};
use tokio::sync::mpsc;

use crate::ns::DEADLINE;

#[derive(Debug)]
pub(crate) struct Mirror {
    inputs: mpsc::Receiver<Input>,
    pub(crate) monitor: MonitorHandle,
    pub(crate) links: BTreeMap<IfIndex, LinkFacts>,
    pub(crate) addresses: BTreeMap<(IfIndex, IpNet), AddrFacts>,
    pub(crate) routes: Vec<DefaultRoute>,
    pub(crate) dumps: usize,
    /// Every input since the last dump, in words.
    pub(crate) log: Vec<String>,
}

impl Mirror {
    /// Starts a monitor and waits for its first dump.
    pub(crate) async fn start() -> Self {
        let mut mirror = Self::start_with(MonitorSettings::default(), 1024, AddressOwnership::kernel());
        mirror.until("the first dump", |m| m.dumps == 1).await;
        mirror
    }

    pub(crate) fn start_with(settings: MonitorSettings, queue: usize, marks: AddressOwnership) -> Self {
        let (sender, inputs) = mpsc::channel(queue);
        let monitor = KernelMonitor::open(&settings, marks, sender).unwrap();
        let handle = monitor.handle();
        tokio::spawn(monitor.run());
        Self {
            inputs,
            monitor: handle,
            links: BTreeMap::new(),
            addresses: BTreeMap::new(),
            routes: Vec::new(),
            dumps: 0,
            log: Vec::new(),
        }
    }

    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while !holds(self) {
            match tokio::time::timeout_at(deadline, self.inputs.recv()).await {
                Ok(Some(input)) => self.take(input),
                Ok(None) => panic!("{what}: the monitor ended; {self:#?}"),
                Err(_) => panic!("{what}: not within {DEADLINE:?}; {self:#?}"),
            }
        }
    }

    pub(crate) fn link(&self, name: &str) -> Option<&LinkFacts> {
        self.links.values().find(|link| link.name.as_str() == name)
    }

    pub(crate) fn address(&self, text: &str) -> Option<&AddrFacts> {
        let net: IpNet = text.parse().unwrap();
        self.addresses.values().find(|facts| facts.net == net)
    }

    fn take(&mut self, input: Input) {
        self.log.push(format!("{input:?}"));
        match input {
            Input::Kernel(dump) => {
                self.dumps += 1;
                self.log.clear();
                self.links = dump.links.into_iter().map(|link| (link.index, link)).collect();
                self.addresses =
                    dump.addresses.into_iter().map(|facts| ((facts.index, facts.net), facts)).collect();
                self.routes = dump.default_routes;
            }
            Input::Link(FactsUpdate::Set(link)) => {
                self.links.insert(link.index, link);
            }
            Input::Link(FactsUpdate::Gone(index)) => {
                self.links.remove(&index);
            }
            Input::AddressSet(facts) => {
                self.addresses.insert((facts.index, facts.net), facts);
            }
            Input::AddressGone { index, net } => {
                self.addresses.remove(&(index, net));
            }
            Input::DefaultRoutes(routes) => self.routes = routes,
            other => panic!("a monitor does not send this: {other:?}"),
        }
    }
}
