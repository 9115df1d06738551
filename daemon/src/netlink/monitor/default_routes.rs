//! The default routes of the main table, read aside.
//!
//! The kernel cannot list default routes alone: it walks the whole table, which takes a
//! router with a million routes seconds. So they are read on a thread and a socket of
//! their own, while the monitor goes on, and only when something happened that can change
//! them; what that is, [`DefaultRoutes::depends_on_link`] and its like know.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use nix::errno::Errno;
use purelb_core::facts::DefaultRoute;
use purelb_core::ids::IfIndex;

use crate::netlink::client::{DumpTries, NetlinkClient, NetlinkError};
use crate::netlink::dump_requests;
use crate::netlink::parse::{self, NextHop, NexthopObject, ParsedRoute};

/// The default routes, and what they hang on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DefaultRoutes {
    pub(crate) defaults: BTreeSet<DefaultRoute>,
    nexthops: BTreeSet<u32>,
    sources: BTreeSet<IpAddr>,
}

impl DefaultRoutes {
    pub(crate) fn depends_on_link(&self, index: IfIndex) -> bool {
        self.defaults.iter().any(|route| route.index == index)
    }

    pub(crate) fn depends_on_source(&self, address: IpAddr) -> bool {
        self.sources.contains(&address)
    }

    pub(crate) fn depends_on_nexthop(&self, id: u32) -> bool {
        self.nexthops.contains(&id)
    }

    #[cfg(test)]
    pub(crate) fn with(defaults: &[DefaultRoute], nexthops: &[u32], sources: &[&str]) -> Self {
        Self {
            defaults: defaults.iter().copied().collect(),
            nexthops: nexthops.iter().copied().collect(),
            sources: sources.iter().map(|s| s.parse().expect("an address")).collect(),
        }
    }

    fn of(routes: Vec<ParsedRoute>, objects: &BTreeMap<u32, NexthopObject>) -> Self {
        let mut found = Self::default();
        for ParsedRoute { family, metric, mut hops, nexthop, source } in routes {
            found.sources.extend(source);
            if let Some(id) = nexthop {
                let members = objects.get(&id).map_or(&[][..], |object| &object.group);
                for id in [id].iter().chain(members) {
                    found.nexthops.insert(*id);
                    hops.extend(objects.get(id).and_then(|object| object.hop));
                }
            }
            let route = |NextHop { index, gateway }| DefaultRoute { family, metric, index, gateway };
            found.defaults.extend(hops.into_iter().map(route));
        }
        found
    }
}

/// Its own way to the kernel, in the namespace it was opened in.
#[derive(Debug)]
pub(crate) struct RouteReader(NetlinkClient);

impl RouteReader {
    pub(crate) fn open() -> io::Result<Self> {
        NetlinkClient::open().map(Self)
    }

    /// Blocks, for as long as the table is.
    pub(crate) fn read(&mut self) -> Result<DefaultRoutes, NetlinkError> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let dumped = self.0.dump(
                &dump_requests::main_routes(family),
                DumpTries::ONE,
                |found: &mut Vec<_>, message| {
                    found.extend(parse::default_route(message));
                },
            );
            match dumped {
                Ok(dump) => routes.extend(dump.found),
                // A namespace has no main table before its first route.
                Err(NetlinkError::Refused(no)) if no.errno == Errno::ENOENT => {}
                Err(error) => return Err(error),
            }
        }
        // Most hosts have none of these objects, and kernels before 5.3 do not know them.
        let objects = if routes.iter().any(|route: &ParsedRoute| route.nexthop.is_some()) {
            self.nexthops()?
        } else {
            BTreeMap::new()
        };
        Ok(DefaultRoutes::of(routes, &objects))
    }

    fn nexthops(&mut self) -> Result<BTreeMap<u32, NexthopObject>, NetlinkError> {
        let dump = self.0.dump(
            &dump_requests::nexthops(),
            DumpTries::SEVERAL,
            |found: &mut BTreeMap<_, _>, message| {
                found.extend(parse::nexthop(message).map(|object| (object.id, object)));
            },
        )?;
        Ok(dump.found)
    }
}
