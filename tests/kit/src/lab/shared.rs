//! What a lab and the handles of its hosts share.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, Weak};

use anyhow::{Context, Result};

use super::background::Background;
use super::cuts::Faults;
use super::forward::{self, ApiTargets};
use super::netns::Netns;
use super::plan::Plan;
use super::wiring::Dad;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) dad: Dad,
    pub(super) dir: PathBuf,
    /// Holds the bridges.
    pub(super) root: Netns,
    /// Of the hosts, in the plan's order.
    pub(super) namespaces: Vec<Netns>,
    pub(super) api: ApiTargets,
    pub(super) faults: Mutex<Faults>,
    /// Owned by the lab alone: a handle kept too long must not keep servers running.
    pub(super) background: Weak<Background>,
}

impl Shared {
    /// Changes the faults and brings the change to the kernel; a change that is refused
    /// leaves everything as it was.
    pub(super) fn change_faults(&self, change: impl FnOnce(&mut Faults) -> Result<()>) -> Result<()> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = faults.clone();
        change(&mut changed)?;
        self.root.nft(&changed.script(&self.plan.hosts)?)?;
        *faults = changed;
        Ok(())
    }

    pub(super) fn expose(&self, to: SocketAddr) -> Result<SocketAddr> {
        let background = self.background.upgrade().context("the lab has ended")?;
        let listener =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on loopback")?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        background.spawn(forward::serve_node(listener, self.root.clone(), to));
        Ok(at)
    }
}
